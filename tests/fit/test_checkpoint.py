"""Checkpoints: a run that stopped and went on is the run that never stopped, to the last bit."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

import bayesdrop as bd
from bayesdrop.fit import History, checkpoint, fit
from bayesdrop.fit import loop as fit_loop
from bayesdrop.storage import load, read_tensors, save, write_tensors


class LearnedRate(bd.BernoulliDropout):
    """A layer with a parameter that sets its rate."""

    def __init__(self, layer: nn.Module, p: float = 0.1) -> None:
        super().__init__(layer, p=p)
        self.rate = nn.Parameter(torch.tensor(1.0))

    def rate_parameters(self) -> Iterator[nn.Parameter]:
        yield self.rate

    def kl(self, length_scale: float | None = None) -> Tensor:
        return super().kl(length_scale) + self.rate.square()


def network(p: float = 0.2, width: int = 8) -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(
        bd.BernoulliDropout(nn.Linear(3, width), p=p),
        nn.BatchNorm1d(width),
        nn.ReLU(),
        nn.Dropout(0.1),
        LearnedRate(nn.Linear(width, 1)),
    )


def data(rows: int = 41) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(rows, 3, generator=generator)
    return x, x.sum(1, keepdim=True).sin() + 0.1 * torch.randn(rows, 1, generator=generator)


def shuffled_loader() -> DataLoader[Any]:
    return DataLoader(TensorDataset(*data()), batch_size=9, shuffle=True)


def loader_with_generator() -> DataLoader[Any]:
    own = torch.Generator().manual_seed(9)
    return DataLoader(TensorDataset(*data()), batch_size=9, shuffle=True, generator=own)


def sequence(optimizer: torch.optim.Optimizer) -> lr_scheduler.LRScheduler:
    parts = [lr_scheduler.ConstantLR(optimizer, 0.1), lr_scheduler.ExponentialLR(optimizer, 0.99)]
    return lr_scheduler.SequentialLR(optimizer, parts, milestones=[13])


#: a likelihood, and options of fit; all have dropout noise, BatchNorm and a learned rate
RUNS: dict[str, tuple[Callable[[], bd.Likelihood], Callable[[], dict[str, Any]]]] = {
    "map noise": (lambda: bd.Gaussian(noise="map"), lambda: {"validation": data(20), "patience": 50}),
    "cosine": (
        bd.Gaussian,
        lambda: {"scheduler": lambda o: lr_scheduler.CosineAnnealingLR(o, 40), "clip_norm": 0.5},
    ),
    "adamw": (bd.Gaussian, lambda: {"weight_decay": 0.1, "checkpoint_every": 3}),
    "sgd": (
        bd.Gaussian,
        lambda: {
            "optimizer": lambda groups: torch.optim.SGD(groups, momentum=0.9, nesterov=True),
            "scheduler": lambda o: lr_scheduler.MultiStepLR(o, [7, 22, 22]),
        },
    ),
    "rmsprop": (
        bd.Gaussian,
        lambda: {"optimizer": torch.optim.RMSprop, "scheduler": lambda o: lr_scheduler.LambdaLR(o, _decay)},
    ),
    "amsgrad": (
        bd.HeteroscedasticGaussian,
        lambda: {"optimizer": lambda groups: torch.optim.Adam(groups, amsgrad=True), "scheduler": sequence},
    ),
    "one cycle": (
        bd.Gaussian,
        lambda: {"scheduler": lambda o: lr_scheduler.OneCycleLR(o, 0.02, total_steps=100)},
    ),
    "shuffled loader": (lambda: bd.Gaussian(noise="map"), lambda: {"train": shuffled_loader()}),
    "loader's generator": (bd.Gaussian, lambda: {"train": loader_with_generator()}),
    "dataset": (bd.Gaussian, lambda: {"train": TensorDataset(*data())}),
    "stops early": (
        bd.Gaussian,
        lambda: {"validation": (data()[0], -data()[1]), "patience": 4, "lr": 0.05},
    ),
}


def _decay(step: int) -> float:
    return 1 / (1 + step)


def run(name: str, *, epochs: int, **more: Any) -> tuple[list[Tensor], History]:
    """A run with fresh objects: all tensors at the end, and the history."""
    likelihood, options = RUNS[name]
    objective = bd.NegativeELBO(likelihood(), num_data=41)
    model = network()
    if name == "amsgrad":
        model = nn.Sequential(*model, bd.GaussianDropout(nn.Linear(1, 2), p=0.1))
    arguments = {"train": data(), "batch_size": 10, "lr": 0.01, "seed": 7, **options(), **more}
    history = fit(model, objective=objective, epochs=epochs, **arguments)
    tensors = [*model.state_dict().values(), *objective.state_dict().values()]
    return [tensor.detach().clone() for tensor in tensors], history


def assert_same(a: tuple[list[Tensor], History], b: tuple[list[Tensor], History]) -> None:
    for x, y in zip(a[0], b[0], strict=True):
        assert torch.equal(x, y)
    left, right = a[1].to_dict(), b[1].to_dict()
    assert len(left.pop("seconds")) == len(right.pop("seconds"))
    assert left == right


@pytest.mark.parametrize("name", RUNS)
def test_a_run_in_two_parts_is_the_run_in_one(name: str, tmp_path: Path) -> None:
    straight = run(name, epochs=10)
    run(name, epochs=4, checkpoint=tmp_path / "run")
    torch.manual_seed(123)  # another process starts from another random state
    assert_same(run(name, epochs=10, checkpoint=tmp_path / "run"), straight)
    assert_same(run(name, epochs=10, checkpoint=tmp_path / "run"), straight)  # nothing is left to do


def test_the_early_stop_was_after_the_resume() -> None:
    history = run("stops early", epochs=10)[1]
    assert history.stopped_early
    assert 4 < len(history) < 10


def test_an_interrupted_run_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "run"
    straight = run("map noise", epochs=6, checkpoint_every=2)
    for interrupted_at, held in ((13, 2), (24, 4)):
        steps = iter(range(1, interrupted_at))

        class Interrupted(torch.optim.Adam):
            def step(self, closure: Any = None, steps: Iterator[int] = steps) -> Any:
                if next(steps, None) is None:
                    raise KeyboardInterrupt
                return super().step(closure)

        Interrupted.__name__ = "Adam"
        options: dict[str, Any] = {"epochs": 6, "checkpoint": path, "checkpoint_every": 2}
        with pytest.raises(KeyboardInterrupt):
            run("map noise", **options, optimizer=lambda groups: Interrupted(groups, fused=True))
        assert read_tensors(path, kind="bayesdrop-checkpoint")[1]["epoch"] == held
        assert_same(run("map noise", **options), straight)
        assert [part.name for part in tmp_path.iterdir()] == ["run"]
        path.unlink()


def test_the_same_objects_can_go_on(tmp_path: Path) -> None:
    model, objective = network(), bd.NegativeELBO(bd.Gaussian(), num_data=41)
    for epochs in (2, 3):
        history = fit(model, data(), objective, epochs=epochs, checkpoint=tmp_path / "run", batch_size=10)
    other, another = network(), bd.NegativeELBO(bd.Gaussian(), num_data=41)
    expected = fit(other, data(), another, epochs=3, batch_size=10)
    assert history.loss == expected.loss
    assert torch.equal(model[4].layer.weight, other[4].layer.weight)


def test_resume_false_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "run"
    run("cosine", epochs=2, checkpoint=path)
    assert_same(
        run("cosine", epochs=3, checkpoint=path, resume=False, lr=0.02), run("cosine", epochs=3, lr=0.02)
    )


def test_a_checkpoint_is_a_safetensors_file_of_its_own_kind(tmp_path: Path) -> None:
    path = tmp_path / "run"
    run("map noise", epochs=2, checkpoint=path)
    with safe_open(path, framework="pt") as file:
        names = set(file.keys())
    expected = {
        "model.0.layer.weight",
        "best.model.1.running_mean",
        "objective.likelihood.log_noise_std",
        "optimizer.state.0.exp_avg",
        "random.cpu",
    }
    assert expected <= names
    with pytest.raises(ValueError, match="it is a bayesdrop-checkpoint"):
        load(path)
    assert [part.name for part in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"lr": 0.02}, r"lr was 0\.01 and is 0\.02"),
        ({"rate_lr": 0.5}, r"rate_lr was 0\.1 and is 0\.5"),
        ({"batch_size": 11}, "batch_size was 10 and is 11"),
        ({"seed": 8}, "seed was 7 and is 8"),
        ({"weight_decay": 0.1}, r"weight_decay was 0 and is 0\.1"),
        ({"clip_norm": 1.0}, r"clip_norm was None and is 1"),
        ({"validation": data(9)}, "validation was None and is"),
        ({"validation": data(9), "patience": 3}, "patience was None and is 3"),
        ({"validation_draws": 3}, "validation_draws was 20 and is 3"),
        ({"optimizer": torch.optim.SGD}, r"optimizer\.class was Adam and is SGD"),
        (
            {"optimizer": lambda groups: torch.optim.Adam(groups, betas=(0.8, 0.9), fused=True)},
            r"optimizer\.weights\.betas was \[0\.9, 0\.999\] and is \[0\.8, 0\.9\]",
        ),
        (
            {"scheduler": lambda o: lr_scheduler.StepLR(o, 3)},
            r"scheduler\.class was none and is StepLR",
        ),
        ({"train": (data()[0], data()[1] + 1)}, r"train\.checksum\.y was "),
        ({"model": network(width=9)}, r"model\.modules\.0\.layer\.out_features was 8 and is 9"),
        ({"model": network(p=0.3)}, r"model\.modules\.0\.p was 0\.2.* and is 0\.3"),
        ({"model": network().double()}, r"model\.tensors\.0\.p was float32\[\] and is float64\[\]"),
        (
            {"model": nn.Sequential(*network()[:3], nn.Dropout(0.4), network()[4])},
            r"model\.modules\.3\.p was 0\.1 and is 0\.4",
        ),
        (
            {"objective": bd.NegativeELBO(bd.Gaussian(), num_data=41, length_scale=0.3)},
            r"objective\.modules\.itself\.length_scale was None and is 0\.3",
        ),
        (
            {"objective": bd.NegativeELBO(bd.Gaussian(0.4), num_data=41)},
            r"objective\.modules\.likelihood\.noise was learned and is fixed",
        ),
    ],
)
def test_other_settings_are_refused_by_name(change: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    def arguments() -> dict[str, Any]:
        objective = bd.NegativeELBO(bd.Gaussian(), num_data=41)
        fixed = {"batch_size": 10, "lr": 0.01, "seed": 7, "checkpoint": tmp_path / "run"}
        return {"model": network(), "train": data(), "objective": objective, **fixed}

    fit(**arguments(), epochs=1)
    before = (tmp_path / "run").read_bytes()
    with pytest.raises(
        ValueError, match=rf"the checkpoint .*run is from a run with other settings: .*{sentence}"
    ):
        fit(**(arguments() | change), epochs=2)
    assert (tmp_path / "run").read_bytes() == before


def test_a_noise_that_is_fixed_elsewhere_is_another_setting(tmp_path: Path) -> None:
    for noise in (0.1, 0.2):
        objective = bd.NegativeELBO(bd.Gaussian(noise), num_data=41)
        if noise == 0.1:
            fit(network(), data(), objective, epochs=1, checkpoint=tmp_path / "run")
            continue
        with pytest.raises(
            ValueError, match=r"objective\.modules\.likelihood\.noise_std was 0\.1 and is 0\.2\."
        ):
            fit(network(), data(), objective, epochs=1, checkpoint=tmp_path / "run")


def test_fewer_epochs_than_were_done_are_refused(tmp_path: Path) -> None:
    run("cosine", epochs=3, checkpoint=tmp_path / "run")
    with pytest.raises(
        ValueError, match=r"`epochs` must be at least 3; got 2\. The checkpoint .*run has done"
    ):
        run("cosine", epochs=2, checkpoint=tmp_path / "run")


def test_files_that_are_not_checkpoints_are_refused(tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.write_bytes(b"not a checkpoint")
    with pytest.raises(ValueError, match=r"fit: .*bad is damaged or not a safetensors file"):
        run("cosine", epochs=2, checkpoint=bad)
    save(network(), model := tmp_path / "model")
    with pytest.raises(ValueError, match="must hold a bayesdrop-checkpoint; it is a bayesdrop-model"):
        run("cosine", epochs=2, checkpoint=model)
    with pytest.raises(ValueError, match="`checkpoint` must be a file"):
        run("cosine", epochs=2, checkpoint=tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        run("cosine", epochs=2, checkpoint=tmp_path / "none" / "run")


def test_a_checkpoint_that_lacks_a_tensor_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "run"
    run("cosine", epochs=1, checkpoint=path)
    for lost in ("model.0.layer.weight", "optimizer.state.0.exp_avg", "random.cpu"):
        tensors, header = read_tensors(path, kind="bayesdrop-checkpoint")
        del tensors[lost]
        write_tensors(tmp_path / "bad", tensors, kind="bayesdrop-checkpoint", header=header)
        with pytest.raises(ValueError, match=rf"bad is damaged .*{lost}"):
            run("cosine", epochs=2, checkpoint=tmp_path / "bad")


def test_no_bit_of_a_checkpoint_changes_without_a_word(tmp_path: Path) -> None:
    path = tmp_path / "run"
    run("cosine", epochs=1, checkpoint=path)
    whole = path.read_bytes()
    for place in range(0, len(whole), len(whole) // 150):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(ValueError, match=r"fit: .*run.* damaged|fit: .*run must hold"):
            run("cosine", epochs=2, checkpoint=path)


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": "2"},
        {"epoch": 7},
        {"step": -1},
        {"stopped": 0},
        {"best_epoch": []},
        {"best_loss": None},
        {"history": {"loss": [1.0]}, "epoch": 0},
        {"history": {"odd": 1}},
        {"history": []},
        {"optimizer": None},
        {"optimizer": {"dict": [[[], 1]]}},
        {"optimizer": {"dict": 3}},
        {"optimizer": {"tensor": "none"}},
        {"scheduler": {"dict": [["step", 3]]}},
        {"scheduler": {"dict": []}},
        {"has_best": 1},
    ],
)
def test_a_description_of_wrong_types_is_damage_and_leaves_the_model_alone(
    change: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "run"
    run("cosine", epochs=1, checkpoint=path)
    tensors, header = read_tensors(path, kind="bayesdrop-checkpoint")
    write_tensors(path, tensors, kind="bayesdrop-checkpoint", header=header | change)
    model = network()
    before = [tensor.clone() for tensor in model.state_dict().values()]
    options = RUNS["cosine"][1]() | {"batch_size": 10, "lr": 0.01, "seed": 7}
    objective = bd.NegativeELBO(bd.Gaussian(), num_data=41)
    with pytest.raises(ValueError, match=r"fit: the checkpoint .*run is damaged"):
        fit(model, data(), objective, epochs=2, checkpoint=path, **options)
    assert all(torch.equal(a, b) for a, b in zip(before, model.state_dict().values(), strict=True))


def test_tensors_of_another_shape_are_damage(tmp_path: Path) -> None:
    path = tmp_path / "run"
    run("cosine", epochs=1, checkpoint=path)
    tensors, header = read_tensors(path, kind="bayesdrop-checkpoint")
    tensors["model.0.layer.weight"] = tensors["model.0.layer.weight"][:1]  # would broadcast
    write_tensors(path, tensors, kind="bayesdrop-checkpoint", header=header)
    with pytest.raises(ValueError, match=r"run is damaged .*model\.0\.layer\.weight is"):
        run("cosine", epochs=2, checkpoint=path)


def test_a_checkpoint_behind_a_link_is_written_where_it_points(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "far" / "run")
    run("cosine", epochs=1, checkpoint=tmp_path / "run")
    assert (tmp_path / "run").is_symlink()
    assert read_tensors(tmp_path / "far" / "run", kind="bayesdrop-checkpoint")[1]["epoch"] == 1
    assert_same(run("cosine", epochs=2, checkpoint=tmp_path / "run"), run("cosine", epochs=2))


def test_state_that_needs_pickle_is_refused(tmp_path: Path) -> None:
    class Odd(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            self.state[self.param_groups[0]["params"][0]]["odd"] = object()
            return super().step(closure)

    with pytest.raises(
        TypeError, match=r"state of numbers and tensors; optimizer\.state\.0\.odd is a object"
    ):
        run("cosine", epochs=1, checkpoint=tmp_path / "run", optimizer=Odd)
    assert not list(tmp_path.iterdir())


def test_nested_state_keeps_its_types(tmp_path: Path) -> None:
    state = {
        "milestones": Counter([3, 3, 5]),
        0: {"step": torch.tensor(2.0), "betas": (0.9, None)},
        "l": [True],
    }
    tensors: dict[str, Tensor] = {}
    text = json.dumps(checkpoint._encoded(state, "state", tensors))
    read = checkpoint._decoded(json.loads(text), tensors)
    assert read == state
    assert type(read["milestones"]) is Counter
    assert type(read[0]["betas"]) is tuple
    assert list(tensors) == ["state.0.step"]


def test_a_failing_write_leaves_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run"
    run("cosine", epochs=1, checkpoint=path)
    before = path.read_bytes()

    def fails(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(fit_loop, "write_checkpoint", fails)
    with pytest.raises(OSError, match="disk full"):
        run("cosine", epochs=2, checkpoint=path)
    assert path.read_bytes() == before
