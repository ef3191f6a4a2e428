"""Experiments on CamVid: frames, losses and scores are what their formulas say; runs can be interrupted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesdrop import metrics
from bayesdrop.data.camvid import CAMVID_CLASSES, CAMVID_VOID
from bayesdrop.experiments import PieceCache, boluki2020_camvid, gal2017_camvid
from bayesdrop.experiments.boluki2020_camvid import report as boluki
from bayesdrop.experiments.camvid import scoring, training
from bayesdrop.experiments.camvid.frames import as_inputs, averaged, commonest
from bayesdrop.experiments.camvid.loss import LIKELIHOOD, PixelLoss, length_scale
from bayesdrop.experiments.camvid.scale import Scale
from bayesdrop.experiments.gal2017_camvid import report as gal
from bayesdrop.functional.entropy import bernoulli_entropy
from bayesdrop.layers import ConcreteNoise, FrozenBatchNorm, rates
from bayesdrop.models import fc_densenet
from bayesdrop.predict import Prediction, predict

CLASSES = len(CAMVID_CLASSES)
SMALL = Scale(blocks=(1, 2), middle=2, growth=3, first=4, crop=(8, 8), batch_size=2, num_train=4).warm_key(0)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def frames(count: int, size: tuple[int, int] = (10, 12), seed: int = 0) -> tuple[Tensor, Tensor]:
    x = torch.randint(256, (count, 3, *size), dtype=torch.uint8, generator=seeded(seed))
    y = torch.randint(CLASSES + 1, (count, *size), generator=seeded(seed + 1))
    return x, y


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made-up frames in the place of CamVid's."""

    def load(part: str, shrink: int) -> tuple[Tensor, Tensor]:
        x, y = frames(6, seed={"train": 0, "val": 2, "test": 4}[part])
        return x, y.to(torch.uint8)

    monkeypatch.setattr(training, "load_frames", load)


# frames


def test_a_label_is_the_commonest_of_its_square_and_a_colour_the_mean() -> None:
    x, y = frames(3, (8, 12))
    y = y % 3 + 9  # so that ties and void are common
    small, labels = averaged(x, 4), commonest(y.to(torch.uint8), 4)
    assert small.shape == (3, 3, 2, 3)
    assert labels.shape == (3, 2, 3)
    for row in range(3):
        for i in range(2):
            for j in range(3):
                square = y[row, 4 * i : 4 * i + 4, 4 * j : 4 * j + 4].flatten().tolist()
                most = max(Counter(square).values())
                assert labels[row, i, j] == min(k for k, n in Counter(square).items() if n == most)
                colours = x[row, :, 4 * i : 4 * i + 4, 4 * j : 4 * j + 4].double().mean((1, 2)).round()
                assert small[row, :, i, j].tolist() == colours.tolist()


# the loss


def test_the_loss_of_a_pixel_has_the_papers_regularisers() -> None:
    net = training.network(SMALL, "concrete", 0.3, "all").double().eval()
    x, y = frames(2)
    loss = PixelLoss(num_data=50, temper=0.01, weight=1e-3)(net, as_inputs(x).double(), y)
    pixels, total = y.shape[1] * y.shape[2], y.numel()
    likelihood = F.cross_entropy(net(as_inputs(x).double()), y, ignore_index=CAMVID_VOID, reduction="sum")
    weights = sum(
        part.weight.square().sum()
        for part in net.modules()
        if isinstance(part, nn.Conv2d | nn.ConvTranspose2d)
    )
    noises = [part for part in net.modules() if isinstance(part, ConcreteNoise)]
    entropy = sum(part.num_units * bernoulli_entropy(part.p) for part in noises)
    expected = likelihood / total + 1e-3 * weights - 0.01 / (50 * pixels) * entropy
    torch.testing.assert_close(loss, expected)


def test_without_noise_the_loss_is_the_same_but_for_the_entropies() -> None:
    noisy, plain = training.network(SMALL, "bernoulli", 0.2), training.network(SMALL)
    plain.load_state_dict(noisy.state_dict(), strict=False)
    x, y = frames(2)
    loss = PixelLoss(num_data=5, temper=0.0)
    ours, theirs = (loss(net.eval(), as_inputs(x), y) for net in (noisy, plain))
    torch.testing.assert_close(ours, theirs)


def test_a_length_scale_gives_its_weight_regulariser_back() -> None:
    scale = length_scale(1e-8, 0.01, 367, 90 * 120)
    # temper * KL / (N H W), of which the weights' part is l^2 / 2 |W|^2
    assert 0.01 * scale**2 / 2 / (367 * 90 * 120) == pytest.approx(1e-8)


# networks


def test_rates_are_in_the_order_in_which_a_frame_meets_their_layers() -> None:
    net = training.network(SMALL, "concrete", 0.2, "all")
    met: list[str] = []
    names = {part: path for path, part in net.named_modules()}

    def note(part: nn.Module, _: Any) -> None:
        met.append(names[part])

    for path in rates(net):
        net.get_submodule(path).register_forward_pre_hook(note)
    net(torch.zeros(2, 3, 8, 8))
    assert list(training.mean_rates(net)) == met
    assert len(met) == 1 + 1 + 2 + 1 + 2 + 2 + 1


@pytest.mark.parametrize("noise", [None, *training.NOISES])
def test_every_method_starts_from_the_shared_weights(noise: str | None) -> None:
    shared = training.network(SMALL).eval()
    x = torch.randn(2, 3, 10, 12, generator=seeded(0))
    net = training.network(SMALL, noise, 0.2, "middle").eval()
    state = {name: value.numpy() for name, value in shared.state_dict().items()}
    training.load_shared(net, {"seconds": 1.0, **state})
    torch.testing.assert_close(net(x), shared(x))
    with pytest.raises(RuntimeError, match=r"another network; middle.0.2.bias"):
        training.load_shared(net, {name: value for name, value in state.items() if name != "middle.0.2.bias"})


# scores


@pytest.mark.parametrize("num_draws", [None, 4])
def test_scores_of_frames_some_at_a_time_are_those_of_all(
    num_draws: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = training.network(SMALL, "bernoulli", 0.4, "all").eval()
    x, y = frames(5)
    y[4] = 3
    monkeypatch.setattr(scoring, "_FRAMES", 2)
    options: dict[str, Any] = {"num_draws": num_draws, "seed": 3}
    ends = scoring.find_entropy_range(net, x, y, **options)
    found = scoring.score(net, x, y, **options, entropy_range=ends)
    if num_draws is None:
        with torch.no_grad():
            whole = Prediction.from_draws(net(as_inputs(x)).unsqueeze(0), LIKELIHOOD)
    else:
        whole = predict(net, as_inputs(x), num_draws=num_draws, seed=3, likelihood=LIKELIHOOD)
    assert ends == pytest.approx(metrics.entropy_range(whole, y, ignore_index=CAMVID_VOID))
    torch.testing.assert_close(found["iou"].float(), metrics.iou(whole, y), equal_nan=True)
    expected = {
        "mean_iou": metrics.mean_iou(whole, y),
        "accuracy": metrics.accuracy(whole, y),
        "log_likelihood": metrics.mean_log_likelihood(whole, y),
        "calibration": metrics.class_calibration_error(whole, y),
        "mean_pavpu": metrics.pavpu(whole, y, patch=2, num_thresholds=21, entropy_range=ends).mean,
    }
    assert {name: found[name] for name in expected} == {
        name: pytest.approx(float(value), rel=1e-5) for name, value in expected.items()
    }


def test_iou_by_image_is_of_the_classes_that_an_image_has() -> None:
    _, y = frames(3)
    y[2] = 7
    predicted = torch.randint(CLASSES, y.shape, generator=seeded(9))
    counts = scoring.confusion_by_image(predicted, y)
    means = []
    for truth, guess in zip(y, predicted, strict=True):
        known = truth != CAMVID_VOID
        values = []
        for k in range(CLASSES):
            ours, theirs = (truth == k) & known, (guess == k) & known
            if ours.any():
                values.append(int((ours & theirs).sum()) / int((ours | theirs).sum()))
        means.append(sum(values) / len(values))
    assert scoring.mean_iou_by_image(counts) == pytest.approx(sum(means) / 3)
    assert int(counts.sum()) == int((y != CAMVID_VOID).sum())


def test_maps_tell_right_from_wrong_and_void_and_hold_no_frame() -> None:
    net = training.network(SMALL, "bernoulli", 0.4, "all").eval()
    x, y = frames(5)
    maps = scoring.make_maps(net, x, y, 2, num_draws=3, seed=0)
    assert {name: value.shape for name, value in maps.items()} == {
        f"map: {name}": (2, 10, 12) for name in ("label", "right", "noise", "model")
    }
    truth = y[[1, 3]].numpy()
    assert ((maps["map: right"] == 2) == (truth == CAMVID_VOID)).all()
    assert ((maps["map: right"] == 1) == (maps["map: label"] == truth)).all()


# runs


@pytest.mark.usefixtures("drawn")
def test_shared_training_goes_on_where_it_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm = {**SMALL, "warm_epochs": 3}
    whole = training._Pretrain(str(tmp_path / "whole"), resume=True)(warm)
    writes: Iterator[int] = iter(range(100))
    write = training._Watch.write

    def interrupted(watch: Any) -> None:
        write(watch)
        if next(writes) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(training._Watch, "write", interrupted)
    pretrain = training._Pretrain(str(tmp_path / "parts"), resume=True)
    with pytest.raises(KeyboardInterrupt):
        pretrain(warm)
    parts = pretrain(warm)
    assert next(writes) == 3, "two epochs before the interruption, and one after it"
    assert {name for name in whole if name != "seconds"} == {name for name in parts if name != "seconds"}
    assert all((whole[name] == parts[name]).all() for name in whole if name != "seconds")
    assert not list((tmp_path / "parts").rglob("*.*"))


@pytest.mark.usefixtures("drawn")
def test_both_experiments_share_the_weights_and_norm_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    score = training._scores

    def look(net: nn.Module, *args: Any) -> Any:
        norms = [part for part in net.modules() if isinstance(part, FrozenBatchNorm)]
        seen.append(bool(norms) and not any(isinstance(part, nn.BatchNorm2d) for part in net.modules()))
        return score(net, *args)

    monkeypatch.setattr(training, "_scores", look)
    small = {"crop": (8, 8), "blocks": (1,), "middle": 2, "num_train": 4, "num_test": 2}
    first = gal2017_camvid.run(
        replace(gal2017_camvid.SMOKE, **small), cache=PieceCache("one", folder=tmp_path), progress=False
    )
    folder = tmp_path / training.WEIGHTS
    assert len(list(folder.iterdir())) == 1
    config = replace(boluki2020_camvid.SMOKE, **small, methods=boluki2020_camvid.Config().methods)
    second = boluki2020_camvid.run(config, cache=PieceCache("two", folder=tmp_path), progress=False)
    assert len(list(folder.iterdir())) == 1
    assert seen
    assert all(seen)
    assert first.complete
    assert second.complete
    assert {row.paper for row in first.rows if row.metric == "IoU (%)"} == {65.8, 67.1, 67.2, 67.4}


@pytest.mark.usefixtures("drawn")
def test_the_published_solver_falls_by_half_a_percent_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    fit = training.fit

    def watched(net: nn.Module, *args: Any, **options: Any) -> Any:
        schedule = options["scheduler"]
        options["scheduler"] = lambda made: seen.append(schedule(made)) or seen[-1]
        return fit(net, *args, **options)

    monkeypatch.setattr(training, "fit", watched)
    warm = {**SMALL, "solver": "rmsprop", "crop": None}
    loss = PixelLoss(4, temper=0.0)
    training._fit(training.network(warm), warm, loss, epochs=3, lr=1e-3, rate_lr=None, weight_decay=2e-4)
    (schedule,) = seen
    assert isinstance(schedule.optimizer, torch.optim.RMSprop)
    assert schedule.get_last_lr() == [pytest.approx(1e-3 * 0.995**3)]


def test_the_paper_preset_is_the_published_network() -> None:
    published = {name: value.shape for name, value in fc_densenet(103, p=0.0).state_dict().items()}
    for module in (gal2017_camvid, boluki2020_camvid):
        config = module.PRESETS["paper"]
        net = training.network(config.warm_key(0))
        assert config.shrink == 1
        assert {name: value.shape for name, value in net.state_dict().items()} == published


# claims


@pytest.mark.parametrize(("behind", "holds"), [(0.009, True), (0.011, False)])
def test_learned_rates_may_be_one_point_behind(behind: float, holds: bool) -> None:
    def piece(iou: float) -> dict[str, Any]:
        found: dict[str, Any] = {"rates": [0.1, 0.2, 0.05, 0.1, 0.3]}
        for way in ("single", "draws"):
            for name in {**gal.METRICS, **boluki.METRICS}:
                found[f"{way}: {name}"] = iou
        return found

    runs = {"none": [piece(0.3)], "bernoulli": [piece(0.4)], "concrete": [piece(0.4 - behind)]}
    config = gal2017_camvid.Config(starts=())
    ours = [claim.holds for claim in gal.make_claims(config, runs) if "1 point" in claim.text]
    assert ours == [holds, holds]
    runs = {"bernoulli": [piece(0.4)], "layer": [piece(0.4 - behind)]}
    assert [claim.holds for claim in boluki.make_claims(runs) if "1 point" in claim.text] == [holds]
