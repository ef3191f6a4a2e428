"""Gal, Hron & Kendall (2017), section 1: adversarial digits, and whether dropout's uncertainty sees them.

"Well-calibrated uncertainty is crucial for many tasks in deep learning. From the detection of adversarial
examples [...]": the first use that the paper names, of which it has no numbers.

Images of digits are changed within a ball of radius eps, so that a network is wrong about them. Every
attacker knows the weights; they differ in what else they know and want:

- *FGSM* and *PGD* climb the loss of the averaged weights: they do not know of dropout;
- *aware*: they climb the mean over drawn functions, so that what dropout adds is in the gradient;
- *sure*: they do not only lower the likelihood of the right digit but raise that of one wrong digit, which
  leaves no uncertainty. *Aware and sure* is the fair test of a defence that looks at uncertainty.

The networks are a LeNet without dropout, one with a rate of 0.5 in front of every layer but the first, and
one with Concrete rates. What is asked: how many digits are still right; whether the entropy, or the mutual
information, of the draws tells attacked images from clean ones, and wrong from right among both; and
whether the probability of the averaged weights (max softmax, one pass) would have done as well. The draws
that judge are not those that the attacker saw. "Unseen" are attacked images that the network is wrong about
while its uncertainty is not above a limit that 5 % of the clean ones exceed.

What dropout's uncertainty does *not* protect from stands in the claims, and on the page about attacks.
`dataset=digits` has the small images of scikit-learn and a perceptron, and needs no download.
"""

from __future__ import annotations

from dataclasses import dataclass

from bayesdrop.data import DataNotFound
from bayesdrop.experiments.adversarial_mnist.images import load_images
from bayesdrop.experiments.adversarial_mnist.picture import draw
from bayesdrop.experiments.adversarial_mnist.report import gather_arrays, make_claims, make_notes, make_rows
from bayesdrop.experiments.adversarial_mnist.trial import NETWORKS, attacked_and_judged
from bayesdrop.experiments.pieces import PieceCache, run_groups
from bayesdrop.experiments.row import Outcome
from bayesdrop.experiments.settings import all_but

__all__ = ["PRESETS", "SMOKE", "Config", "draw", "run"]

#: the first weights of revision 1 did not follow the seed
REVISION = 2


@dataclass(frozen=True)
class Config:
    """Three networks, three radii, three seeds."""

    dataset: str = "mnist"
    radii: tuple[float, ...] = (0.1, 0.2, 0.3)
    norm: str = "linf"
    steps: int = 15  #: of PGD
    attack_draws: int = 12  #: draws in one gradient of an attacker who knows of dropout
    num_images: int = 300  #: that are attacked
    num_draws: int = 30  #: of the predictions that are judged
    p: float = 0.5
    p_init: float = 0.1  #: where Concrete rates start
    length_scale: float = 1e-2
    num_train: int = 20_000
    epochs: int = 5
    batch_size: int = 128
    lr: float = 1e-3
    num_seeds: int = 3
    seed: int = 0


SMOKE = Config(
    dataset="digits", radii=(0.1, 0.3), steps=2, attack_draws=2, num_images=30, num_draws=4, num_train=300,
    epochs=3, num_seeds=2,
)  # fmt: skip
PRESETS = {
    "quick": Config(
        radii=(0.1, 0.3), steps=6, attack_draws=4, num_images=100, num_draws=10, num_train=4000, epochs=2,
        num_seeds=2,
    )
}  # fmt: skip


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """Train and attack every network; without the data nothing is run."""
    try:
        load_images(config.dataset)
    except DataNotFound as error:
        return Outcome(make_rows({}, config), notes=(error.brief,))
    common, seeds = all_but(config, "num_seeds", "seed"), range(config.seed, config.seed + config.num_seeds)
    groups = {
        network: [{"network": network, "seed": seed, **common} for seed in seeds] for network in NETWORKS
    }
    found = run_groups(groups, attacked_and_judged, cache=cache, progress=progress, label="Networks")
    return Outcome(
        make_rows(found, config), make_claims(found, config), gather_arrays(found, config), make_notes()
    )
