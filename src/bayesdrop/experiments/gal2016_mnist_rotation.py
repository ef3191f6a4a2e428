"""Gal & Ghahramani (2016), figure 4: LeNet with MC dropout on an image of a 1 that is turned.

A digit that turns leaves the data step by step. Twelve rotations of one test image go through LeNet with
dropout before its last layer, 100 times each; the picture shows what goes into the softmax and what comes
out of it, for the three classes with the most probability. A class may have softmax outputs near 1 and be as
uncertain as can be.

The paper names neither the image nor the angles nor the direction. Our image is the test image that LeNet is
surest of among the ones; it is turned in equal steps, in both directions. The paper's last images are taken
for sevens, so that its last angle cannot be 180 degrees, where a bar is a 1 again: the default goes so far,
and its classes are read up to the image that is a 1 again. The preset "figure" ends at 135 degrees, where a
bar that is turned anticlockwise leans as the stem of a 7 does. (That was chosen when a run to 180 degrees had
been seen, whose sevens were from 98 to 131 degrees.) LeNet is trained for 8 epochs instead of a million
steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bayesdrop import metrics
from bayesdrop.data.mnist import MNIST, load_mnist
from bayesdrop.experiments.digits import Recipe, as_inputs, trained_lenet
from bayesdrop.experiments.one_pass import one_pass
from bayesdrop.experiments.pieces import PieceCache
from bayesdrop.experiments.row import Claim, Outcome, Row
from bayesdrop.likelihoods import Categorical
from bayesdrop.plots import new_figure, plot_class_uncertainty, plot_images, plot_spread
from bayesdrop.predict import Prediction, predict

__all__ = ["PRESETS", "SMOKE", "Config", "draw", "run"]

#: the first weights of revision 1 did not follow the seed
REVISION = 2
#: classes under the twelve pictures of figure 4
PAPER_LABELS = "1 1 1 1 1 5 5 7 7 7 7 7"


@dataclass(frozen=True)
class Config:
    """Both networks of the paper: dropout before the last layer, and after all layers."""

    num_angles: int = 12  #: in each direction, upright included
    last_angle: float = 180.0  #: in degrees, in both directions
    num_draws: int = 100
    test_draws: int = 20  #: for the accuracy on all test images
    epochs: int = 8
    batch_size: int = 64
    num_train: int = 60_000
    num_test: int = 10_000
    seed: int = 0


SMOKE = Config(num_angles=4, num_draws=5, test_draws=3, epochs=1, batch_size=32, num_train=320, num_test=300)
#: "paper" has a million steps of 64 images: days on a CPU
PRESETS = {
    "quick": Config(epochs=1, num_train=12_000, num_test=2000),
    "figure": Config(last_angle=135.0),
    "paper": Config(epochs=1067, last_angle=135.0),
}


def turned(image: Tensor, degrees: Tensor) -> Tensor:
    """An image (28, 28) of bytes, turned anticlockwise about its centre by each angle. Shape (A, 28, 28)."""
    angle = torch.deg2rad(degrees)
    cosine, sine = angle.cos(), angle.sin()
    zero = torch.zeros_like(angle)
    # The grid says where each pixel of the result comes from, with y pointing down.
    theta = torch.stack([torch.stack([cosine, -sine, zero], 1), torch.stack([sine, cosine, zero], 1)], 1)
    size = (len(degrees), 1, *image.shape)
    grid = F.affine_grid(theta, list(size), align_corners=False)
    source = image.float().expand(size)
    return F.grid_sample(source, grid, align_corners=False).squeeze(1)


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """The test accuracy of both networks, and what they say of the turned digit."""
    data = load_mnist()
    rows: list[Row] = []
    arrays: dict[str, Any] = {}
    claims: list[Claim] = []
    image: Tensor | None = None
    places: tuple[Literal["last", "all"], ...] = ("last", "all")
    for where in places:
        recipe = Recipe(
            where=where,
            epochs=config.epochs,
            batch_size=config.batch_size,
            num_train=config.num_train,
            seed=config.seed,
        )
        net = trained_lenet(recipe, cache, progress=progress)
        key = {"part": "test", "recipe": recipe, "draws": config.test_draws, "rows": config.num_test}
        tested = cache.get(key, lambda net=net: _tested(net, data, config))  # type: ignore[misc]
        name = "dropout before the last layer" if where == "last" else "dropout after all layers"
        error = (tested["accuracy"] * (100 - tested["accuracy"]) / config.num_test) ** 0.5
        rows += [
            Row(name, "test accuracy, MC dropout (%)", None, tested["accuracy"], error),
            Row(name, "test accuracy, averaged weights (%)", None, tested["standard"], error),
        ]
        if image is None:
            image = data.x_test[int(tested["surest"])]
            arrays["image"] = image
        degrees = torch.linspace(-config.last_angle, config.last_angle, 2 * config.num_angles - 1)
        pictures = turned(image, degrees)
        prediction = predict(
            net, as_inputs(pictures), num_draws=config.num_draws, seed=config.seed, likelihood=Categorical(),
            keep_draws=True,
        )  # fmt: skip
        arrays.update({"degrees": degrees, "pictures": pictures.round().to(torch.uint8)})
        arrays.update(_described(where, prediction))
        claims += _claims(name, prediction, degrees)
    claims.append(_all_layers(rows))
    notes = (
        f"The paper's classes: {PAPER_LABELS}. Its image and its angles are not known.",
        "Angles are anticlockwise; those below 0 are clockwise.",
        "The envelope of a class is its mean softmax input, plus and minus two standard deviations.",
    )
    return Outcome(rows, claims, arrays, notes=notes)


def _all_layers(rows: list[Row]) -> Claim:
    """The claim about dropout after all layers, from the accuracies of both networks."""
    last_mc, last, all_mc, everywhere = (row.ours or 0.0 for row in rows)
    return Claim(
        "Gal & Ghahramani (2015), 4.2: dropout after every layer is inferior with averaged weights, and much "
        "better with MC dropout.",
        f"test accuracy {everywhere:.2f} % with averaged weights and {all_mc:.2f} % with MC dropout; "
        f"{last:.2f} % and {last_mc:.2f} % with dropout before the last layer alone.",
        everywhere < last and all_mc > everywhere,
    )


def _tested(net: torch.nn.Module, data: MNIST, config: Config) -> dict[str, Any]:
    """A piece: test accuracies, and the number of the test image that is most surely a 1."""
    x, y = as_inputs(data.x_test[: config.num_test]), data.y_test[: config.num_test]
    prediction = predict(
        net, x, num_draws=config.test_draws, seed=config.seed, likelihood=Categorical(), batch_size=500,
        keep_draws=False,
    )  # fmt: skip
    standard = one_pass(net, x, Categorical(), batch_size=500)
    ones = torch.where(y == 1, prediction.probs[:, 1] - prediction.variation_ratio, -1.0)
    return {
        "accuracy": 100 * float(metrics.accuracy(prediction, y)),
        "standard": 100 * float((standard.label == y).double().mean()),
        "surest": int(ones.argmax()),
    }


def _described(where: str, prediction: Prediction) -> dict[str, Any]:
    """Arrays of the picture: (T, A, 3) logits and probabilities of three classes, (A,) labels and scores."""
    logits = prediction.draws
    probs = logits.softmax(-1)
    # The three classes with the most probability over all angles, from the smallest digit to the largest.
    order = prediction.probs.sum(0).argsort(descending=True)[:3].sort().values
    return {
        f"{where} classes": order,
        f"{where} logits": logits[..., order],
        f"{where} probs": probs[..., order],
        f"{where} label": prediction.label,
        f"{where} entropy": prediction.entropy,
        f"{where} mutual information": prediction.mutual_information,
        f"{where} variation ratio": prediction.variation_ratio,
    }


def directions(degrees: Tensor) -> dict[str, Tensor]:
    """By direction, places of its angles in `degrees`, from upright to the last."""
    middle = len(degrees) // 2
    places = torch.arange(len(degrees))
    return {"anticlockwise": places[middle:], "clockwise": places[: middle + 1].flip(0)}


def turns_into_a_seven(labels: Tensor) -> bool:
    """Whether the classes begin with a 1 and end with a 7, or come to a 7 before they are a 1 again.

    >>> turns_into_a_seven(torch.tensor([1, 1, 5, 7, 7, 1])), turns_into_a_seven(torch.tensor([1, 7, 5, 1]))
    (True, False)
    """
    classes = [int(label) for label in labels]
    start = next((place for place, label in enumerate(classes) if label != 1), len(classes))
    stop = next((place for place in range(start, len(classes)) if classes[place] == 1), len(classes))
    return 0 < start < stop and classes[stop - 1] == 7


def envelopes_intersect(logits: Tensor) -> Tensor:
    """Whether mean - 2 std of the top class's logits is below another's mean + 2 std. (T, A, K) -> (A,)."""
    mean, std = logits.mean(0), logits.std(0)
    top = mean.argmax(-1, keepdim=True)
    lower = (mean - 2 * std).gather(1, top)
    upper = (mean + 2 * std).scatter(1, top, -torch.inf)
    return (upper > lower).any(1)


def _claims(name: str, prediction: Prediction, degrees: Tensor) -> list[Claim]:
    logits, labels = prediction.draws, prediction.label
    probs = logits.softmax(-1)
    spread = probs.std(0).amax(-1)
    upright, at = len(degrees) // 2, int(spread.argmax())
    reach = probs.amax(0) - probs.amin(0)
    top = logits.gather(2, labels.expand(logits.shape[:2]).unsqueeze(-1))
    sure = (probs.amax((0, 2)) > 0.9) & (prediction.variation_ratio > 0.1)
    angle = float(degrees[at])
    halves = directions(degrees)
    classes = {way: " ".join(str(int(label)) for label in labels[places]) for way, places in halves.items()}
    crossing = envelopes_intersect(logits)
    count = len(halves["clockwise"])
    # Images 6 and 7 of 12.
    middle = {way: places[[(count - 1) // 2, count // 2]] for way, places in halves.items()}
    crossed = {way: bool(crossing[places].all()) for way, places in middle.items()}
    between = ", ".join(
        f"{abs(float(degrees[place])):.0f} degrees {way} {'do' if crossing[place] else 'do not'}"
        for way, places in middle.items()
        for place in places
    )
    return [
        Claim(
            "5.2: for images that leave the data the softmax output's uncertainty can be as large as the "
            "entire space.",
            f"{name}: standard deviation of the softmax over passes {float(spread[upright]):.4f} upright, at "
            f"most {float(spread.max()):.3f}, at {angle:.0f} degrees, where the output of one class goes "
            f"over a range of {float(reach[at].max()):.2f}.",
            bool(spread.max() > 3 * spread[upright] and reach[at].max() > 0.9),
        ),
        Claim(
            "5.2: a softmax output near 1 may come with large uncertainty of its input.",
            f"{name}: at {int(sure.sum())} of {len(degrees)} angles some pass gives a class more than 0.9 "
            f"although more than 10 % of passes vote for another. Logit of the top class at {angle:.0f} "
            f"degrees: {float(top[:, at].mean()):.1f} +- {float(top[:, at].std()):.1f}.",
            bool(sure.any()),
        ),
        Claim(
            "5.2: upright the network is certain that the image is a 1.",
            f"{name}: class {int(labels[upright])} with probability "
            f"{float(prediction.probs[upright].max()):.4f}.",
            int(labels[upright]) == 1 and float(prediction.probs[upright, 1]) > 0.95,
        ),
        Claim(
            "5.2, fig. 4a: the envelopes of softmax inputs intersect in the middle images, 6 and 7, and not "
            "in the first.",
            f"{name}: upright they {'do' if crossing[upright] else 'do not'}; at {between}.",
            bool(not crossing[upright] and any(crossed.values())),
        ),
        Claim(
            f"5.2: for the 12 images the model predicts {PAPER_LABELS}: it turns from a 1 into a 7.",
            f"{name}: {'; '.join(f'{way} {told}' for way, told in classes.items())}.",
            any(turns_into_a_seven(labels[places]) for places in halves.values()),
        ),
    ]


def draw(outcome: Outcome) -> Any:
    """Softmax inputs, softmax outputs and uncertainties over the angle, with the digits under the axis."""
    arrays = outcome.arrays
    figure = new_figure(17, 9)
    degrees = np.asarray(arrays["degrees"], dtype=float)
    axes = figure.subplots(4, 2, sharex="col", gridspec_kw={"height_ratios": [4, 4, 3, 1.1]})
    titles = {"last": "Dropout before the last layer", "all": "Dropout after all layers"}
    scores = ("entropy", "mutual information", "variation ratio")
    for column, where in enumerate(("last", "all")):
        names = [f"class {label}" for label in arrays[f"{where} classes"]]
        for row, what in enumerate(("logits", "probs")):
            plot_spread(axes[row, column], degrees, arrays[f"{where} {what}"], names=names)
        axes[0, column].set_title(titles[where])
        low, high = axes[0, column].get_ylim()
        axes[0, column].set_ylim(low, high + 0.18 * (high - low))
        axes[0, column].legend(frameon=False, markerscale=4, loc="upper right", ncols=3)
        found = {name: arrays[f"{where} {name}"] for name in scores}
        plot_class_uncertainty(axes[2, column], degrees, found, scores=scores)
        axes[2, column].legend(frameon=False, fontsize=9)
        labels = [int(label) for label in arrays[f"{where} label"]]
        plot_images(axes[3, column], degrees, arrays["pictures"], texts=labels)
        axes[3, column].set_xlabel("angle (degrees, anticlockwise); the digit, and the class it is given")
    for row, label in enumerate(("softmax input", "softmax output", "nats, or share")):
        axes[row, 0].set_ylabel(label)
        axes[row, 1].set_ylabel("")
    return figure
