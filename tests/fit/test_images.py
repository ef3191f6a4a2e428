"""What training on images needs: augmentation, layout, averages, accumulation, the best by a score."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bayesdrop as bd
from bayesdrop.fit import average, epoch
from bayesdrop.fit.augment import Augmented
from bayesdrop.fit.data import as_batches


def images(rows: int = 24, classes: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(rows, 2, 8, 10, generator=generator), torch.randint(
        classes, (rows,), generator=generator
    )


def network(p: float = 0.2) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=1),
        nn.ReLU(),
        bd.BernoulliDropout(nn.Conv2d(6, 4, 3), p=p),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 3),
    )


def objective(rows: int = 24) -> bd.NegativeELBO:
    return bd.NegativeELBO(bd.Categorical(), num_data=rows)


def distance(a: nn.Module, b: nn.Module) -> float:
    pairs = zip(a.state_dict().values(), b.state_dict().values(), strict=True)
    return max(float((u - v).abs().max()) for u, v in pairs)


def trained(**options: Any) -> nn.Sequential:
    model = network()
    bd.fit(model, images(), objective(), **{"epochs": 3, "batch_size": 7, **options})
    return model


# augmentation


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_a_flip_mirrors_about_half_of_the_images_and_their_maps_alike() -> None:
    x = torch.randn(200, 3, 4, 5)
    maps = x[:, 0].clone()
    flipped, labels = bd.RandomFlip()(x, maps, seeded())
    is_mirrored = (flipped == x.flip(-1)).flatten(1).all(1)
    is_same = (flipped == x).flatten(1).all(1)
    assert bool((is_mirrored ^ is_same).all())
    assert 70 < int(is_mirrored.sum()) < 130
    assert torch.equal(labels, flipped[:, 0])
    turned, _ = bd.RandomFlip(p=1, direction="vertical")(x, maps, seeded())
    assert torch.equal(turned, x.flip(-2))
    assert torch.equal(bd.RandomFlip(p=0)(x, maps, seeded())[0], x)


def test_a_crop_is_a_window_of_its_image_and_the_same_window_of_its_map() -> None:
    place = torch.arange(48.0).reshape(6, 8)
    x = place.expand(300, 2, 6, 8) + 100 * torch.arange(300).reshape(-1, 1, 1, 1)
    maps = x[:, :1].long()
    cut, labels = bd.RandomCrop((4, 5))(x, maps, seeded())
    assert cut.shape == (300, 2, 4, 5)
    assert torch.equal(labels.float(), cut[:, :1])
    corner = cut[:, 0, 0, 0] - 100 * torch.arange(300)
    windows = {(int(c) // 8, int(c) % 8) for c in corner}
    assert windows == {(top, left) for top in range(3) for left in range(4)}
    rows = torch.arange(4).reshape(-1, 1) * 8 + torch.arange(5)
    assert torch.equal(cut[:, 0], cut[:, 0, :1, :1] + rows)


def test_padding_is_filled_with_zeros_and_with_the_void_label() -> None:
    x = torch.ones(50, 3, 4, 4)
    crop = bd.RandomCrop(4, padding=2, label_fill=11)
    cut, labels = crop(x, torch.ones(50, 4, 4, dtype=torch.long), seeded())
    assert set(labels.unique().tolist()) == {1, 11}
    assert torch.equal(cut[:, 0] == 0, labels == 11)
    # labels of images are left alone
    y = torch.arange(50)
    assert bd.RandomCrop(4, padding=2)(x, y, seeded())[1] is y


def test_augmentation_depends_on_seed_epoch_and_minibatch_alone() -> None:
    x, y = images()
    steps = (bd.RandomCrop(8, padding=1), bd.RandomFlip())

    def one(seed: int, number: int) -> Tensor:
        plain = as_batches((x, y), "train", batch_size=7, seed=0, device=torch.device("cpu"))
        torch.rand(3)
        return torch.cat([part for part, _ in Augmented(plain, steps, seed).epoch(number)])

    assert torch.equal(one(0, 1), one(0, 1))
    assert not torch.equal(one(0, 1), one(1, 1))
    plain = as_batches((x, y), "train", batch_size=7, seed=0, device=torch.device("cpu"))
    augmented = Augmented(plain, steps, 0)
    assert torch.equal(torch.cat([part for part, _ in augmented.in_order()]), x)
    # an epoch is the same whatever was run before it, and each minibatch has numbers of its own
    list(augmented.epoch(1))
    assert torch.equal(torch.cat([part for part, _ in augmented.epoch(2)]), one(0, 2))


def test_fit_trains_on_what_augment_gives_and_validates_on_what_is_there() -> None:
    seen: list[tuple[bool, Tensor]] = []
    model = network()
    model.register_forward_pre_hook(
        lambda module, args: seen.append((module.training, args[0].detach().clone()))
    )
    x, y = images()
    bd.fit(
        model,
        (x, y),
        objective(),
        epochs=1,
        batch_size=8,
        validation=(x, y),
        augment=lambda x, y, g: (0 * x, y),
    )
    assert all(bool((part == 0).all()) for training, part in seen if training)
    assert any(bool((part != 0).any()) for training, part in seen if not training)


def test_augmented_runs_are_reproducible_and_go_on_from_checkpoints(tmp_path: Path) -> None:
    options = {"augment": [bd.RandomCrop((8, 10), padding=2), bd.RandomFlip()]}
    straight = trained(**options)
    assert distance(straight, trained(**options)) == 0
    assert distance(straight, trained()) > 0
    path = tmp_path / "run.safetensors"
    trained(**options, epochs=2, checkpoint=path)
    assert distance(straight, trained(**options, checkpoint=path)) == 0
    with pytest.raises(ValueError, match=r"train\.augment"):
        trained(augment=[bd.RandomFlip()], epochs=4, checkpoint=path)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda x, y: bd.RandomFlip(p=2), "RandomFlip: `p` must be in"),
        (lambda x, y: bd.RandomFlip(direction="left"), "direction"),
        (lambda x, y: bd.RandomCrop(0), "RandomCrop: `size`"),
        (lambda x, y: bd.RandomCrop(9)(x, y, seeded()), "at most the padded image's"),
        (lambda x, y: bd.RandomCrop(8, padding=1)(x, x[:, 0], seeded()), "label_fill"),
        (lambda x, y: bd.RandomFlip()(x, x[:, :, :2], seeded()), "label maps of"),
        (lambda x, y: bd.RandomFlip()(y, y, seeded()), "images"),
        (lambda x, y: trained(augment=3), "fit: `augment`"),
        (lambda x, y: trained(augment=[]), "fit: `augment`"),
        (lambda x, y: trained(augment=lambda x, y, g: x), "gives \\(x, y\\)"),
        (lambda x, y: trained(augment=lambda x, y, g: (x[:2], y[:2])), "keeps the 7 rows"),
    ],
)
def test_augmentation_that_makes_no_sense_is_refused(make: Any, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        make(*images())


# layout


def test_channels_last_trains_the_same_network_and_leaves_its_layout() -> None:
    layouts: list[bool] = []

    def watched(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        weight = model[0].weight
        layouts.append(weight.is_contiguous(memory_format=torch.channels_last) and not weight.is_contiguous())
        layouts.append(x.is_contiguous(memory_format=torch.channels_last))
        return F.cross_entropy(model(x), y)

    model, plain = network(p=0.0), network(p=0.0)
    bd.fit(model, images(), watched, epochs=3, batch_size=7, channels_last=True)
    assert set(layouts) == {True}
    bd.fit(plain, images(), lambda m, x, y: F.cross_entropy(m(x), y), epochs=3, batch_size=7)
    assert distance(model, plain) < 1e-5
    assert all(parameter.is_contiguous() for parameter in model.parameters())


def test_the_layout_comes_back_after_an_error() -> None:
    model = network()

    def fails(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        bd.fit(model, images(), fails, epochs=1, channels_last=True)
    assert all(parameter.is_contiguous() for parameter in model.parameters())


@pytest.mark.parametrize("own", [False, True])
def test_a_run_with_channels_last_goes_on_bit_for_bit(own: bool, tmp_path: Path) -> None:
    # `own`: the model was laid out so by the user. A file knows no layouts, and fused Adam goes by memory.
    def run(**options: Any) -> nn.Module:
        model = network()
        if own:
            model = model.to(memory_format=torch.channels_last)
        bd.fit(model, images(), objective(), batch_size=7, channels_last=not own, **options)
        return model

    straight = run(epochs=4)
    run(epochs=2, checkpoint=tmp_path / "run.safetensors")
    assert distance(run(epochs=4, checkpoint=tmp_path / "run.safetensors"), straight) == 0


# gradient accumulation


@pytest.mark.parametrize("pieces", [2, 3, 4, 100])
def test_accumulated_gradients_are_those_of_the_whole_batch(pieces: int) -> None:
    # In double precision, without noise, with a KL that must count once, and batches that do not divide.
    def run(**options: Any) -> tuple[nn.Module, bd.History]:
        model = network(p=0.0).double()
        x, y = images()
        likelihood = bd.NegativeELBO(bd.Categorical(), num_data=24, length_scale=3.0)
        optimizer = {"optimizer": lambda groups: torch.optim.SGD(groups, momentum=0.9), "clip_norm": 0.5}
        return model, bd.fit(
            model, (x.double(), y), likelihood, epochs=4, batch_size=10, lr=0.1, **optimizer, **options
        )

    (whole, history), (parts, same) = run(), run(accumulate=pieces)
    assert distance(whole, parts) < 1e-12
    assert same.loss == pytest.approx(history.loss)
    assert same.kl == pytest.approx(history.kl)


def test_a_loader_is_cut_into_pieces_too_and_no_piece_is_larger() -> None:
    sizes: list[int] = []

    def counted(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        sizes.append(len(x))
        return F.cross_entropy(model(x), y)

    loader = DataLoader(TensorDataset(*images()), batch_size=8)
    bd.fit(network(), loader, counted, epochs=1, accumulate=4)
    assert sizes == [2] * 12


# averages


def test_the_average_is_the_recursion_over_all_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Tensor]] = []
    original = average.update_average

    def watched(run: Any, decay: float) -> None:
        seen.append({name: tensor.detach().clone() for name, tensor in run.tensors().items()})
        original(run, decay)

    monkeypatch.setattr(epoch, "update_average", watched)
    model = trained(ema=0.5)
    expected = seen[0]
    for step, tensors in enumerate(seen[1:], 2):
        decay = min(0.5, (1 + step) / (10 + step))
        expected = {name: decay * expected[name] + (1 - decay) * tensors[name] for name in expected}
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, expected[f"model.{name}"])


def test_training_goes_on_from_the_weights_and_not_from_their_average() -> None:
    def run(**options: Any) -> tuple[nn.Module, list[Tensor]]:
        weights: list[Tensor] = []

        def watched(model: nn.Module, x: Tensor, y: Tensor) -> Any:
            if model.training:
                weights.append(model[0].weight.detach().clone())
            return objective()(model, x, y)

        model = network()
        bd.fit(model, images(), watched, epochs=3, batch_size=7, **options)
        return model, weights

    told: list[Tensor] = []
    plain, expected = run()
    averaged, weights = run(ema=0.9, validation=images())
    assert all(torch.equal(a, b) for a, b in zip(weights, expected, strict=True))
    assert distance(plain, averaged) > 0
    # what a callback sees is the average too
    model = network()
    bd.fit(
        model,
        images(),
        objective(),
        epochs=3,
        batch_size=7,
        ema=0.9,
        callback=lambda epoch, history: told.append(model[0].weight.detach().clone()),
    )
    assert torch.equal(told[-1], model[0].weight)
    assert distance(model, averaged) == 0


def test_an_average_is_kept_in_a_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    straight = trained(ema=0.9, epochs=4)
    trained(ema=0.9, epochs=2, checkpoint=path)
    assert distance(trained(ema=0.9, epochs=4, checkpoint=path), straight) == 0
    # a run that was done already has its averages too
    assert distance(trained(ema=0.9, epochs=4, checkpoint=path), straight) == 0
    with pytest.raises(ValueError, match=r"ema was 0\.9 and is 0\.5"):
        trained(ema=0.5, epochs=5, checkpoint=path)


def test_statistics_of_batchnorm_are_averaged_and_counts_are_copied() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    bd.fit(
        model, images(classes=4), lambda m, x, y: F.cross_entropy(m(x), y), epochs=2, batch_size=8, ema=0.9
    )
    assert int(model[1].num_batches_tracked) == 6
    assert bool((model[1].running_var != 1).all())


def test_divergence_puts_the_averages_back() -> None:
    model = network()
    calls = 0
    kept: list[Tensor] = []

    def late(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        loss = F.cross_entropy(model(x), y)
        return loss * float("nan") if calls > 5 else loss

    with pytest.raises(bd.Diverged):
        bd.fit(
            model,
            images(),
            late,
            epochs=3,
            batch_size=8,
            ema=0.9,
            callback=lambda epoch, history: kept.append(model[0].weight.detach().clone()),
        )
    assert torch.equal(model[0].weight, kept[-1])


# the best by a score


def scores(values: list[float]) -> Any:
    given: Iterator[float] = iter(values)
    return lambda model: next(given)


def test_the_best_epoch_by_a_score_is_put_back() -> None:
    weights: list[Tensor] = []

    def score(model: nn.Module) -> float:
        assert not model.training
        weights.append(model[0].weight.detach().clone())
        return [0.2, 0.9, 0.4, 0.5][len(weights) - 1]

    model = network()
    history = bd.fit(model, images(), objective(), epochs=4, batch_size=7, score=score)
    assert history.best_epoch == 2
    assert history.score == [0.2, 0.9, 0.4, 0.5]
    assert torch.equal(model[0].weight, weights[1])
    assert bd.History.from_dict(history.to_dict()).score == history.score


def test_a_score_decides_in_place_of_the_validation_loss_and_patience_goes_by_it() -> None:
    history = bd.fit(
        network(),
        images(),
        objective(),
        epochs=9,
        batch_size=7,
        validation=images(),
        patience=2,
        score=scores([1.0, 0.5, 0.7, 2.0]),
    )
    assert (len(history), history.best_epoch, history.stopped_by) == (3, 1, "patience")
    assert history.validation[2] < history.validation[0]


def test_a_score_does_not_change_the_run(tmp_path: Path) -> None:
    def score(model: nn.Module) -> Tensor:
        torch.manual_seed(5)
        torch.rand(9)
        model.train()
        return torch.tensor(float(model[0].weight.detach().sum()))

    path = tmp_path / "run.safetensors"
    model, plain = network(), network()
    rising = {"epochs": 3, "batch_size": 7}
    history = bd.fit(model, images(), objective(), score=score, **rising)
    bd.fit(plain, images(), objective(), **{**rising, "epochs": history.best_epoch or 0})
    assert distance(model, plain) == 0
    bd.fit(network(), images(), objective(), score=score, checkpoint=path, **{**rising, "epochs": 2})
    resumed = network()
    again = bd.fit(resumed, images(), objective(), score=score, checkpoint=path, **rising)
    assert distance(resumed, model) == 0
    assert again.score == history.score


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"score": 3}, "`score` must be a function"),
        ({"score": lambda model: "good"}, "gives a finite number"),
        ({"score": lambda model: float("nan")}, "gives a finite number"),
        ({"score": lambda model: torch.zeros(2)}, "gives a finite number"),
        ({"patience": 2}, "validation data or a score"),
        ({"ema": 1.0}, "`ema` must be in"),
        ({"ema": 0}, "`ema` must be a number above 0"),
        ({"accumulate": 0}, "`accumulate` must be"),
        ({"channels_last": 1}, "channels_last"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        trained(**options)
