"""FitRecipe: how a table is fitted, from candidates that are tried to the networks that are kept; presets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from bayesdrop.errors import is_one_of, must, must_be_flag, real_number, whole_number
from bayesdrop.stacked.heads import LOGITS
from bayesdrop.stacked.settings import NoiseModel, Settings

__all__ = ["PRESETS", "Candidate", "FitRecipe", "bins_for", "preset_recipe"]

#: columns from which on the default tries candidates with few of them
_WIDE = 12
#: rows from which the papers' networks have 100 units instead of 50
_MANY = 40_000
#: rows from which on every epoch is expensive
_LONG = 100_000
#: noise models with one level for all rows
_LEVELS = ("fixed", "map", "learned")


@dataclass(frozen=True)
class Candidate:
    """A network to try.

    Args:
        settings: how it is built and trained.
        bins: intervals of the piecewise-linear encoding of every column (see `Encoder`); 0 for none.
        start: whether predictions of boosted trees and a linear map are among its inputs (see
            `bayesdrop.stacked.start`).
        few: whether columns that do not matter to the trees are left out.
    """

    settings: Settings
    bins: int = 0
    start: bool = False
    few: bool = False

    def __post_init__(self) -> None:
        bins = whole_number("Candidate", "bins", self.bins, at_least=0, at_most=10_000)
        object.__setattr__(self, "bins", bins)
        must_be_flag("Candidate", start=self.start, few=self.few)

    @property
    def needs_start(self) -> bool:
        """Whether boosted trees must be fitted for it."""
        return self.start or self.few

    @property
    def brief(self) -> str:
        """The network in a few words, for a line that has little room."""
        shape = "-".join(str(width) for width in self.settings.hidden)
        parts = [f"{shape} {self.settings.activation}", f"{self.bins} bins" if self.bins else ""]
        parts += ["start" if self.start else "", "few columns" if self.few else ""]
        return ", ".join(filter(None, parts))

    def __str__(self) -> str:
        one = self.settings
        shape = "-".join(str(width) for width in one.hidden)
        extra = "" if one.noise_pace is None else f", noise pace {one.noise_pace:g}"
        extra += f", {self.bins} bins" if self.bins else ""
        extra += ", with a start" if self.start else ""
        extra += ", few columns" if self.few else ""
        return f"{one.method} {shape} {one.activation}, p {one.p}, l {one.length_scale:g}{extra}"


@dataclass(frozen=True)
class FitRecipe:
    """How a table is fitted. No test row is ever looked at: all choices are made inside the table.

    Every candidate is trained `parts` times, each time without one part of the rows. What the networks
    say about the rows they have not seen chooses among candidates and sets the noise. Then either one
    candidate is trained anew on all rows (`refit`), or the networks that held rows out are themselves kept
    and joined by others: a mixture of dropout posteriors with equal weights, whose components are picked
    one block after another so as to make unseen rows most probable. Where every row is held out in turn,
    each block cuts the table anew; else all blocks hold out the same rows.

    Args:
        candidates: what to try. One candidate and `parts=0` is a plain fit.
        folds: the table is cut into so many parts at random.
        parts: how many of them are held out, by a network each; 0 for no search at all.
        blocks: how many blocks of `parts` networks are picked.
        scouts: parts that are held out for a first look at all candidates; all of them if None.
        survivors: candidates that go on after the first look, to the parts that are left. After a look with
            short trainings the best candidate without a start goes on, too: it gains more by a long training.
        look: share of its epochs that a network is trained for at the first look. Below 1, the networks of
            that look are only judged, and the survivors are trained in full.
        holdout: "random" parts, or the "last" rows of the table as one part (the last 20 % with 5 folds).
        refit: train the best candidate anew on all rows, `restarts` times.
        restarts: networks of a refit, or of a fit without search.
        calibrate: set the noise by the rows that were held out (see `Calibration`).
        tails: whether the noise may be Student's t, with degrees of freedom that suit those rows.
        precisions: precisions tau = 1 / variance of the noise, in the target's units, to choose from; needs a
            fixed noise. Networks are trained with the middle one: at small length scales the weights do not
            depend on it.
        num_draws: draws of all networks together, for predictions.
        judge_draws: draws of each network for the rows it held out. The log of a mean over few draws is too
            low, the more so the more draws differ: among rates, few draws prefer the small ones.
        rounds: rounds of Bayesian optimisation, each of `batch` candidates.
        batch: candidates of a round.
        natures: whether skewed targets, shares and whole numbers may be fitted through a map that suits them
            (see `bayesdrop.stacked.natures`); not with one noise level for all rows.
    """

    candidates: tuple[Candidate, ...]
    folds: int = 10
    parts: int = 10
    blocks: int = 1
    scouts: int | None = None
    survivors: int = 3
    look: float = 1.0
    holdout: Literal["random", "last"] = "random"
    refit: bool = False
    restarts: int = 1
    calibrate: bool = True
    tails: bool = False
    precisions: tuple[float, ...] | None = None
    num_draws: int = 300
    judge_draws: int = 24
    rounds: int = 0
    batch: int = 4
    natures: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "candidates", tuple(self.candidates))
        if not self.candidates:
            raise ValueError(must("FitRecipe", "candidates", "at least one Candidate", self.candidates))
        if self.folds < 2:
            raise ValueError(must("FitRecipe", "folds", "at least 2", self.folds))
        if not 0 <= self.parts <= self.folds:
            raise ValueError(must("FitRecipe", "parts", f"from 0 to folds ({self.folds})", self.parts))
        if self.parts == 0 and (len(self.candidates) > 1 or self.precisions is not None or self.rounds):
            hint = "Nothing could choose among candidates."
            raise ValueError(must("FitRecipe", "parts", "at least 1 with something to choose", 0, hint))
        if self.holdout == "last" and self.parts > 1:
            raise ValueError(must("FitRecipe", "parts", "1 with holdout='last'", self.parts))
        if (self.refit or self.parts == 0) and any(one.needs_start for one in self.candidates):
            want = "without `start` and `few`, unless the networks that held rows out are kept"
            raise ValueError(must("FitRecipe", "candidates", want, self.candidates))
        if self.scouts is not None:
            scouts = whole_number("FitRecipe", "scouts", self.scouts, at_least=1)
            object.__setattr__(self, "scouts", scouts)
        must_be_flag("FitRecipe", natures=self.natures)
        real_number("FitRecipe", "look", self.look, "in (0, 1]", above=0, at_most=1)
        if self.natures and any(one.settings.noise in _LEVELS for one in self.candidates):
            raise ValueError(must("FitRecipe", "natures", "False with one noise level for all rows", True))
        for name in ("blocks", "survivors", "restarts", "num_draws", "judge_draws", "batch"):
            object.__setattr__(self, name, whole_number("FitRecipe", name, getattr(self, name), at_least=1))
        if self.precisions is not None and any(one.settings.noise != "fixed" for one in self.candidates):
            raise ValueError(must("FitRecipe", "precisions", "None unless noise='fixed'", self.precisions))


def gal2016(
    rows: int,
    columns: int,
    *,
    p: float = 0.05,
    length_scale: float = 1e-2,
    precision: float | None = None,
    epochs: int | None = None,
    noise: NoiseModel = "fixed",
) -> FitRecipe:
    """One hidden layer of 50 units (100 from 40,000 rows), one rate everywhere, Adam at 1e-3, 400 epochs.

    Args:
        rows: N of the table.
        columns: K of the table.
        p: chance of dropping, inputs included.
        length_scale: prior length scale.
        precision: tau in the target's units; chosen on the last 20 % of the rows if None.
        epochs: passes over the data; 400, or 200 from 40,000 rows, if None.
        noise: "fixed", "classes" or "labels".

    Reference: Gal & Ghahramani (2016), section 5.3.
    """
    settings = _of_papers(
        rows,
        p,
        epochs or (200 if rows >= _MANY else 400),
        noise=noise,
        length_scale=length_scale,
        noise_std=None if precision is None else precision**-0.5,
        # As the paper says. Batches of 128, as in its repository later, give the table of 2018 instead.
        batch_size=32,
        check_every=100,
    )
    if precision is not None or noise in LOGITS:
        return FitRecipe((Candidate(settings),), parts=0, calibrate=False, num_draws=1000)
    return FitRecipe((Candidate(settings),), **_LAST_ROWS)


def gal2018(
    rows: int,
    columns: int,
    *,
    rates: tuple[float, ...] = (0.005, 0.01, 0.05, 0.1),
    precisions: tuple[float, ...] | None = None,
    epochs: int | None = None,
    noise: NoiseModel = "fixed",
    **options: Any,
) -> FitRecipe:
    """A grid of rates and precisions on the last 20 % of the training rows, then a fit to all of them.

    Args:
        rows: N of the table.
        columns: K of the table.
        rates: of dropping, inputs included.
        precisions: tau in the target's units to choose from; if None, the noise is set freely (`calibrate`).
        epochs: passes over the data; 4,000, or 2,000 from 40,000 rows, if None.
        noise: "fixed", "classes" or "labels".
        options: settings that replace the paper's, such as `length_scale` or `hidden`.

    Reference: the protocol of 2018 in the authors' repository of Gal & Ghahramani (2016).
    """
    epochs = epochs or (2000 if rows >= _MANY else 4000)
    settings = [_of_papers(rows, p, epochs, noise=noise, check_every=500, **options) for p in rates]
    grid = None if noise in LOGITS else precisions
    return FitRecipe(tuple(map(Candidate, settings)), precisions=grid, **_LAST_ROWS)


def two_layers(rows: int, columns: int, *, epochs: int = 20_000, **options: Any) -> FitRecipe:
    """As `gal2018`, with two hidden layers and five times the epochs: the "Dropout" column of 2017.

    Args:
        rows: N of the table.
        columns: K of the table.
        epochs: passes over the data.
        options: as those of `gal2018`.
    """
    return gal2018(rows, columns, epochs=epochs, hidden=(_units(rows),) * 2, **options)


#: what the papers' protocols judge by: the last 20 % of the rows, and many draws
_LAST_ROWS: dict[str, Any] = {
    "folds": 5,
    "parts": 1,
    "holdout": "last",
    "refit": True,
    "num_draws": 1000,
    "judge_draws": 300,
}


def _of_papers(rows: int, p: float, epochs: int, **options: Any) -> Settings:
    """The papers' network: one rate everywhere, Adam at a constant 1e-3."""
    hidden = options.pop("hidden", (_units(rows),))
    # First weights as in the authors' framework; networks come out better than from those of `nn.Linear`.
    constant: dict[str, Any] = {"lr": 1e-3, "schedule": "constant", "first_weights": "glorot"}
    return Settings(hidden=hidden, p=p, input_p=p, epochs=epochs, **constant, **options)


def default_recipe(rows: int, columns: int, *, noise: NoiseModel = "heteroscedastic") -> FitRecipe:
    """Ours: networks with and without encoded columns and a start, blended by what they say of unseen rows.

    Width, encoding, batch, epochs and the number of networks follow from the size of the table.

    Args:
        rows: N of the table.
        columns: K of the table.
        noise: "heteroscedastic", "classes" or "labels", or another noise model.
    """
    small = rows < 3000
    width = 128 if small else 192 if rows < 20_000 else 256
    # Of 32 rows or fewer, a larger batch would only repeat them.
    batch = 32 if rows <= 32 else 64 if rows < 500 else 96 if small else 128 if rows < 20_000 else 256
    # Probabilities of classes are the first to be overfitted.
    labels = noise in LOGITS
    if small:
        steps = 500 if rows < 400 else 700 if labels else 900 if rows < 500 else 1050
    elif rows < 20_000:
        steps = 2500 if labels else 3000
    else:
        steps = 9000 if rows < _LONG else 5000
    epochs = max(1, min(250, round(steps * batch / rows)))
    common: dict[str, Any] = {"noise": noise, "batch_size": batch, "epochs": epochs, "check_every": epochs}
    common["lr"] = 3e-3
    # Sharp bends with much dropout, or smooth networks with little: tables differ in what suits them.
    rough = Settings(hidden=(width,) * 2, p=0.1 if small else 0.05, activation="relu", **common)
    smooth = Settings(hidden=(width,) * 2, p=0.01, activation="silu", **common)
    deep = replace(smooth, hidden=(width,) * 3)
    most = 32 if small else 64 if rows < _LONG else 16
    bins = bins_for(rows, columns, most=most)
    candidates = [Candidate(rough)]
    if small:
        # Less of everything, for noisy tables of few rows.
        short = max(1, epochs // 3)
        calm = replace(smooth, hidden=(64, 64), p=0.1, epochs=short, check_every=short)
        candidates += [Candidate(calm), Candidate(calm, start=True)]
    else:
        candidates += [Candidate(deep), Candidate(rough, start=True)]
    if bins:
        candidates += [Candidate(rough, bins), Candidate(smooth, bins)]
    candidates.append(Candidate(smooth, bins, start=True))
    if columns >= _WIDE:
        # Columns that tell nothing do much harm to networks of few rows.
        candidates += [
            Candidate(rough, most // 2, few=True),
            Candidate(smooth, most // 2, start=True, few=True),
        ]
    # Few rows: every row is held out in turn. Many: some 1,400 are enough to choose by.
    folds = min(8 if small else 10 if rows < 20_000 else 20 if rows < _LONG else 50, max(2, rows))
    parts = min(folds, max(1, -(-1400 * folds // rows)))
    blocks = 4 if small or 20_000 <= rows < _LONG else 2 if rows >= _LONG else 3 if parts > 1 else 6
    scouts = 1 if parts < 6 else 2 if rows < 400 else 3
    # A short training shows which candidates will be good after a long one.
    long: dict[str, Any] = {"look": 0.2 if rows < _LONG else 0.1, "survivors": 2} if rows >= 20_000 else {}
    return FitRecipe(
        tuple(candidates), folds=folds, parts=parts, blocks=blocks, scouts=scouts, tails=True,
        natures=noise == "heteroscedastic", **long,
    )  # fmt: skip


def best_recipe(rows: int, columns: int, *, noise: NoiseModel = "heteroscedastic") -> FitRecipe:
    """As the default, with nothing spared: no candidate is given up early, and twice as many are kept.

    Args:
        rows: N of the table.
        columns: K of the table.
        noise: "heteroscedastic", "classes" or "labels", or another noise model.
    """
    usual = default_recipe(rows, columns, noise=noise)
    return replace(usual, scouts=None, look=1.0, blocks=2 * usual.blocks, num_draws=2 * usual.num_draws)


def quick_recipe(rows: int, columns: int, *, noise: NoiseModel = "heteroscedastic") -> FitRecipe:
    """Four networks, two of them with encoded columns, and no search: a first answer.

    Args:
        rows: N of the table.
        columns: K of the table.
        noise: "heteroscedastic", "classes" or "labels", or another noise model.
    """
    batch = 32 if rows <= 32 else 64 if rows < 1000 else 256
    epochs = max(1, min(150, round(1200 * batch / rows)))
    common: dict[str, Any] = {"noise": noise, "batch_size": batch, "epochs": epochs, "check_every": epochs}
    settings = Settings(hidden=(64, 64), p=0.05, lr=5e-3, **common)
    bins = bins_for(rows, columns, most=16)
    candidates = [Candidate(settings)] + ([Candidate(settings, bins)] if bins else [])
    folds = min(5, max(2, rows))
    return FitRecipe(
        tuple(candidates), folds=folds, parts=min(2, folds), blocks=2, num_draws=100, tails=True,
        natures=noise == "heteroscedastic",
    )  # fmt: skip


def _units(rows: int) -> int:
    return 100 if rows >= _MANY else 50


def bins_for(rows: int, columns: int, most: int = 64) -> int:
    """Intervals of a column's encoding: min(most, rows // 10, 512 // columns), or 0 where that is below 4.

    Args:
        rows: N of the table.
        columns: how many columns are encoded.
        most: intervals of a column at most.
    """
    bins = min(most, rows // 10, 512 // columns)
    return bins if bins >= 4 else 0


PRESETS: dict[str, Callable[..., FitRecipe]] = {
    "default": default_recipe,
    "quick": quick_recipe,
    "best": best_recipe,
    "gal2016": gal2016,
    "gal2018": gal2018,
    "two-layers": two_layers,
}


def preset_recipe(name: str, rows: int, columns: int, **options: Any) -> FitRecipe:
    """The recipe of a preset for a table of a size.

    Args:
        name: "default", "quick", "best", "gal2016", "gal2018" or "two-layers".
        rows: N of the table.
        columns: K of the table.
        options: of that preset, such as `noise`.

    >>> preset_recipe("gal2018", 455, 13).candidates[0].settings.hidden
    (50,)
    """
    if not is_one_of(name, PRESETS):
        raise ValueError(must("preset_recipe", "name", f"one of {', '.join(map(repr, PRESETS))}", name))
    return PRESETS[name](rows, columns, **options)
