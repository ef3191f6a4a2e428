"""inject(): a trained network gets a spread that held-out rows bear out, and its weights stay."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bayesdrop as bd
from bayesdrop.metrics import accuracy, mean_log_likelihood, rmse

RATES = (0.02, 0.1, 0.3)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def regression(rows: int = 200, noise: float = 0.5) -> tuple[nn.Sequential, Tensor, Tensor]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 50), nn.Tanh(), nn.Linear(50, 20), nn.Tanh(), nn.Linear(20, 1)).eval()
    x = torch.randn(rows, 3, generator=seeded(1))
    with torch.no_grad():
        y = net(x) + noise * torch.randn(rows, 1, generator=seeded(2))
    return net, x, y


def classes(rows: int = 300) -> tuple[nn.Module, Tensor, Tensor]:
    """A network that is far too sure: its labels come from logits a fifth as large."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(4, 40), nn.Linear(40, 3)

        def forward(self, x: Tensor) -> Tensor:
            return 10 * self.head(F.relu(self.body(x)))  # type: ignore[no-any-return]

    torch.manual_seed(0)
    net = Net().eval()
    x = torch.randn(rows, 4, generator=seeded(1))
    with torch.no_grad():
        y = torch.multinomial((net(x) / 5).softmax(1), 1, generator=seeded(2)).squeeze(1)
    return net, x, y


# what comes out


def test_the_network_itself_is_untouched_and_the_copy_has_its_weights() -> None:
    net, x, y = regression()
    before, flags = copy.deepcopy(net.state_dict()), [part.training for part in net.modules()]
    state = torch.get_rng_state()
    injection = bd.inject(net, (x, y), likelihood=bd.Gaussian(0.3), rates=RATES)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert [part.training for part in net.modules()] == flags
    assert not any(isinstance(part, bd.StochasticLayer) for part in net.modules())
    assert injection.paths == ("4",)
    torch.testing.assert_close(injection.model(x), net(x))


def test_what_is_reported_is_what_predict_gives() -> None:
    net, x, y = regression()
    likelihood = bd.Gaussian(0.3)
    injection = bd.inject(net, (x, y), likelihood=likelihood, num_draws=50, seed=4, scales=(0.5, 1.0))
    assert len(injection.candidates) == 20
    prediction = bd.predict(injection.model, x, likelihood=likelihood, num_draws=50, seed=4, targets=y)
    own = next(c for c in injection.candidates if (c.p, c.scale) == (injection.p, injection.scale))
    assert float(mean_log_likelihood(prediction, y)) == pytest.approx(own.log_likelihood, rel=1e-5)
    assert float(rmse(prediction, y)) == pytest.approx(injection.quality_after, rel=1e-5)
    plain = bd.Prediction.from_draws(net(x).detach().unsqueeze(0), likelihood)
    assert float(mean_log_likelihood(plain, y)) == pytest.approx(injection.before, rel=1e-5)
    assert float(rmse(plain, y)) == pytest.approx(injection.quality_before, rel=1e-5)


@pytest.mark.parametrize("kind", ["bernoulli", "gaussian", "dropconnect"])
@pytest.mark.parametrize("where", ["last", "every layer", "2", nn.Linear])
def test_every_candidate_is_what_predict_gives_wherever_the_noise_is(kind: Any, where: Any) -> None:
    net, x, y = regression(60)
    likelihood = bd.Gaussian(0.3)
    found = bd.inject(
        net, (x, y), likelihood=likelihood, where=where, kind=kind, rates=(0.05, 0.2), scales=(0.5, 1.0),
        num_draws=20, tolerance=9, batch_size=25,
    )  # fmt: skip
    paths = {"last": ("4",), "2": ("2",)}.get(where, ("0", "2", "4"))
    assert found.paths == paths
    for candidate in found.candidates:
        layer: Any = {"bernoulli": bd.BernoulliDropout, "gaussian": bd.GaussianDropout}.get(
            kind, bd.DropConnect
        )
        options: dict[str, Any] = {}
        if candidate.scale != 1:
            layer, options = bd.ScaledDropout, {"scale": candidate.scale}
        made = bd.convert(net, layer, where=list(paths), p=candidate.p, **options)
        prediction = bd.predict(made, x, likelihood=likelihood, num_draws=20, targets=y)
        value = float(mean_log_likelihood(prediction, y))
        assert value == pytest.approx(candidate.log_likelihood, rel=1e-4)
    assert {c.scale for c in found.candidates} == ({0.5, 1.0} if kind == "bernoulli" else {1.0})


def test_the_search_finds_the_spread_that_is_there() -> None:
    """The outputs of the true network are a draw with p = 0.2: the likeliest rate is near it."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 200), nn.ReLU(), nn.Linear(200, 1)).double()
    x = 3 * torch.randn(2000, 3, generator=seeded(1), dtype=torch.double)
    with torch.no_grad():
        kept = (torch.rand(2000, 200, generator=seeded(2)) >= 0.2) / 0.8
        y = net[2](net[1](net[0](x)) * kept) + 0.2 * torch.randn(2000, 1, generator=seeded(3))
    rates = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.5)
    found = bd.inject(net, (x, y), likelihood=bd.Gaussian(0.2), rates=rates, scales=(1.0,), num_draws=200)
    assert found.p in (0.15, 0.2, 0.25)
    assert found.improves
    assert found.after is not None
    assert found.before is not None
    assert found.standard_error is not None
    assert found.after - found.before > 5 * found.standard_error


def test_a_network_that_is_too_sure_becomes_less_sure_and_as_accurate() -> None:
    net, x, y = classes()
    found = bd.inject(net, (x, y), likelihood=bd.Categorical(), tolerance=0.02)
    assert found.improves
    assert found.metric == "accuracy"
    assert found.quality_after >= found.quality_before - 0.02  # type: ignore[operator]
    text = str(found)
    assert "not a posterior that was trained" in text
    assert "300 held-out rows" in text
    prediction = bd.predict(found.model, x, likelihood=bd.Categorical())
    assert float(accuracy(prediction, y)) == pytest.approx(found.quality_after)


def test_where_no_noise_helps_the_report_says_so() -> None:
    net, x, y = regression(noise=0.3)
    found = bd.inject(net, (x, y), likelihood=bd.Gaussian(0.35), rates=(0.3, 0.4), scales=(1.0,), tolerance=9)
    assert not found.improves
    assert "No noise that was tried makes these rows likelier" in str(found)


def test_the_likelihood_after_is_not_flattered_by_the_choice() -> None:
    """Each half of the rows is scored with the noise that the other half chooses."""
    net, x, y = regression(40)
    found = bd.inject(net, (x, y), likelihood=bd.Gaussian(0.3), num_draws=20, tolerance=9)
    best = max(c.log_likelihood for c in found.candidates)  # type: ignore[type-var]
    assert found.after < best + 1e-9  # type: ignore[operator]


# what comes before the noise


class Counted(nn.Module):
    """Counts the rows that it is given, in a list, which private copies share."""

    rows: ClassVar[list[int]] = []

    def forward(self, x: Tensor) -> Tensor:
        Counted.rows.append(len(x))
        return x * 1.5


def test_the_part_before_the_noise_runs_once_for_the_whole_search() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(Counted(), nn.Linear(3, 20), nn.ReLU(), nn.Linear(20, 1))
    x, y = torch.randn(300, 3), torch.randn(300, 1)
    Counted.rows.clear()
    found = bd.inject(net, (x, y), likelihood=bd.Gaussian(1.0), batch_size=100, num_draws=10, tolerance=9)
    assert len(found.candidates) == 40
    large = [rows for rows in Counted.rows if rows > 2]
    assert large == [100, 100, 100]
    assert len(Counted.rows) < 30


def test_a_pass_that_cannot_be_recorded_is_run_whole_and_gives_the_same() -> None:
    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(3, 20), nn.Linear(20, 1)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(torch.tanh(self.body(x)))
            return out if float(out.detach().sum()) > math.inf else out * 1.0

    torch.manual_seed(0)
    net, x, y = Reads(), torch.randn(40, 3), torch.randn(40, 1)
    plain = nn.Sequential(net.body, nn.Tanh(), net.head)
    options: dict[str, Any] = {
        "likelihood": bd.Gaussian(1.0),
        "rates": RATES,
        "num_draws": 10,
        "tolerance": 9,
    }
    whole = bd.inject(net, (x, y), **options)
    again = bd.inject(plain, (x, y), **options, where="2")
    assert whole.paths == ("head",)
    assert whole.before == pytest.approx(again.before)
    # The noise of another path is other noise; at the chosen strength it is that of `predict`.
    prediction = bd.predict(whole.model, x, likelihood=bd.Gaussian(1.0), num_draws=10, targets=y)
    own = next(c for c in whole.candidates if (c.p, c.scale) == (whole.p, whole.scale))
    assert float(mean_log_likelihood(prediction, y)) == pytest.approx(own.log_likelihood, rel=1e-5)


# without labels


def information(probs: Tensor) -> float:
    """Sum over rows and classes of p(n, y) log p(n, y) / (p(n) p(y))."""
    joint = probs / len(probs)
    rest = joint.sum(0, keepdim=True) * joint.sum(1, keepdim=True)
    return float((joint * (joint / rest).log()).sum())


def test_without_labels_the_noise_is_the_largest_that_keeps_the_information() -> None:
    net, x, _ = classes()
    found = bd.inject(net, x, likelihood=bd.Categorical(), target="information", bound=0.1)
    clean = net(x).detach().double().softmax(1)
    assert found.information_before == pytest.approx(information(clean), rel=1e-5)
    prediction = bd.predict(found.model, x, likelihood=bd.Categorical())
    assert found.information_after == pytest.approx(information(prediction.probs.double()), rel=1e-4)
    lost = 1 - found.information_after / found.information_before  # type: ignore[operator]
    assert lost <= 0.1
    more = [c for c in found.candidates if c.p > found.p]
    assert more
    assert not any(c.allowed for c in more)
    assert min(c.p for c in more) < 1.1 * found.p
    assert found.before is None
    assert found.metric is None


def test_the_information_of_numbers_is_that_of_gaussians() -> None:
    net, x, _ = regression()
    found = bd.inject(net, DataLoader(x, 64), likelihood=bd.Gaussian(0.5), target="information", bound=0.2)
    signal = net(x).var(0, correction=0).detach()
    assert found.information_before == pytest.approx(float(0.5 * torch.log1p(signal / 0.25)), rel=1e-4)
    assert found.information_after >= 0.8 * found.information_before  # type: ignore[operator]


def test_a_bound_that_no_rate_keeps_is_refused() -> None:
    net, x, _ = classes()
    with pytest.raises(ValueError, match="inject: `bound` must be a loss that some rate stays below"):
        bd.inject(net, x, likelihood=bd.Categorical(), target="information", bound=1e-9, rates=(0.4, 0.5))


# data and models of all kinds


def test_loaders_arrays_and_tensors_give_the_same() -> None:
    net, x, y = regression(120)
    options: dict[str, Any] = {"likelihood": bd.Gaussian(0.3), "rates": RATES, "num_draws": 10}
    ways = [
        bd.inject(net, data, **options)
        for data in ((x, y), (x.numpy(), y.numpy()), DataLoader(TensorDataset(x, y), 50))
    ]
    assert len({(way.p, way.scale) for way in ways}) == 1
    assert [way.before for way in ways] == pytest.approx([ways[0].before] * 3, rel=1e-5)


def test_a_rate_that_is_given_is_used_and_measured_where_there_are_data() -> None:
    net, x, y = regression()
    bare = bd.inject(net, likelihood=bd.Gaussian(0.3), p=0.25)
    assert (bare.p, bare.paths, bare.before, bare.num_rows) == (0.25, ("4",), None, 0)
    assert "whose rate was given" in str(bare)
    seen = bd.inject(net, (x, y), likelihood=bd.Gaussian(0.3), p=0.25, tolerance=9)
    assert seen.candidates[0].p == seen.p == 0.25
    assert seen.after == pytest.approx(seen.candidates[0].log_likelihood)
    assert torch.equal(bare.model(x), seen.model(x))
    alone = bd.inject(net, (x[:1], y[:1]), likelihood=bd.Gaussian(0.3), p=0.25, tolerance=9)
    assert alone.standard_error is None
    assert "before" in str(alone)


def test_files_hold_what_was_injected(tmp_path: Path) -> None:
    net, x, y = regression()
    found = bd.inject(net, (x, y), likelihood=bd.Gaussian(0.3), rates=(0.4, 0.5), scales=(0.25,), tolerance=9)
    assert found.scale == 0.25
    bd.save(found.model, tmp_path / "net.safetensors")
    loaded = bd.load(tmp_path / "net.safetensors")
    assert torch.equal(
        bd.predict(loaded, x, num_draws=7).draws, bd.predict(found.model, x, num_draws=7).draws
    )
    back = bd.convert(found.model, "none", where=bd.StochasticLayer)
    assert all(torch.equal(a, b) for a, b in zip(back.parameters(), net.parameters(), strict=True))


def test_a_dropout_of_rate_zero_can_be_the_place() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 20), nn.ReLU(), nn.Dropout(0.0), nn.Linear(20, 1))
    x, y = torch.randn(50, 3), torch.randn(50, 1)
    found = bd.inject(net, (x, y), likelihood=bd.Gaussian(1.0), where="2", num_draws=10, tolerance=9)
    assert found.paths == ("3",)
    assert bd.predict(found.model, x).epistemic.max() > 0
    both = bd.inject(net, likelihood=bd.Gaussian(1.0), where=["0", "2"], p=0.2)
    assert both.paths == ("0", "3")


def test_one_layer_alone_is_a_network() -> None:
    torch.manual_seed(0)
    net, x, y = nn.Linear(3, 1), torch.randn(50, 3), torch.randn(50, 1)
    found = bd.inject(net, (x, y), likelihood=bd.Gaussian(1.0), num_draws=10, tolerance=9)
    assert found.paths == ("",)
    assert "before the model itself" in str(found)
    assert isinstance(found.model, bd.StochasticLayer)


def test_images_with_void_pixels() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 3, 1))
    x, y = torch.randn(6, 1, 8, 8), torch.randint(3, (6, 8, 8))
    y[:, 0] = 255
    found = bd.inject(net, (x, y), likelihood=bd.Categorical(ignore_index=255), rates=RATES, tolerance=1)
    assert found.paths == ("2",)
    assert found.num_rows == 6


@pytest.mark.filterwarnings("ignore::bayesdrop.PartlyRandom")  # of its dropouts, whose rates stay 0
@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_hugging_face_models_without_dropout(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    if name == "bert":
        config = transformers.BertConfig(
            hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=30,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=3,
        )  # fmt: skip
        net = transformers.BertForSequenceClassification(config).eval()
    else:
        config = transformers.GPT2Config(
            n_embd=16, n_layer=1, n_head=2, vocab_size=30, num_labels=3, pad_token_id=0, bos_token_id=0,
            eos_token_id=0,            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        )  # fmt: skip
        net = transformers.GPT2ForSequenceClassification(config).eval()
    tokens = torch.randint(1, 30, (40, 6), generator=seeded(0))
    x = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    y = torch.randint(3, (40,), generator=seeded(1))
    found = bd.inject(net, (x, y), likelihood=bd.Categorical(), rates=RATES, num_draws=10, tolerance=1)
    assert found.paths == ("classifier" if name == "bert" else "score",)
    assert bd.predict(found.model, x, likelihood=bd.Categorical()).mutual_information.max() > 0


# errors


def test_a_model_that_has_dropout_is_refused_however_it_drops() -> None:
    _, x, y = regression()

    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(3, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(F.dropout(x, 0.3, self.training))  # type: ignore[no-any-return]

    models = [
        nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1)),
        nn.Sequential(bd.GaussianDropout(nn.Linear(3, 1), 0.2)),
        Functional(),
    ]
    for model in models:
        with pytest.raises(ValueError, match="inject: `model` must be a network in which nothing is random"):
            bd.inject(model, (x, y), likelihood=bd.Gaussian(0.3))


def refused(match: str, *args: Any, kind: type[Exception] = ValueError, **options: Any) -> None:
    options.setdefault("likelihood", bd.Gaussian(0.3))
    with pytest.raises(kind, match=match):
        bd.inject(*args, **options)


def test_what_cannot_be_done_is_refused_by_name() -> None:
    net, x, y = regression()
    refused(r"`data` must be at least 30 targets .* got 29", net, (x[:29], y[:29]))
    refused(r"`data` must be at least 30 rows .* got 20", net, x[:20], target="information")
    refused("`where` must be used with a model whose output comes from a linear map", nn.ReLU(), (x, y))
    refused("`where` must be something that the model has", net, (x, y), where="encoder")
    refused("`data` must be held-out rows to choose the rate by", net)
    refused("`data` must be a pair", net, x, kind=TypeError)
    refused("`data` must be a pair", net, (x, y[:10]))
    refused("`target` must be", net, (x, y), target="accuracy")
    refused("`rates` must be", net, (x, y), rates=())
    refused("`p` must be in", net, (x, y), p=1.0)
    refused("`likelihood` must be a Likelihood", net, (x, y), likelihood=None, kind=TypeError)
    refused(
        "refused, as the mean prediction becomes worse", net, (x, y), rates=(0.95,), scales=(1,), num_draws=2
    )
    with pytest.raises(ValueError, match="`kind` must be one of 'bernoulli', 'gaussian', 'dropconnect'"):
        bd.inject(net, (x, y), likelihood=bd.Gaussian(0.3), kind="concrete")  # type: ignore[arg-type]


def test_noise_that_does_not_reach_the_output_is_refused() -> None:
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = nn.Linear(3, 1), nn.Linear(3, 1)

        def forward(self, x: Tensor) -> Tensor:
            self.idle(x)
            return self.used(x)  # type: ignore[no-any-return]

    _, x, y = regression()
    with pytest.raises(
        ValueError, match="inject: `where` must be layers that the output depends on; got 'idle'"
    ):
        bd.inject(Idle(), (x, y), likelihood=bd.Gaussian(0.3), where="idle")
