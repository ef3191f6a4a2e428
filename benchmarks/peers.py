"""Other libraries' MC dropout on the same networks. Runs in the peers' own environment, called by engine.py.

Each peer is used as its documentation says, on the plain network. What comes back are ratios to an
`eval()` pass timed in this very process, so that they can stand beside the main environment's.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from networks import CASES, best_times, made

Predictor = Callable[[nn.Module, Tensor, int], Callable[[], object]]

# Imported by the peers at start-up for data sets and pictures, and used by nothing that is timed.
_ABSENT = frozenset({"torchvision", "kornia", "timm", "torchseg"})


class _AnyName(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _AnyName(name, (), {})


class _EmptyModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _AnyName(name, (), {})


class _EmptyModules(MetaPathFinder, Loader):
    """Finds an empty module for every name below `_ABSENT`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, is_package=True) if fullname.partition(".")[0] in _ABSENT else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _EmptyModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is in it."""


def torch_uncertainty_batch(net: nn.Module, x: Tensor, num_draws: int, *, on_batch: bool = True) -> Any:
    """`mc_dropout(model, num_estimators)`: the batch is repeated (its default)."""
    from torch_uncertainty.methods import mc_dropout

    ensemble = mc_dropout(net, num_estimators=num_draws, on_batch=on_batch).eval()

    def call() -> object:
        with torch.no_grad():
            draws = ensemble(x).unflatten(0, (num_draws, x.shape[0]))
            return draws.mean(0), draws.var(0)

    return call


def torch_uncertainty_loop(net: nn.Module, x: Tensor, num_draws: int) -> Any:
    """The same with `on_batch=False`."""
    return torch_uncertainty_batch(net, x, num_draws, on_batch=False)


def baal_batch(net: nn.Module, x: Tensor, num_draws: int, *, replicate: bool = True) -> Any:
    """`ModelWrapper(MCDropoutModule(model)).predict_on_batch`: the batch is repeated (its default)."""
    from baal.bayesian.dropout import MCDropoutModule
    from baal.modelwrapper import ModelWrapper, TrainingArgs

    wrapper = ModelWrapper(MCDropoutModule(net), TrainingArgs(replicate_in_memory=replicate, use_cuda=False))
    wrapper.eval()

    def call() -> object:
        draws = wrapper.predict_on_batch(x, iterations=num_draws)
        return draws.mean(-1), draws.var(-1)

    return call


def baal_loop(net: nn.Module, x: Tensor, num_draws: int) -> Any:
    """The same with `replicate_in_memory=False`."""
    return baal_batch(net, x, num_draws, replicate=False)


def lightning_uq_box(net: nn.Module, x: Tensor, num_draws: int) -> Any:
    """`predict_step` of MCDropoutRegression or MCDropoutClassification."""
    from lightning_uq_box.uq_methods import MCDropoutClassification, MCDropoutRegression

    with torch.no_grad():
        one_output = net(x).shape[-1] == 1
    if one_output:
        module = MCDropoutRegression(net, num_draws, nn.MSELoss())
    else:
        module = MCDropoutClassification(net, num_draws, nn.CrossEntropyLoss())
    return lambda: module.predict_step(x)


PEERS: dict[str, tuple[str, Predictor]] = {
    "torch-uncertainty, batch": ("torch-uncertainty", torch_uncertainty_batch),
    "torch-uncertainty, loop": ("torch-uncertainty", torch_uncertainty_loop),
    "baal, batch": ("baal", baal_batch),
    "baal, loop": ("baal", baal_loop),
    "lightning-uq-box": ("lightning-uq-box", lightning_uq_box),
}


def measure(name: str, *, rounds: int, most_draws: int | None) -> dict[str, Any]:
    """Every peer on one case: its ratio, or the reason why there is none."""
    case = CASES[name]
    net, x = made(case)
    num_draws = case.num_draws if most_draws is None else min(case.num_draws, most_draws)
    calls: dict[str, Callable[[], object]] = {}
    rows: dict[str, Any] = {}
    for peer, (_, prepare) in PEERS.items():
        try:
            call = prepare(copy.deepcopy(net), x, num_draws)
            call()
        # Whatever stops a peer, a warning that it raises as an error too, is what the table has to say.
        except Exception as error:
            rows[peer] = {"not_run": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
        else:
            calls[peer] = call

    def unit() -> Tensor:
        with torch.no_grad():
            output: Tensor = net(x)
        return output

    times = best_times({"eval": unit, **calls}, rounds=rounds)
    for peer in calls:
        rows[peer] = {"ratio": times[peer] / times["eval"], "rounds": rounds}
    return {"check": float(unit().double().sum()), "rows": {peer: rows[peer] for peer in PEERS}}


def main() -> None:
    """Measure the named cases and write what was found as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="+", choices=list(CASES))
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--most-draws", type=int)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    # Before the empty modules are there: these look for torchvision, and do without it.
    import lightning  # noqa: F401
    import torchmetrics  # noqa: F401

    sys.meta_path.append(_EmptyModules())
    cases = {
        name: measure(name, rounds=options.rounds, most_draws=options.most_draws) for name in options.cases
    }
    versions = {package: version(package) for package, _ in PEERS.values()}
    options.output.write_text(
        json.dumps({"torch": torch.__version__, "versions": versions, "cases": cases}), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
