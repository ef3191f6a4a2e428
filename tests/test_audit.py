"""audit(): what is random in a model, and what would silently not be."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesdrop import BernoulliDropout, DropConnect, predict
from bayesdrop.audit import Audit, audit, audit_target
from bayesdrop.trace import Site


class Net(nn.Module):
    """Every kind of site, one that is never run, and one that its author turned off."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.dropout = nn.Dropout(0.1)
        self.unused = nn.Dropout2d(0.2)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.layer = BernoulliDropout(nn.Linear(8, 8), p=0.25)
        self.recurrent = nn.LSTM(8, 8, 2, dropout=0.3, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        h = self.dropout(self.first(x))
        h = h + self.attention(h, h, h)[0]
        h = F.dropout(F.dropout(h, 0.4, self.training), 0.5, False)
        q = self.recurrent(self.layer(h))[0]
        out: Tensor = F.scaled_dot_product_attention(q, q, q, dropout_p=0.6 if self.training else 0.0)
        return out


X = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0))
RAN = [
    Site("dropout", 0, "Dropout", 0.1, (1, 5, 8), True, "on"),
    Site("attention", 0, "attention", 0.0, None, False, "p = 0"),
    Site("", 0, "F.dropout", 0.4, (1, 5, 8), True, "on"),
    Site("", 1, "F.dropout", 0.5, None, False, "called with training=False"),
    Site("layer", 0, "BernoulliDropout.input", 0.25, (1, 1, 8), True, "on"),
    Site("recurrent", 0, "LSTM", 0.3, (1, 5, 8), True, "on"),
    Site("", 2, "F.scaled_dot_product_attention", 0.6, (1, 5, 5), True, "on"),
    Site("unused", 0, "Dropout2d", 0.2, None, False, "not reached"),
]
SEEN = [
    Site("", 0, "F.dropout", None, None, False, "functional call, seen only with x"),
    Site("", 0, "F.scaled_dot_product_attention", None, None, False, "functional call, seen only with x"),
    Site("dropout", 0, "Dropout", 0.1, None, True, "on"),
    Site("unused", 0, "Dropout2d", 0.2, None, True, "on"),
    Site("attention", 0, "attention", 0.0, None, False, "p = 0"),
    Site("layer", 0, "BernoulliDropout", 0.25, None, True, "on"),
    Site("recurrent", 0, "LSTM", 0.3, None, True, "on"),
]


def test_with_inputs_every_site_that_ran_is_listed_in_order() -> None:
    report = audit(Net(), X)
    assert list(report.sites) == RAN
    assert report.random
    assert report.ran
    assert [site.name for site in report.off] == ["attention", "(model) call 1", "unused"]


def test_without_inputs_modules_are_looked_at() -> None:
    report = audit(Net())
    assert list(report.sites) == SEEN
    assert report.random
    assert not report.ran


@pytest.mark.filterwarnings("ignore::bayesdrop.predict.sampler.PartlyRandom")
def test_what_is_listed_is_what_predict_does() -> None:
    """Excluding every site that is on leaves nothing; excluding all but one leaves that one."""
    model = Net().double()
    on = [site.path for site in audit(model, X.double()).sites if site.random]
    assert len(on) == 5
    for path in set(on) - {""}:
        predict(model, X.double(), num_draws=2, include=lambda p, _, path=path: p == path)
    with pytest.raises(ValueError, match="must contain a stochastic layer"):
        predict(model, X.double(), exclude=lambda path, _: path in on)


def test_the_report_is_a_table() -> None:
    lines = str(audit(Net(), X)).splitlines()
    assert lines[0] == "Net: 5 of 8 sites are random (one pass was run)"
    assert lines[1].split() == ["site", "kind", "p", "noise", "state"]
    assert len(lines) == 10
    assert lines[2].split() == ["dropout", "Dropout", "0.1", "1", "x", "5", "x", "8", "on"]
    assert lines[5].endswith("off: called with training=False")
    assert "?: functional call, seen only with x" in str(audit(Net()))
    assert repr(audit(Net(), X)) == "Audit(Net: 5 of 8 sites are random (one pass was run))"


def test_the_report_is_a_rich_table() -> None:
    rich = pytest.importorskip("rich.console")
    console = rich.Console(width=140, file=io.StringIO())
    console.print(audit(Net(), X))
    text = console.file.getvalue()
    for cell in ("scaled_dot_product_attention", "not reached", "called with training=False", "1 x 5 x 8"):
        assert cell in text


def test_a_model_without_randomness_has_an_empty_report() -> None:
    for report in (audit(nn.Linear(3, 2)), audit(nn.Linear(3, 2), torch.zeros(1, 3))):
        assert not report.random
        assert report.sites == ()
        assert str(report).startswith("Linear: 0 of 0 sites are random")
        assert "\n" not in str(report)


def test_rates_of_zero_and_layers_without_a_successor_are_named() -> None:
    with pytest.warns(UserWarning, match="dropout option adds dropout after all but last"):
        lstm = nn.LSTM(4, 4, dropout=0.5, batch_first=True)

    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = lstm
            self.layers = nn.Sequential(nn.Dropout(0.0), DropConnect(nn.Linear(4, 4), p=0.0))

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.layers(self.lstm(x)[0])
            return out

    for report in (audit(Last()), audit(Last(), X)):
        reasons = {site.path: site.reason for site in report.sites}
        assert reasons == {"lstm": "no layer after it", "layers.0": "p = 0", "layers.1": "p = 0"}
        assert not report.random


def test_calls_are_found_in_the_code_and_in_the_functions_it_calls() -> None:
    class Mine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.empty(3).normal_())
            self.dropout = nn.Identity()

        def reset_parameters(self) -> None:
            self.weight.data.uniform_()

        def forward(self, x: Tensor) -> Tensor:
            return helper(self.dropout(x)) * torch.nn.functional.alpha_dropout(x, 0.1, self.training)

    assert [site.kind for site in audit(Mine()).sites] == [
        "torch.rand_like",
        "Tensor.bernoulli_",
        "F.alpha_dropout",
    ]
    assert [site.kind for site in audit(Mine(), torch.ones(2, 3)).sites] == [
        "torch.bernoulli_",
        "F.alpha_dropout",
    ]


def helper(x: Tensor) -> Tensor:
    return noise(x) if x.numel() > 1e9 else x * torch.empty_like(x).bernoulli_(0.5)


def noise(x: Tensor) -> Tensor:
    return x + torch.rand_like(x)


class TrainingOnly(nn.Module):
    def forward(self, x: Tensor) -> Any:
        h = F.dropout(x, 0.5, self.training)
        return (F.dropout(h, 0.3), h) if self.training else torch.softmax(h, -1)


def test_what_is_on_in_training_only_is_named() -> None:
    report = audit(TrainingOnly(), torch.ones(2, 3))
    assert [site.reason for site in report.off] == ["on in training mode only, which does other things"]


def test_notes_tell_what_a_table_cannot() -> None:
    class Unreached(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            F.dropout(x, 0.5, self.training)
            return x * 2

    class Unheld(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.dropout(x, 0.5, self.training) * torch.randperm(x.shape[1])

    assert audit(Unreached(), torch.ones(2, 3)).notes == ("no noise reaches the output",)
    notes = audit(Unheld(), torch.ones(2, 3)).notes
    assert notes[0] == "the model draws numbers that no seed can repeat: randperm"
    assert notes[1].startswith("every draw runs the whole model: the model calls randperm")
    assert "note: no noise reaches the output" in str(audit(Unreached(), torch.ones(2, 3)))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_script_with_dropout_is_named() -> None:
    script = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)))
    model = nn.Sequential(script, nn.Dropout(0.1))
    report = audit(model, torch.ones(2, 4))
    assert [(site.path, site.reason) for site in report.off] == [
        ("0", "a script: its dropout cannot be held")
    ]
    assert audit(script, torch.ones(2, 4)).off[0].kind == "script"
    assert audit(model).off[0].kind == "script"


def test_inputs_may_be_anything_that_predict_takes() -> None:
    net = nn.Sequential(nn.Dropout(0.5))
    batches = [torch.ones(2, 3), torch.ones(2, 3)]
    for x in (torch.ones(2, 3), (torch.ones(2, 3),), {"input": torch.ones(2, 3)}, iter(batches), batches):
        assert audit(net, x).sites[0].shape == (1, 3)
    assert audit(torch.nn.DataParallel(net), torch.ones(2, 3)).model == "Sequential"
    with pytest.raises(ValueError, match="`x` must be at least one batch"):
        audit(net, [])
    with pytest.raises(TypeError, match=r"`model` must be an nn\.Module"):
        audit("net")  # type: ignore[arg-type]


def test_nothing_is_left_changed() -> None:
    model = Net().train()
    model.dropout.eval()
    flags = {name: module.training for name, module in model.named_modules()}
    state = torch.get_rng_state()
    audit(model, X)
    audit(model)
    assert flags == {name: module.training for name, module in model.named_modules()}
    assert torch.equal(torch.get_rng_state(), state)
    assert not model._forward_hooks
    assert not model._forward_pre_hooks

    class Failing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise ZeroDivisionError("on purpose")

    failing = Failing().train()
    with pytest.raises(ZeroDivisionError):
        audit(failing, X)
    assert failing.training is True


# from the command line

SOURCE = """
import torch
from torch import nn

made = nn.Sequential(nn.Dropout(0.25))
number = 3

def build():
    return nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5))

def with_inputs():
    return build(), torch.zeros(4, 3)

def wrong():
    return "a model"

def fails():
    raise KeyError("weights.pt")

def needs(arguments):
    return build()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.1)

    @staticmethod
    def make():
        return build()
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    package = tmp_path / "audited_project"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "models.py").write_text(SOURCE)
    (package / "broken.py").write_text("import no_such_package_anywhere\n")
    (package / "wrong.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("audited_project")]:
        del sys.modules[name]


def test_a_target_is_built_and_audited(project: Path) -> None:
    before = list(sys.path)
    report = audit_target("audited_project.models:build")
    assert isinstance(report, Audit)
    assert [(site.path, site.p, report.ran) for site in report.sites] == [("1", 0.5, False)]
    report = audit_target("audited_project.models:with_inputs")
    assert report.ran
    assert report.sites[0].shape == (1, 2)
    assert audit_target("audited_project.models:Net").sites[0].path == "drop"
    assert audit_target("audited_project.models:Net.make").sites[0].p == 0.5
    assert audit_target("audited_project.models:made").sites[0].p == 0.25
    assert sys.path == before


def test_a_target_may_be_in_another_directory(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    assert audit_target("audited_project.models:build", directory=project).random


@pytest.mark.parametrize(
    ("target", "error", "message"),
    [
        ("models", ValueError, "`target` must be 'package.module:function'; got 'models'"),
        (":build", ValueError, "must be 'package.module:function'"),
        ("audited_project.models:", ValueError, "must be 'package.module:function'"),
        ("no_such_package_at_all:build", ValueError, "no module 'no_such_package_at_all'"),
        ("audited_project.nowhere:build", ValueError, "no module 'audited_project.nowhere'"),
        ("audited_project.broken:build", ValueError, "importing .* failed: .*no_such_package_anywhere"),
        ("audited_project.wrong:build", ValueError, "importing .* failed: ZeroDivisionError"),
        ("audited_project.models:biuld", ValueError, "There are: .*build.*with_inputs"),
        ("audited_project.models:number", TypeError, "must be a function; got .*models:number, a int"),
        ("audited_project.models:wrong", TypeError, "returns an nn.Module.* which returns str"),
        ("audited_project.models:fails", ValueError, "models:fails failed: KeyError: 'weights.pt'"),
        ("audited_project.models:needs", ValueError, "models:needs failed: TypeError: .*arguments"),
    ],
)
def test_a_target_that_cannot_be_audited_says_why(
    project: Path, target: str, error: type[Exception], message: str
) -> None:
    before = list(sys.path)
    with pytest.raises(error, match=message):
        audit_target(target)
    assert sys.path == before
