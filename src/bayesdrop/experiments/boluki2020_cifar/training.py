"""Two kinds of pieces: weights that all methods of a seed start from, and one method trained from them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bayesdrop import metrics
from bayesdrop.data import load_cifar10
from bayesdrop.experiments.boluki2020_cifar.heads import METHODS, network
from bayesdrop.experiments.caffe import cross_entropy
from bayesdrop.experiments.one_pass import one_pass
from bayesdrop.experiments.pieces import PieceCache
from bayesdrop.fit import RandomCrop, RandomFlip, fit
from bayesdrop.layers import StochasticLayer, rates
from bayesdrop.likelihoods import Categorical
from bayesdrop.objectives import NegativeELBO
from bayesdrop.predict import Prediction, predict

__all__ = [
    "AUGMENT",
    "CifarSplit",
    "as_inputs",
    "load_split",
    "pretrain",
    "pretrained",
    "train_and_score",
    "weights",
]

#: mean and standard deviation of red, green and blue over the training images
_MEAN, _STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
#: images of a training batch of 10,000 that are for training; the rest are for validation
_TRAINING_SHARE = 9_000
_WEIGHT_DECAY = 5e-3
_LENGTH_SCALE = 1e-2
#: how all networks see the training images
AUGMENT = (RandomFlip(), RandomCrop(32, padding=4))


class CifarSplit:
    """Standardised images: the first 9,000 of each training batch for training, the rest for validation.

    `train`, `validation` and `test` are images (N, 3, 32, 32) and labels (N,).
    """

    def __init__(self, num_train: int, num_validation: int, num_test: int) -> None:
        batches = max(
            math.ceil(num_train / _TRAINING_SHARE), math.ceil(num_validation / (10_000 - _TRAINING_SHARE))
        )
        data = load_cifar10(num_batches=min(batches, 5))
        place = torch.arange(len(data.x_train)) % 10_000
        train = (place < _TRAINING_SHARE).nonzero()[:, 0][:num_train]
        held_out = (place >= _TRAINING_SHARE).nonzero()[:, 0][:num_validation]
        self.train = (as_inputs(data.x_train[train]), data.y_train[train])
        self.validation = (as_inputs(data.x_train[held_out]), data.y_train[held_out])
        self.test = (as_inputs(data.x_test[:num_test]), data.y_test[:num_test])


def load_split(warm: Mapping[str, Any], num_test: int = 10_000) -> CifarSplit:
    """The images of a run, `warm` being the key of its shared weights."""
    return CifarSplit(warm["num_train"], warm["num_validation"], num_test)


def as_inputs(images: Tensor) -> Tensor:
    """Images (N, 3, 32, 32) of bytes as inputs of the same shape, standardised colour by colour."""
    mean, std = (torch.tensor(values).reshape(3, 1, 1) for values in (_MEAN, _STD))
    return (images.float() / 255 - mean) / std


def pretrain(warm: Mapping[str, Any]) -> dict[str, Any]:
    """A piece: a network without dropout. Returns its weights by name, and the CPU "seconds" they took."""
    start = time.process_time()
    split = load_split(warm)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(warm["seed"])
        net = network(warm, METHODS["none"], 0.0)
    _fit(net, split, warm, epochs=warm["warm_epochs"], lr=warm["warm_lr"], rate_lr=None)
    state = {name: value.numpy() for name, value in net.state_dict().items()}
    return {"seconds": time.process_time() - start, **state}


def weights(folder: str | Path, *, fresh: bool = False, processes: int = 1) -> PieceCache:
    """The cache of the shared weights, in the folder of all experiments' pieces."""
    return PieceCache("boluki2020-cifar-weights", folder=folder, fresh=fresh, processes=processes)


def pretrained(warm: Mapping[str, Any], cache: PieceCache) -> nn.Sequential:
    """The network without dropout of a seed, in eval mode: found, or trained.

    Args:
        warm: key of the shared weights.
        cache: of the experiment that asks.
    """
    state = weights(cache.folder.parent, fresh=cache.fresh).get(warm, lambda: pretrain(warm))
    net = network(warm, METHODS["none"], 0.0)
    net.load_state_dict({name: torch.from_numpy(state[name]) for name in net.state_dict()})
    return net.eval()


def train_and_score(key: Mapping[str, Any], *, folder: str) -> dict[str, Any]:
    """A piece: one method trained from the shared weights of its seed, and its scores on the test images.

    Args:
        key: method, settings, and `warm`, the key of the shared weights.
        folder: where all experiments keep their pieces.

    Returns: what `_scored` gives, for MC dropout also of one pass, with "single " before each name; "rates 1"
    and "rates 2" of the two layers; the CPU "seconds" of training, shared epochs included.
    """
    start = time.process_time()
    warm, method = key["warm"], METHODS[key["method"]]
    split = load_split(warm, key["num_test"])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(warm["seed"] + 1)
        net = network(warm, method, key["p"])
    shared = weights(folder).find(warm)
    if shared is None:
        raise RuntimeError("boluki2020-cifar: the shared weights are gone. Run the experiment again.")
    # Only convolutions are taken. The head is new: all methods of a seed start with the same weights there.
    features = {
        name: torch.from_numpy(value) for name, value in shared.items() if name.startswith("features")
    }
    net.load_state_dict(features, strict=False)
    _fit(net, split, warm, epochs=key["epochs"], lr=key["lr"], rate_lr=key["rate_lr"])
    seconds = time.process_time() - start
    scores = _scores(net, split, key)
    return {"seconds": float(shared["seconds"]) + seconds, **scores}


def _fit(
    net: nn.Module,
    split: CifarSplit,
    warm: Mapping[str, Any],
    *,
    epochs: int,
    lr: float,
    rate_lr: float | None,
) -> None:
    has_noise = any(isinstance(part, StochasticLayer) for part in net.modules())
    objective = NegativeELBO(Categorical(), num_data=len(split.train[0])) if has_noise else cross_entropy
    fit(
        net, split.train, objective, epochs=epochs, batch_size=warm["batch_size"], lr=lr, rate_lr=rate_lr,
        weight_decay=_WEIGHT_DECAY, scheduler="one-cycle", augment=AUGMENT, channels_last=True,
        seed=warm["seed"], progress=False,
    )  # fmt: skip
    net.eval()


def _scores(net: nn.Module, split: CifarSplit, key: Mapping[str, Any]) -> dict[str, Any]:
    found = _scored(split, lambda x: _predicted(net, x, key))
    for place, rate in enumerate(rates(net).values(), 1):
        found[f"rates {place}"] = rate.reshape(-1).detach()
    if key["method"] == "bernoulli":
        # Regular dropout is the same network by one pass.
        single = _scored(split, lambda x: one_pass(net, x, Categorical(), batch_size=500))
        found |= {f"single {name}": value for name, value in single.items()}
    return found


def _scored(split: CifarSplit, predicted: Callable[[Tensor], Prediction]) -> dict[str, Any]:
    """Scores of predictions of the test images; PAvPU's thresholds span the entropies of validation."""
    (x, y), (held_out, _) = split.test, split.validation
    prediction = predicted(x)
    certain = metrics.pavpu(
        prediction, y, num_thresholds=21, entropy_range=metrics.entropy_range(predicted(held_out))
    )
    curve = metrics.reliability_curve(prediction, y)
    return {
        "accuracy": float(metrics.accuracy(prediction, y)),
        "log_likelihood": float(metrics.mean_log_likelihood(prediction, y)),
        "ece": float(metrics.expected_calibration_error(prediction, y)),
        "mean_pavpu": float(certain.mean),
        "auroc": float(metrics.misclassification_auroc(prediction, y, score="entropy")),
        "pavpu": certain.pavpu,
        "accurate": certain.accurate_if_certain,
        "uncertain": certain.uncertain_if_inaccurate,
        "confidence": curve.confidence,
        "right": curve.accuracy,
    }


def _predicted(net: nn.Module, x: Tensor, key: Mapping[str, Any]) -> Prediction:
    if METHODS[key["method"]].layer is None:
        return one_pass(net, x, Categorical(), batch_size=500)
    return predict(
        net, x, num_draws=key["num_draws"], seed=key["warm"]["seed"], likelihood=Categorical(),
        batch_size=500, keep_draws=False,
    )  # fmt: skip
