"""The rows of the table: what each is called, what is printed for it, and how it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["MODELS", "PRINTED", "Model"]

#: recall@20, recall@50 and NDCG@100 in per cent, as printed for each data set
PRINTED: dict[str, dict[str, tuple[str, str, str]]] = {
    "movielens-20m": {
        "SIVAE, learnable": ("39.95", "53.95", "43.01"),
        "SIVAE, gaussian": ("35.77", "49.45", "38.69"),
        "SIVAE, concrete": ("37.19", "51.30", "39.90"),
        "Vamp, dropout": ("39.65", "53.63", "42.56"),
        "Vamp": ("35.84", "50.27", "38.57"),
        "IAF, dropout": ("39.29", "53.52", "42.37"),
        "IAF": ("35.94", "50.28", "38.85"),
        "VAE, dropout": ("39.47", "53.53", "42.63"),
        "VAE": ("35.67", "49.89", "38.53"),
        "DAE": ("38.58", "52.28", "41.92"),
        "WMF": ("36.0", "49.8", "38.6"),
        "SLIM": ("37.0", "49.5", "40.1"),
        "CDAE": ("39.1", "52.3", "41.8"),
    },
    "netflix": {
        "SIVAE, learnable": ("35.63", "44.70", "39.04"),
        "SIVAE, gaussian": ("31.43", "40.68", "35.05"),
        "SIVAE, concrete": ("32.07", "41.52", "35.67"),
        "Vamp, dropout": ("35.15", "44.43", "38.68"),
        "Vamp": ("31.09", "40.81", "34.86"),
        "IAF, dropout": ("34.65", "44.02", "38.21"),
        "IAF": ("32.77", "41.95", "36.23"),
        "VAE, dropout": ("35.16", "44.38", "38.60"),
        "VAE": ("31.12", "40.78", "34.86"),
        "DAE": ("34.50", "43.41", "37.85"),
        "WMF": ("31.6", "40.4", "35.1"),
        "SLIM": ("34.7", "42.8", "37.9"),
        "CDAE": ("34.3", "42.8", "37.6"),
    },
    "msd": {
        "SIVAE, learnable": ("27.18", "37.36", "32.33"),
        "SIVAE, gaussian": ("22.50", "31.01", "26.99"),
        "SIVAE, concrete": ("24.32", "33.19", "29.10"),
        "Vamp, dropout": ("26.26", "35.89", "31.37"),
        "Vamp": ("22.02", "30.33", "26.57"),
        "IAF, dropout": ("25.65", "34.96", "30.67"),
        "IAF": ("21.92", "30.23", "26.50"),
        "VAE, dropout": ("26.36", "36.21", "31.33"),
        "VAE": ("21.98", "30.33", "26.49"),
        "DAE": ("25.89", "35.23", "31.04"),
        "WMF": ("21.1", "31.2", "25.7"),
        "CDAE": ("18.8", "28.3", "23.7"),
    },
}

#: in the papers' settings validation users choose among these weights of the divergence, which are per user
_PAPER_BETAS = (0.07, 0.2, 0.6)
#: settings of Liang et al., for networks whose own settings are not in print
_LIANG = {
    "decoder_hidden": (600,),
    "activation": "tanh",
    "layer_norm": False,
    "beta": _PAPER_BETAS,
    "beta_per_choice": False,
    "average": False,
    "batch_size": 500,
}


@dataclass(frozen=True)
class Model:
    """A row of the table."""

    #: (options, whether the paper's settings are wanted) -> a recommender
    make: Callable[[dict[str, Any], bool], Any]
    #: the paper's settings as they are changed for data with fewer users than the paper's
    scaled: Mapping[str, Any] = field(default_factory=dict)
    has_recipes: bool = True  #: whether it is run with the paper's settings and with ours, or once
    has_seeds: bool = True  #: whether a run depends on its seed


def _sivae(dropout: str | None) -> Callable[[dict[str, Any], bool], Any]:
    def make(options: dict[str, Any], paper: bool) -> Any:
        from bayesdrop.recommend import SIVAE

        if paper:
            return SIVAE.published(**{"beta": _PAPER_BETAS, **options, "dropout": dropout})
        return SIVAE(**{**options, "dropout": dropout})

    return make


def _network(name: str, **own: Any) -> Callable[[dict[str, Any], bool], Any]:
    def make(options: dict[str, Any], paper: bool) -> Any:
        from bayesdrop import recommend

        return getattr(recommend, name)(**{**(_LIANG if paper else {}), **options, **own})

    return make


def _denoising(name: str) -> Callable[[dict[str, Any], bool], Any]:
    """Published settings are its defaults; its hidden layer is as wide as a code."""

    def make(options: dict[str, Any], paper: bool) -> Any:
        from bayesdrop import recommend

        return getattr(recommend, name)(**{**options, "hidden": options["latent"]})

    return make


def _plain(name: str, *given: str, **own: Any) -> Callable[[dict[str, Any], bool], Any]:
    """A recommender with the options `own` and, of the run's options, those whose names are `given`."""

    def make(options: dict[str, Any], paper: bool) -> Any:
        from bayesdrop import recommend

        return getattr(recommend, name)(**own, **{option: options[option] for option in given})

    return make


#: the 8,000 most popular items at the most: memory grows with their square
_ITEMS = {"max_items": 8000}


#: five batches of 1,000 are an epoch of MovieLens-1M: the divergence has its full weight after 40 epochs
_FASTER = {"anneal_steps": 200}
MODELS: dict[str, Model] = {
    "SIVAE, learnable": Model(_sivae("learnable"), _FASTER),
    "SIVAE, gaussian": Model(_sivae("gaussian"), _FASTER),
    "SIVAE, concrete": Model(_sivae("concrete"), _FASTER),
    "Vamp, dropout": Model(_network("VampVAE")),
    "Vamp": Model(_network("VampVAE", p=0.0)),
    "IAF, dropout": Model(_network("IAFVAE")),
    "IAF": Model(_network("IAFVAE", p=0.0)),
    "VAE, dropout": Model(_network("MultVAE")),
    "VAE": Model(_network("MultVAE", p=0.0)),
    "DAE": Model(_denoising("MultDAE"), has_recipes=False),
    "WMF": Model(_plain("ImplicitALS"), has_recipes=False),
    "SLIM": Model(_plain("SLIM", **_ITEMS), has_recipes=False, has_seeds=False),
    "CDAE": Model(_denoising("CDAE"), has_recipes=False),
    "EASE": Model(_plain("EASE", **_ITEMS), has_recipes=False, has_seeds=False),
    "popularity": Model(_plain("Popularity"), has_recipes=False, has_seeds=False),
    "blend": Model(_plain("Blend", "seed"), has_recipes=False),
}
