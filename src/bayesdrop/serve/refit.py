"""refit(): the next version of a model, trained on its old data and the labels, compared with the last."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from bayesdrop.errors import require
from bayesdrop.fit import fit
from bayesdrop.fit.checks import Objective
from bayesdrop.likelihoods import Categorical
from bayesdrop.objectives import NegativeELBO
from bayesdrop.predict import predict
from bayesdrop.serve.registry import Registry
from bayesdrop.serve.served.cells import frame_of
from bayesdrop.serve.served.images import ImageModel, load_image_model, save_image_model
from bayesdrop.serve.served.pictures import as_pixels
from bayesdrop.serve.store import Item, SavedModel, Store
from bayesdrop.tables import load_table_model, open_table, save_table_model
from bayesdrop.tables.evaluate import fit_evaluation
from bayesdrop.tables.refitting import RefitDecision, Trial, decided, refit_table, typed_frame
from bayesdrop.trace import StochasticModule

if TYPE_CHECKING:
    from bayesdrop.serve.settings import ServeSettings

__all__ = ["RefitResult", "check_refit", "refit", "refit_apart"]

Say = Callable[[str], None]


@dataclass(frozen=True)
class RefitResult:
    """What came of a refit.

    Attributes:
        version: the number of the new version.
        parent: of the one it was made from.
        labels: items whose labels were used, for training or for the comparison.
        better: whether it is better than its parent.
        activated: whether it answers now.
        why: in words.
        comparison: trials of both, see `bayesdrop.tables.refitting.Trial`.
    """

    version: int
    parent: int
    labels: int
    better: bool
    activated: bool
    why: str
    comparison: dict[str, Any]


def check_refit(settings: ServeSettings, record: SavedModel) -> None:
    """Raise where a refit is not possible, before anything long is done.

    Args:
        settings: of the server.
        record: the version to start from.
    """
    if record.kind == "torch":
        raise ValueError("a model that is code cannot be refitted: train it, and serve it anew.")
    if record.kind == "table":
        if settings.data is None:
            raise ValueError(
                "a refit of a table needs the table that the model was fitted to, of which the model keeps "
                "a few rows at most: name it with --data."
            )
        if not Path(settings.data).exists():
            raise ValueError(f"the data of a refit are not there: {settings.data}.")


def refit(
    settings: ServeSettings,
    store: Store,
    *,
    force: bool = False,
    person_id: int | None = None,
    say: Say = lambda line: None,
    progress: bool = False,
) -> RefitResult:
    """Train the next version of the active model; make it active if it is better, or by force.

    Labels of items that were picked at random are not trained on: they, and the rows that the first fit held
    out, are what both versions are compared on. An item on which people disagree evenly is left out.

    Args:
        settings: of the server; `data` is the table that a table model was fitted to.
        store: with labels and versions.
        force: make it active in any case.
        person_id: who asked for it.
        say: is told how it goes.
        progress: show bars.
    """
    registry = Registry(settings, store)
    record = store.versions.active(registry.name)
    if record is None:
        record = registry.open().record
    check_refit(settings, record)
    labelled = [item for item in store.overview.labelled() if item.agreed is not None]
    if not labelled:
        raise ValueError("there are no labels to learn from.")
    say(f"Refit of version {record.version} with {len(labelled):,} labelled items.")
    work = _table if record.kind == "table" else _images
    folder = registry.folder_of(record)
    registry.versions_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    number = store.versions.all(registry.name)[0].version + 1
    source = f"{number:04d}-{store.now():.0f}"
    target = registry.versions_folder / source
    comparison = work(settings, folder, labelled, target, say, progress)
    told = {**asdict(comparison), "labels": len(labelled)}
    model = _loaded(settings, target)
    made = store.versions.add(
        name=registry.name,
        kind=record.kind,
        task=record.task,
        digest=model.digest,
        source=source,
        about=model.about,
        parent=record.version,
        comparison=_plain(told),
    )
    activated = comparison.better or force
    if activated:
        why = comparison.why if comparison.better else "by force"
        store.versions.activate(made, person_id=person_id, why=why)
    answers = "it answers now" if activated else "it does not answer"
    say(f"Version {made.version}: {comparison.why}; {answers}.")
    return RefitResult(
        made.version,
        record.version,
        len(labelled),
        comparison.better,
        activated,
        comparison.why,
        _plain(told),
    )


def refit_apart(settings: ServeSettings, force: bool, person_id: int | None) -> RefitResult:
    """`refit` with a store of its own, for another process."""
    with Store(settings.url) as store:
        return refit(settings, store, force=force, person_id=person_id)


def _loaded(settings: ServeSettings, folder: Path) -> Any:
    from bayesdrop.serve.served.loading import load_model

    return load_model(settings, folder)


def _plain(value: Any) -> Any:
    """Without what JSON cannot hold."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


# tables


def _table(
    settings: ServeSettings, folder: Path, labelled: list[Item], target: Path, say: Say, progress: bool
) -> RefitDecision:
    pandas = require("pandas", extra="tables", owner="refit")
    require("matplotlib.figure", extra="plot", owner="refit")
    old = load_table_model(folder)
    schema = old.schema
    more = typed_frame(frame_of([item.data for item in labelled], schema), schema, "the labelled items")
    values = [item.agreed for item in labelled]
    cells = np.empty(len(values), dtype=object)
    cells[:] = [str(value) for value in values] if schema.task == "classification" else values
    more[schema.target] = cells if schema.task == "classification" else cells.astype(np.float64)
    random = np.array([item.random for item in labelled], dtype=bool)
    assert settings.data is not None
    table = open_table(settings.data).read()
    found = refit_table(old, table, pandas.DataFrame(more), random, say=say, progress=progress)
    report = fit_evaluation(found.fitted).report(f"{settings.model_name}: {schema.target}")
    save_table_model(found.fitted.model, target, report=report)
    return found.comparison


# images


def _images(
    settings: ServeSettings, folder: Path, labelled: list[Item], target: Path, say: Say, progress: bool
) -> RefitDecision:
    old = load_image_model(folder)
    if old.images is None or old.labels is None or old.held is None:
        raise ValueError("the model keeps no images, so that it cannot be refitted: save it with them.")
    places = {name: place for place, name in enumerate(old.classes)}
    known = [item for item in labelled if str(item.agreed) in places]
    # Images that earlier refits added are among the labelled ones.
    own = old.about.get("own_images", len(old.images))
    if known:
        grey = old.channels == 1
        pixels = torch.from_numpy(
            np.stack([as_pixels(item.data["image"], old.size, grey=grey) for item in known])
        )
    else:
        pixels = old.images[:0]
    added = torch.tensor([places[str(item.agreed)] for item in known], dtype=torch.long)
    random = torch.tensor([item.random for item in known], dtype=torch.bool)
    images = torch.cat([old.images[:own], pixels])
    labels = torch.cat([old.labels[:own], added])
    held = torch.cat([old.held[:own], random])
    recipe = {"epochs": 20, "lr": 1e-3, "batch_size": 64, "weight_decay": 1e-4, "length_scale": 1e-2}
    recipe |= {"seed": 0} | dict(old.recipe)
    model = copy.deepcopy(old.model)
    say(f"Training on {int((~held).sum()):,} images.")
    fit(
        model,
        (old.normalised(images[~held]), labels[~held]),
        _objective(model, int((~held).sum()), float(recipe["length_scale"])),
        epochs=int(recipe["epochs"]),
        lr=float(recipe["lr"]),
        weight_decay=float(recipe["weight_decay"]),
        batch_size=int(recipe["batch_size"]),
        seed=int(recipe["seed"]),
        progress=progress,
    )
    about = old.about | {"own_images": own}
    new = replace(
        old, model=model.eval(), images=images, labels=labels, held=held, recipe=recipe, about=about
    )
    share = old.about.get("defer_share", 0.05)
    if old.defer_above is not None:
        new = replace(new, defer_above=new.threshold(share) or old.defer_above)
    trials = {}
    first = torch.arange(len(held)) < own
    for name, part in (("held_out", held & first), ("random", held & ~first)):
        if bool(part.any()):
            x, y = old.normalised(images[part]), labels[part]
            trials[name] = Trial.of(_tried(old, x, y), _tried(new, x, y))
    comparison = decided(trials)
    save_image_model(new, target)
    return comparison


def _objective(model: nn.Module, num_data: int, length_scale: float) -> Objective:
    """The negative ELBO of a model with stochastic layers; cross-entropy of one with plain dropout."""
    likelihood = Categorical()
    if any(isinstance(part, StochasticModule) for part in model.modules()):
        return NegativeELBO(likelihood, num_data=num_data, length_scale=length_scale)

    def cross_entropy(network: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return -likelihood.log_prob(network(x), y).mean()

    return cross_entropy


def _tried(model: ImageModel, x: torch.Tensor, y: torch.Tensor) -> tuple[Any, dict[str, float]]:
    found = predict(model.model, x, num_draws=model.num_draws, likelihood=Categorical(), batch_size=256)
    given = found.probs.double()[torch.arange(len(y)), y].clamp_min(1e-6)
    scores = given.log().numpy()
    right = float((found.probs.argmax(1) == y).double().mean())
    return scores, {"log_score": float(scores.mean()), "accuracy": right}
