"""The rows of the table: what each is called, what is printed for it, and how it is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["MODELS", "Model"]

#: weights of the divergence that validation users choose from, in the papers' settings: for every user
_PAPER_BETAS = (0.07, 0.2, 0.6)
#: of Liang et al.'s networks, for those that have no settings of their own in print
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
    """A row: recall@20, recall@50 and NDCG@100 as printed for MovieLens-20M, in per cent."""

    printed: tuple[float, float, float] | None
    #: options, and whether the paper's settings are wanted -> a recommender
    make: Callable[[dict[str, Any], bool], Any]
    has_recipes: bool = True
    has_seeds: bool = True


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
    """Its published settings are its defaults; the width of its one layer is the code's."""

    def make(options: dict[str, Any], paper: bool) -> Any:
        from bayesdrop import recommend

        return getattr(recommend, name)(**{**options, "hidden": options["latent"]})

    return make


def _plain(name: str) -> Callable[[dict[str, Any], bool], Any]:
    def make(options: dict[str, Any], paper: bool) -> Any:
        from bayesdrop import recommend

        return getattr(recommend, name)()

    return make


def _linear(name: str) -> Callable[[dict[str, Any], bool], Any]:
    """The 8,000 most popular items at the most: memory grows with their square."""

    def make(options: dict[str, Any], paper: bool) -> Any:
        from bayesdrop import recommend

        return getattr(recommend, name)(max_items=8000)

    return make


MODELS: dict[str, Model] = {
    "SIVAE, learnable": Model((39.95, 53.95, 43.01), _sivae("learnable")),
    "SIVAE, gaussian": Model((35.77, 49.45, 38.69), _sivae("gaussian")),
    "SIVAE, concrete": Model((37.19, 51.30, 39.90), _sivae("concrete")),
    "Vamp, dropout": Model((39.65, 53.63, 42.56), _network("VampVAE")),
    "Vamp": Model((35.84, 50.27, 38.57), _network("VampVAE", p=0.0)),
    "IAF, dropout": Model((39.29, 53.52, 42.37), _network("IAFVAE")),
    "IAF": Model((35.94, 50.28, 38.85), _network("IAFVAE", p=0.0)),
    "VAE, dropout": Model((39.47, 53.53, 42.63), _network("MultVAE")),
    "VAE": Model((35.67, 49.89, 38.53), _network("MultVAE", p=0.0)),
    "DAE": Model((38.58, 52.28, 41.92), _denoising("MultDAE"), has_recipes=False),
    "WMF": Model((36.0, 49.8, 38.6), _plain("ImplicitALS"), has_recipes=False),
    "SLIM": Model((37.0, 49.5, 40.1), _linear("SLIM"), has_recipes=False, has_seeds=False),
    "CDAE": Model((39.1, 52.3, 41.8), _denoising("CDAE"), has_recipes=False),
    "EASE": Model(None, _linear("EASE"), has_recipes=False, has_seeds=False),
    "popularity": Model(None, _plain("Popularity"), has_recipes=False, has_seeds=False),
    "blend": Model(None, lambda options, paper: _blend(options), has_recipes=False),
}


def _blend(options: dict[str, Any]) -> Any:
    from bayesdrop.recommend import Blend

    return Blend(seed=options["seed"])
