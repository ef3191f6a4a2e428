"""Which rows a step has, and where its noise comes from: chosen by the caller."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from bayesdrop.fit import fit

X = torch.arange(6.0).unsqueeze(1)
Y = 2 * X


def net(p: float = 0.0) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(1, 8), nn.Dropout(p), nn.Linear(8, 1))


def squared_error(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    loss: Tensor = (model(x) - y).square().mean()
    return loss


class Items(Dataset[Any]):
    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        return X[row], Y[row]


def rows_of_steps(train: Any, **options: Any) -> list[list[float]]:
    seen = []

    def objective(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        assert torch.equal(y, 2 * x)
        seen.append(x[:, 0].tolist())
        return squared_error(model, x, y)

    fit(net(), train, objective, progress=False, **options)
    return seen


@pytest.mark.parametrize("train", [(X, Y), TensorDataset(X, Y), Items()])
def test_batches_chooses_the_rows_of_every_step(train: Any) -> None:
    asked: dict[int, list[Any]] = {1: [[0, 5], torch.tensor([3])], 2: [range(6)]}
    found = rows_of_steps(train, epochs=2, batches=lambda epoch: [list(rows) for rows in asked[epoch]])
    assert found == [[0, 5], [3], [0, 1, 2, 3, 4, 5]]


@pytest.mark.parametrize("train", [(X, Y), Items()])
def test_without_a_batch_size_a_step_has_all_rows_in_their_order(train: Any) -> None:
    assert rows_of_steps(train, epochs=2, batch_size=None) == [[0, 1, 2, 3, 4, 5]] * 2


def test_rows_and_noise_come_from_the_generator_in_the_order_of_a_plain_loop() -> None:
    """The loop that everybody has written: rows, then dropout, from one generator."""
    model = net(0.5).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(7)
    for _ in range(4):
        rows = torch.randint(len(X), (3,))
        optimizer.zero_grad()
        squared_error(model, X[rows], Y[rows]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    end = torch.rand(2)

    def drawn(epoch: int) -> Iterator[Tensor]:
        return (torch.randint(len(X), (3,)) for _ in range(2))

    ours, generator = net(0.5), torch.Generator().manual_seed(7)
    made = torch.optim.SGD(ours.parameters(), lr=0.01)
    # In two calls: the second goes on where the first ended.
    for _ in range(2):
        fit(
            ours, (X, Y), squared_error, epochs=1, batches=drawn, generator=generator, progress=False,
            optimizer=lambda groups: made,
        )  # fmt: skip
    for one, other in zip(ours.parameters(), model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert torch.equal(torch.rand(2, generator=generator), end)


def test_a_run_with_a_generator_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    def run(model: nn.Module, epochs: int, name: str) -> None:
        generator = torch.Generator().manual_seed(3)
        path = tmp_path / name
        fit(model, (X, Y), squared_error, epochs=epochs, generator=generator, checkpoint=path, progress=False)

    whole, parts = net(0.5), net(0.5)
    run(whole, 4, "whole")
    run(parts, 2, "parts")
    run(parts, 4, "parts")
    for one, other in zip(whole.parameters(), parts.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("error", "batches"),
    [
        (ValueError, [[6]]), (ValueError, [[-1]]), (TypeError, [[]]), (TypeError, [[0.5]]), (TypeError, [3]),
        (TypeError, [[True]]), (TypeError, ["rows"]), (ValueError, []),
    ],
)  # fmt: skip
def test_rows_that_are_not_there_are_refused(error: type[Exception], batches: Any) -> None:
    with pytest.raises(error, match="fit: `batches` must be"):
        fit(net(), (X, Y), squared_error, epochs=1, batches=lambda epoch: batches, progress=False)


def test_a_loader_has_batches_of_its_own_and_a_named_schedule_must_know_the_steps() -> None:
    loader: DataLoader[Any] = DataLoader(TensorDataset(X, Y), batch_size=2)
    with pytest.raises(ValueError, match="fit: `batches` must be None with a DataLoader"):
        fit(net(), loader, squared_error, epochs=1, batches=lambda epoch: [[0]], progress=False)
    with pytest.raises(ValueError, match="fit: `scheduler`"):
        fit(net(), (X, Y), squared_error, epochs=1, batches=lambda epoch: [[0]], scheduler="cosine")


@pytest.mark.parametrize("argument", ["generator", "batches"])
def test_what_is_no_generator_and_no_function_is_refused(argument: str) -> None:
    with pytest.raises(TypeError, match=f"fit: `{argument}` must be"):
        fit(net(), (X, Y), squared_error, epochs=1, progress=False, **{argument: 3})  # type: ignore[arg-type]
