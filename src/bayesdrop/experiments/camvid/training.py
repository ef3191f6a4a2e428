"""Two kinds of pieces: weights that all methods of a seed start from, and one method trained from them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import RMSprop
from torch.optim.lr_scheduler import LambdaLR

from bayesdrop.experiments.camvid.frames import as_inputs, load_frames
from bayesdrop.experiments.camvid.loss import PixelLoss
from bayesdrop.experiments.camvid.scale import Scale
from bayesdrop.experiments.camvid.scoring import find_entropy_range, make_maps, score
from bayesdrop.experiments.pieces import Piece, PieceCache, run_pieces
from bayesdrop.fit import RandomCrop, RandomFlip, fit
from bayesdrop.layers import (
    BernoulliNoise,
    ConcreteNoise,
    GaussianNoise,
    LearnableNoise,
    StochasticLayer,
    freeze_batch_norm,
    rates,
)
from bayesdrop.models import fc_densenet

__all__ = ["NOISES", "mean_rates", "network", "run_methods"]

NOISES: Mapping[str, Callable[..., nn.Module]] = {
    "bernoulli": BernoulliNoise,
    "gaussian": GaussianNoise,
    "concrete": ConcreteNoise,
    "learnable": LearnableNoise,
}
#: the folder of the shared weights, which is both experiments'
WEIGHTS = "camvid-weights"
#: Adam's is decoupled. RMSprop takes c for (c / 2) |W|^2: the published recipe has 1e-4 |W|^2
_ADAM_DECAY, _RMSPROP_DECAY = 1e-2, 2e-4
#: what RMSprop's learning rates are multiplied by after every epoch
_RMSPROP_FALL = 0.995


def run_methods(
    config: Scale, methods: Mapping[str, Mapping[str, Any]], *, cache: PieceCache, progress: bool
) -> dict[str, list[Piece]]:
    """The pieces of every method, seed by seed: found, or trained from the shared weights of the seed.

    Args:
        config: of the experiment; what all methods have in common.
        methods: the settings of each, by name; see `_Method`.
        cache: of the experiment.
        progress: show bars.
    """
    folder = cache.folder.parent
    # Weights that all methods of both experiments start from, beside their own pieces.
    shared = PieceCache(WEIGHTS, folder=folder, fresh=cache.fresh, processes=cache.processes)
    warm = [config.warm_key(seed) for seed in config.run_seeds]
    run_pieces(
        warm, _Pretrain(str(folder), resume=not cache.fresh), cache=shared, progress=progress,
        label="Shared weights",
    )  # fmt: skip
    keys = [
        {**config.method_key(seed), **settings} for settings in methods.values() for seed in config.run_seeds
    ]
    pieces = run_pieces(keys, _Method(str(folder)), cache=cache, progress=progress, label="Methods")
    count = config.seeds
    return {name: pieces[place * count : (place + 1) * count] for place, name in enumerate(methods)}


def network(
    warm: Mapping[str, Any], noise: str | None = None, p: float = 0.0, where: str = "all", **options: Any
) -> nn.Module:
    """FC-DenseNet with new weights.

    Args:
        warm: a key of shared weights.
        noise: one of `NOISES`; None for none.
        p: of a fixed rate, or where a learned one starts.
        where: the noise is in "all" layers, or in those of the "middle".
        options: of the noise.
    """
    shape: dict[str, Any] = {"depth": warm["depth"]}
    if warm["depth"] is None:
        shape = {name: warm[name] for name in ("blocks", "middle", "growth")}
    if noise is None:
        return fc_densenet(**shape, first=warm["first"], p=0.0)
    made: Any = {"where": where, "noise": partial(NOISES[noise], **options)}
    return fc_densenet(**shape, first=warm["first"], p=p, **made)


def mean_rates(net: nn.Module) -> dict[str, float]:
    """The mean drop rate of every noise, by its path, in the order in which a frame passes through them."""
    found = rates(net)
    return {path: float(found[path].mean()) for path in sorted(found, key=_place)}


def _place(path: str) -> tuple[int, ...]:
    """From a module's path its place in the pass: levels down, each before its transition; middle; up."""
    part, *inside = path.split(".")
    numbers = [int(number) for number in inside]
    if part == "shrink":
        return (0, numbers[0], 1)
    return {"down": (0, numbers[0], 0), "middle": (1,), "up": (2, numbers[0])}[part] + tuple(numbers)


class _Pretrain:
    """Computes a piece: a network without dropout, trained on crops. Goes on where it was interrupted.

    The piece has the weights by name, and the CPU "seconds" that they took.
    """

    def __init__(self, folder: str, *, resume: bool) -> None:
        self.folder = folder
        self.resume = resume

    def __call__(self, warm: Mapping[str, Any]) -> dict[str, Any]:
        path = PieceCache(WEIGHTS, folder=self.folder).path(warm).with_suffix(".checkpoint")
        path.parent.mkdir(parents=True, exist_ok=True)
        watch = _Watch(path.with_suffix(".seconds"), go_on=self.resume and path.exists())
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(warm["seed"])
            net = network(warm)
        augment = [RandomFlip(), *([] if warm["crop"] is None else [RandomCrop(tuple(warm["crop"]))])]
        loss = PixelLoss(warm["num_train"], temper=0.0)
        _fit(
            net, warm, loss, epochs=warm["warm_epochs"], lr=warm["warm_lr"], rate_lr=None, augment=augment,
            weight_decay=_RMSPROP_DECAY if warm["solver"] == "rmsprop" else _ADAM_DECAY,
            checkpoint=path, resume=self.resume, callback=lambda epoch, history: watch.write(),
        )  # fmt: skip
        state = {name: value.numpy() for name, value in net.state_dict().items()}
        found = {"seconds": watch.seconds(), **state}
        for file in (path, watch.path):
            file.unlink(missing_ok=True)
        return found


class _Watch:
    """CPU seconds of a piece, those before an interruption too."""

    def __init__(self, path: Path, *, go_on: bool) -> None:
        self.path = path
        self._before = float(path.read_text()) if go_on and path.exists() else 0.0
        self._start = time.process_time()

    def seconds(self) -> float:
        return self._before + time.process_time() - self._start

    def write(self) -> None:
        self.path.write_text(f"{self.seconds():.1f}")


class _Method:
    """Computes a piece: one method trained from the shared weights of its seed, and tested.

    A key has `noise` (None, or one of `NOISES`), `p`, `where`, `options`, `temper` and `weight` (see
    `PixelLoss`); `scored` asks for scores, and `patches` for PAvPU among them, whose thresholds come from the
    validation frames; `maps` is the number of frames whose maps are kept.

    The piece has the CPU "seconds" of training, the shared weights' included; "rates" by layer, with their
    "paths"; what `score` gives, named "single: ..." for the pass without noise and "draws: ..."; and maps.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, key: Mapping[str, Any]) -> dict[str, Any]:
        start = time.process_time()
        warm = key["warm"]
        shared = PieceCache(WEIGHTS, folder=self.folder).find(warm)
        if shared is None:
            raise RuntimeError("CamVid: the shared weights are gone. Run the experiment again.")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(warm["seed"] + 1)
            net = network(warm, key["noise"], key["p"], key["where"], **key["options"])
        load_shared(net, shared)
        freeze_batch_norm(net, inplace=True)
        loss = PixelLoss(warm["num_train"], key["temper"], key["weight"])
        _fit(
            net, warm, loss, epochs=key["epochs"], lr=key["lr"], rate_lr=key["rate_lr"],
            augment=[RandomFlip()], weight_decay=0.0,
        )  # fmt: skip
        trained = time.process_time() - start
        found: dict[str, Any] = {"seconds": float(shared["seconds"]) + trained}
        learned = mean_rates(net)
        if learned:
            found |= {"paths": list(learned), "rates": torch.tensor(list(learned.values()))}
        for name, num_draws in (("single", None), ("draws", key["num_draws"])):
            if key["scored"] and (num_draws is None or key["noise"] is not None):
                found |= {f"{name}: {what}": value for what, value in _scores(net, key, num_draws).items()}
        if key["maps"] and key["noise"] is not None:
            x, y = _part("test", warm, key["num_test"])
            found |= make_maps(net, x, y, key["maps"], num_draws=key["num_draws"], seed=warm["seed"])
        return found


def load_shared(net: nn.Module, state: Mapping[str, Any]) -> None:
    """Put the shared weights into a network; only parameters of its noise may be missing among them."""
    weights = {name: torch.from_numpy(value) for name, value in state.items() if name != "seconds"}
    missing, unknown = net.load_state_dict(weights, strict=False)
    own = tuple(f"{path}." for path, part in net.named_modules() if isinstance(part, StochasticLayer))
    lost = [name for name in missing if not name.startswith(own)] + list(unknown)
    if lost:
        raise RuntimeError(f"CamVid: the shared weights are of another network; {', '.join(lost[:3])}.")


def _scores(net: nn.Module, key: Mapping[str, Any], num_draws: int | None) -> dict[str, Any]:
    warm = key["warm"]
    options: dict[str, Any] = {"num_draws": num_draws, "seed": warm["seed"]}
    if key["patches"]:
        held_out = _part("val", warm, key["num_validation"])
        options["entropy_range"] = find_entropy_range(net, *held_out, **options)
    return score(net, *_part("test", warm, key["num_test"]), **options)


def _part(part: Any, warm: Mapping[str, Any], count: int) -> tuple[Tensor, Tensor]:
    """`count` frames of a part, as bytes, and their labels, as ints; evenly spread over its films."""
    x, y = load_frames(part, warm["shrink"])
    chosen = torch.linspace(0, len(x) - 1, min(count, len(x))).round().long()
    return x[chosen], y[chosen].long()


def _fit(
    net: nn.Module,
    warm: Mapping[str, Any],
    loss: PixelLoss,
    *,
    epochs: int,
    lr: float,
    rate_lr: float | None,
    **options: Any,
) -> None:
    x, y = _part("train", warm, warm["num_train"])
    if warm["solver"] == "rmsprop":
        steps = -(-len(x) // warm["batch_size"])
        options |= {"optimizer": RMSprop, "scheduler": lambda made: LambdaLR(made, _Fall(steps))}
    else:
        options["scheduler"] = "one-cycle"
    fit(
        net, (as_inputs(x), y), loss, epochs=epochs, batch_size=warm["batch_size"], lr=lr, rate_lr=rate_lr,
        channels_last=True, seed=warm["seed"], progress=False, **options,
    )  # fmt: skip
    net.eval()


class _Fall:
    """The factor of RMSprop's learning rates at a step, `steps` being those of an epoch."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def __call__(self, step: int) -> float:
        return float(_RMSPROP_FALL ** (step // self.steps))
