"""A file answers what `predict` answers, for any number of rows, without chance."""

from __future__ import annotations

import io
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.export.networks import CASES, perceptron
from torch import Tensor, nn

import bayesdrop as bd
from bayesdrop.export import verify
from bayesdrop.inputs import arguments, tensors_in
from bayesdrop.layers.kinds import KINDS

pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")


def session(path: Path) -> Any:
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


@lru_cache(maxsize=1)
def program(path: Path) -> Any:
    """A program of torch.export, which takes a while to load."""
    return torch.export.load(io.BytesIO(path.read_bytes())).module()


def answers(done: bd.Exported, x: Any, **more: Any) -> dict[str, np.ndarray]:
    """What the file says of inputs, by name."""
    arrays = [tensor.numpy() for tensor in tensors_in(arguments(x))]
    inputs = dict(zip(done.inputs, arrays, strict=False)) | more
    if done.format == "onnx":
        found = session(done.path).run(list(done.outputs), inputs)
    else:
        made = program(done.path)(*map(torch.from_numpy, inputs.values()))
        found = [part.detach().numpy() for part in made]
    return dict(zip(done.outputs, found, strict=True))


def close(found: np.ndarray, wanted: Tensor, of: Tensor | None = None) -> None:
    """To 1e-5 of the largest number; of a difference of entropies, of these."""
    assert found.shape == tuple(wanted.shape)
    scale = float((wanted if of is None else of).abs().max())
    assert float(np.abs(found - wanted.numpy()).max()) <= 1e-5 * scale


def check(done: bd.Exported, model: nn.Module, x: Any, likelihood: bd.Likelihood | None, draws: int) -> None:
    truth = bd.predict(model, x, num_draws=draws, seed=3, likelihood=likelihood, keep_draws=True)
    for name, found in answers(done, x).items():
        of = truth.entropy if name == "mutual_information" else None
        close(found, getattr(truth, name), of)


@pytest.mark.parametrize("name", CASES)
def test_an_onnx_file_is_the_function_of_predict(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    case = CASES[name]
    model = case.make().eval()
    done = bd.export(
        model, case.rows(3), tmp_path / "net.onnx", num_draws=6, seed=3, likelihood=case.likelihood
    )
    assert done.largest_error < 1e-5
    for rows in (1, 7, 64):
        check(done, model, case.rows(rows), case.likelihood, 6)


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("gru, both ways", "rnn")])
def test_a_torch_file_is_the_function_of_predict(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    case = CASES[name]
    model = case.make().eval()
    done = bd.export(
        model,
        case.rows(3),
        tmp_path / "net.pt2",
        format="torch",
        num_draws=6,
        seed=3,
        likelihood=case.likelihood,
    )
    for rows in (1, 7, 64):
        check(done, model, case.rows(rows), case.likelihood, 6)


@pytest.mark.parametrize("kind", KINDS)
def test_our_own_layers_of_every_kind_are_written(kind: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    flat = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
    # Masks of Masksembles keep all of a single channel.
    image = nn.Sequential(nn.Conv2d(4, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(96, 2))
    for net, x in ((flat, torch.randn(9, 6)), (image, torch.randn(9, 4, 6, 6))):
        model = bd.convert(net, kind, where="weights")
        done = bd.export(
            model, x[:4], tmp_path / "net.onnx", num_draws=6, seed=3, likelihood=bd.HeteroscedasticGaussian(),
            overwrite=True,
        )  # fmt: skip
        check(done, model, x, bd.HeteroscedasticGaussian(), 6)


def test_recurrent_layers_of_our_own_are_written(tmp_path: Path) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = bd.RecurrentDropout(nn.LSTM(3, 6, batch_first=True), p=0.3)
            self.head = nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.lstm(x)[0][:, -1])

    torch.manual_seed(0)
    model, x = Net(), torch.randn(4, 5, 3)
    done = bd.export(model, x, tmp_path / "net.onnx", num_draws=5, seed=3)
    check(done, model, torch.randn(7, 5, 3), None, 5)


LIKELIHOODS = [
    None,
    bd.Gaussian(0.3),
    bd.HeteroscedasticGaussian(),
    bd.Laplace(0.3),
    bd.Bernoulli(),
    bd.Categorical(),
]


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=lambda one: type(one).__name__)
def test_every_quantity_of_every_likelihood_is_written(
    likelihood: bd.Likelihood | None, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.4), nn.Linear(8, 4))
    names = ["mean", "std", "variance", "epistemic", "aleatoric", "draws"]
    if isinstance(likelihood, bd.Bernoulli | bd.Categorical):
        names += ["probs", "label", "entropy", "expected_entropy", "mutual_information", "variation_ratio"]
    done = bd.export(
        model, torch.randn(3, 4), tmp_path / "net.onnx", num_draws=7, likelihood=likelihood, outputs=names
    )
    x = torch.randn(11, 4)
    truth = bd.predict(model, x, num_draws=7, likelihood=likelihood, keep_draws=True)
    found = answers(done, x)
    assert list(found) == names
    for name in names:
        close(found[name], getattr(truth, name), truth.entropy if name == "mutual_information" else None)


def test_large_batches_multiply_kept_units_alone_and_say_the_same(tmp_path: Path) -> None:
    """From 128 rows on a perceptron at p = 0.5 takes another branch of the graph."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Dropout(0.5), nn.Linear(64, 512), nn.GELU(), nn.Dropout(0.5), nn.Linear(512, 128, bias=False),
        nn.LeakyReLU(0.2), nn.Dropout(0.5), nn.Linear(128, 3),
    )  # fmt: skip
    done = bd.export(model, torch.randn(3, 64), tmp_path / "net.onnx", num_draws=11, seed=3)
    kinds = {node.op_type for node in __import__("onnx").load(done.path).graph.node}
    assert "If" in kinds
    for rows in (127, 128, 300):
        check(done, model, torch.randn(rows, 64), None, 11)


def test_two_sessions_and_two_runs_give_the_same_bits(tmp_path: Path) -> None:
    model, x = perceptron(), torch.randn(9, 6)
    done = bd.export(model, x, tmp_path / "net.onnx", num_draws=10, outputs=("draws", "mean"))
    one, two = session(done.path), session(done.path)
    runs = [part.run(None, {"x": x.numpy()}) for part in (one, one, two)]
    for again in runs[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(runs[0], again, strict=True))


def test_nothing_random_is_left_in_the_graph(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    done = bd.export(CASES["lstm"].make(), CASES["lstm"].rows(3), tmp_path / "net.onnx", num_draws=4)
    text = onnx.printer.to_text(onnx.load(done.path))
    assert not any(word in text for word in ("Random", "Dropout", "Bernoulli", "Multinomial"))


def test_a_file_of_fifty_draws_is_no_larger_than_weights_and_packed_masks(tmp_path: Path) -> None:
    model = perceptron(p=0.5, width=256)
    done = bd.export(model, torch.randn(3, 6), tmp_path / "net.onnx", num_draws=50)
    weights = sum(p.numel() * 4 for p in model.parameters())
    masks = 50 * 2 * 256 // 8
    assert done.num_bytes <= 1.1 * (weights + masks)


def test_what_runs_before_the_first_noise_is_not_in_the_loop(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Dropout(0.5), nn.Linear(32, 2))
    done = bd.export(model, torch.randn(3, 1, 6, 6), tmp_path / "net.onnx", num_draws=4)
    main = [node.op_type for node in onnx.load(done.path).graph.node]
    assert main.count("Conv") == 1
    assert "MatMul" not in main
    assert "Scan" in main


@pytest.mark.parametrize("format", ["onnx", "torch"])
def test_masks_may_be_an_input(format: str, tmp_path: Path) -> None:
    model, x = CASES["lenet"].make(), CASES["lenet"].rows(5)
    done = bd.export(model, x, tmp_path / "net", format=format, num_draws=6, masks="input")  # type: ignore[arg-type]
    assert done.inputs == ("x", "noise_0", "noise_1")
    for seed in (0, 8):
        found = answers(done, x, **done.masks(seed=seed))
        truth = bd.predict(model, x, num_draws=6, seed=seed)
        close(found["mean"], truth.mean)
        close(found["std"], truth.std)


def test_with_masks_as_input_the_caller_chooses_how_many_draws(tmp_path: Path) -> None:
    model, x = perceptron(), torch.randn(5, 6)
    likelihood = bd.Categorical()
    done = bd.export(model, x, tmp_path / "net.onnx", num_draws=4, masks="input", likelihood=likelihood)
    truth = bd.predict(model, x, num_draws=33, seed=1, likelihood=likelihood)
    close(answers(done, x, **done.masks(33, seed=1))["probs"], truth.probs)


def test_a_file_for_one_batch_size(tmp_path: Path) -> None:
    class Mixes(nn.Module):
        """What it says of a row depends on how many rows there are."""

        def forward(self, x: Tensor) -> Tensor:
            return F.dropout(x, 0.5) / len(x) ** 2

    x = torch.randn(4, 3)
    with pytest.raises(RuntimeError, match="depends on the number of rows"):
        bd.export(Mixes(), x, tmp_path / "net.onnx", num_draws=4)
    assert not list(tmp_path.iterdir())
    done = bd.export(Mixes(), x, tmp_path / "net.onnx", num_draws=4, seed=3, dynamic_batch=False)
    check(done, Mixes(), x, None, 4)


def test_sites_can_be_left_out_as_in_predict(tmp_path: Path) -> None:
    model, x = perceptron(), torch.randn(5, 6)
    with pytest.warns(bd.PartlyRandom, match="excluded"):
        done = bd.export(model, x, tmp_path / "net.onnx", num_draws=6, exclude="2")
    with pytest.warns(bd.PartlyRandom, match="excluded"):
        truth = bd.predict(model, x, num_draws=6, exclude="2")
    close(answers(done, x)["std"], truth.std)


def test_training_on_does_not_change_what_was_written(tmp_path: Path) -> None:
    model, x = perceptron(), torch.randn(5, 6)
    before = bd.predict(model, x, num_draws=6).mean
    done = bd.export(model, x, tmp_path / "net.onnx", num_draws=6)
    assert model.training
    with torch.no_grad():
        model[0].weight.add_(1)
    close(answers(done, x)["mean"], before)


# what is refused


class Sorts(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.linalg.svdvals(F.dropout(x, 0.5)[:, None])


def test_an_operation_that_cannot_be_written_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(bd.CannotExport, match="svdvals"):
        bd.export(Sorts(), torch.randn(3, 4), tmp_path / "net.onnx", num_draws=4)
    assert not list(tmp_path.iterdir())


def test_a_file_that_differs_from_predict_is_not_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = verify.onnx_runner

    def wrong(*args: Any) -> Any:
        run = runner(*args)
        return lambda inputs: [part * 1.0001 for part in run(inputs)]

    monkeypatch.setattr(verify, "onnx_runner", wrong)
    with pytest.raises(RuntimeError, match="differs from predict"):
        bd.export(perceptron(), torch.randn(3, 6), tmp_path / "net.onnx", num_draws=4)
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_there_is_not_replaced_unasked(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_text("mine")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        bd.export(perceptron(), torch.randn(3, 6), path)
    assert path.read_text() == "mine"
    with pytest.raises(ValueError, match="svdvals"):
        bd.export(Sorts(), torch.randn(3, 4), path, overwrite=True, num_draws=4)
    assert path.read_text() == "mine"
    bd.export(perceptron(), torch.randn(3, 6), path, overwrite=True, num_draws=4)
    assert path.read_bytes()[:4] != b"mine"


class Chooses(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        h = F.dropout(x, 0.5)
        return h if x.sum() > 0 else -h


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": nn.Linear(6, 3)}, "no noise|nothing random|must contain"),
        ({"model": Chooses()}, "cannot be recorded"),
        ({"model": "net"}, "`model` must be"),
        ({"model": bd.Gaussian(1.0)}, "a network"),
        ({"example": "rows"}, "`example` must be"),
        ({"example": torch.zeros(0, 6)}, "at least one row"),
        ({"example": torch.tensor(1.0)}, "rows on axis 0"),
        ({"format": "tflite"}, "'onnx' or 'torch'"),
        ({"masks": "independent"}, "'constants' or 'input'"),
        ({"num_draws": 1}, "at least 2"),
        ({"num_draws": 2.5}, "num_draws"),
        ({"likelihood": "gaussian"}, "a Likelihood"),
        ({"outputs": ("mean", "sdt")}, "sdt"),
        ({"outputs": ("probs",)}, "probs.*Categorical"),
        ({"outputs": "mean"}, "a sequence of names"),
        ({"outputs": ("mean", "mean")}, "each once"),
        ({"overwrite": 1}, "overwrite"),
        ({"path": "missing/net.onnx"}, "missing"),
        ({"path": "."}, "folder"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bad_input_is_named_and_nothing_is_written(
    changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    given = {
        "model": perceptron(),
        "example": torch.randn(3, 6),
        "path": "net.onnx",
        "num_draws": 4,
    } | changes
    path = tmp_path / given.pop("path")
    with pytest.raises((ValueError, TypeError, OSError), match=f"(?i){said}"):
        bd.export(given.pop("model"), given.pop("example"), path, **given)
    assert not list(tmp_path.iterdir())


def test_without_the_extra_the_error_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "onnx.helper", None)
    with pytest.raises(ImportError, match="extra 'onnx'"):
        bd.export(perceptron(), torch.randn(3, 6), tmp_path / "net.onnx", num_draws=4)
