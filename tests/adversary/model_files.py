"""Damaged and hostile files of models: each must give back what was written, or be refused with its name.

Three kinds of attack, on all that the library writes and reads back:

    accidents   bits flip, blocks are lost, swapped or doubled, tensors change places: nothing may load
    authors     somebody writes a file on purpose, with checksums that are right: what loads is what the file
                says, and nothing is taken from memory that the file does not hold
    folders     the same for the files of a table model
"""

from __future__ import annotations

import atexit
import copy
import json
import random
import re
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import bayesdrop as bd
from bayesdrop.calibration import ConformalRegressor, TemperatureScaling
from bayesdrop.estimators import DropoutClassifier, DropoutRegressor
from bayesdrop.storage import read_tensors, to_json, write_tensors

#: memory that a file of a few kilobytes may cost, in kilobytes
_MOST_KILOBYTES = 100_000
#: what reading a file came to: the tensors and all else that it brought back
Read = tuple[dict[str, Tensor], str]


@dataclass(frozen=True)
class Base:
    """A sound file, or folder, and how it is read."""

    name: str
    path: Path
    read: Callable[[Path], Read]
    kind: str = ""  #: of a safetensors file

    def truth(self) -> Read:
        """What reading the sound file gives."""
        return _truths(self)


@cache
def _truths(base: Base) -> Read:
    return base.read(base.path)


def outcomes(seed: int, count: int) -> Counter[str]:
    """How many of `count` attacks ended right, refused and wrong.

    Args:
        seed: the same seed, the same attacks.
        count: how many.
    """
    found = Counter({"right": 0, "refused": 0, "wrong": 0})
    for place in range(count):
        outcome, said = attempt(seed, place)
        found[outcome] += 1
        if outcome == "wrong":
            print(f"seed {seed}, place {place}: {said}", file=sys.stderr)
    return found


def attempt(seed: int, place: int) -> tuple[str, str]:
    """One attack: "right", "refused" or "wrong", and what it was."""
    rng = random.Random(f"{seed} {place}")
    attack = rng.choice(ATTACKS)
    with tempfile.TemporaryDirectory() as folder:
        base, path, says = attack(rng, Path(folder))
        what = f"{attack.__name__} of {base.name} ({seed}, {place})"
        with _little_memory() as memory:
            try:
                state, rest = base.read(path)
            except (ValueError, OSError) as error:
                end, said = (
                    ("refused" if path.name in str(error) else "wrong"),
                    f"{type(error).__name__}: {error}",
                )
            except Exception as error:
                end, said = "wrong", f"{type(error).__name__}: {error}"
            else:
                same = _same(state, says[0]) and (says[1] is None or rest == says[1])
                end, said = ("right" if same else "wrong"), "loaded"
        if memory():
            return "wrong", f"{what}: {said}: it took {memory()} kB"
    return end, f"{what}: {said}"


def _same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(
        a[name].dtype == b[name].dtype and _bytes(a[name]) == _bytes(b[name]) for name in a
    )


def _bytes(tensor: Tensor) -> bytes:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@contextmanager
def _little_memory() -> Iterator[Callable[[], int]]:
    """Gives how many kilobytes too many were held at a time, where the system can tell."""
    before = _peak(reset=True)
    grown: list[int] = []
    yield lambda: grown[0] if grown and grown[0] > _MOST_KILOBYTES else 0
    grown.append(_peak() - before)


def _peak(*, reset: bool = False) -> int:
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        found = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())
    except OSError:
        return 0
    return int(found[1]) if found else 0


# sound files


@cache
def bases() -> tuple[Base, ...]:
    """One file of everything that is written, in a folder that stays for as long as the process."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    torch.manual_seed(0)
    made = []
    for name, model in _models().items():
        bd.save(model, folder / f"{name}.safetensors")
        made.append(Base(name, folder / f"{name}.safetensors", _read_model, "bayesdrop-model"))
    _fit(folder / "run.safetensors", network := _network())
    assert network.training
    made.append(Base("checkpoint", folder / "run.safetensors", _read_checkpoint, "bayesdrop-checkpoint"))
    made += _tables(folder)
    return tuple(made)


def _models() -> dict[str, nn.Module]:
    tied = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7, bias=False))
    tied[1].weight = tied[0].weight
    layer = nn.Linear(4, 4)
    return {
        "linear": nn.Linear(3, 2),
        "network": nn.Sequential(
            bd.BernoulliDropout(nn.Linear(4, 6), p=[0.1, 0.2, 0.3, 0.4], bias_p=0.3),
            nn.BatchNorm1d(6),
            bd.LearnableDropout(nn.Linear(6, 3)),
            bd.ConcreteDropout(nn.Linear(3, 2), p_init=0.2),
        ),
        "tied": tied,
        "shared": nn.Sequential(layer, nn.ReLU(), layer, nn.Sequential(layer, bd.DropConnect(layer, p=0.1))),
        "encoder": nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2, enable_nested_tensor=False
        ),
        "recurrent": bd.RecurrentDropout(nn.LSTM(3, 4, 2), p=0.2),
        "images": nn.Sequential(nn.Conv2d(1, 2, 3, padding="same"), nn.Flatten(), nn.Dropout(0.2)),
        "objective": bd.NegativeELBO(bd.Gaussian(torch.tensor([0.1, 0.2]), noise="map"), num_data=7),
    }


def _read_model(path: Path) -> Read:
    model = bd.load(path)
    assert not model.training
    return model.state_dict(), f"{model}"


def _network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(bd.BernoulliDropout(nn.Linear(2, 3), p=0.1), nn.ReLU(), nn.Linear(3, 1))


def _fit(path: Path, model: nn.Module) -> bd.History:
    x = torch.linspace(-1, 1, 12).reshape(6, 2)
    objective = bd.NegativeELBO(bd.Gaussian(0.3), num_data=6)
    return bd.fit(
        model, (x, x.sum(1, keepdim=True)), objective, epochs=2, checkpoint=path, validation=(x, x[:, :1])
    )


def _read_checkpoint(path: Path) -> Read:
    model = _network()
    fresh = copy.deepcopy(model.state_dict())
    try:
        history = _fit(path, model).to_dict()
    except ValueError:
        assert _same(fresh, model.state_dict()), "a refused checkpoint has changed the model"
        raise
    del history["seconds"]
    return model.state_dict(), str(history)


def _tables(folder: Path) -> list[Base]:
    from bayesdrop.tables import Rule, TableModel, TrainingRows, save_table_model
    from bayesdrop.tables.schema import Column, Schema

    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3))
    options: dict[str, Any] = {
        "preset": "quick",
        "hidden": (3,),
        "epochs": 1,
        "num_draws": 4,
        "random_state": 0,
    }
    with warnings.catch_warnings(action="ignore"):
        regressor = DropoutRegressor(**options).fit(x, x[:, 0])
        classifier = DropoutClassifier(**options).fit(x, np.where(x[:, 0] > 0, "yes", "no"))
    regressor.save(folder / "regressor.safetensors")
    classifier.save(folder / "classifier.safetensors")
    columns = (
        Column("a", "numeric", why="numbers"),
        Column("b", "category", categories=("u", "v"), rare=("w",)),
        Column("c", "left out"),
    )
    held = {name: rng.normal(size=9) for name in ("std", "epistemic", "aleatoric", "loss", "scaled")}
    schema = Schema("y", "regression", columns)
    rows = TrainingRows(x, x[:, 0], np.arange(1.0, 41), 40)
    model = TableModel(schema, regressor, held, 0.9, Rule(0.1), {"rows": 40}, rows)
    save_table_model(model, folder / "table", report="<p>")
    conformal = ConformalRegressor()
    conformal.put({"threshold": [1.5, None], "shape": [2], "num_calibration": 20})
    conformal.save(folder / "conformal.json")
    temperature = TemperatureScaling()
    temperature.put({"temperature": 1.25})
    temperature.save(folder / "temperature.json")
    kind = "bayesdrop-estimator"
    return [
        Base("regressor", folder / "regressor.safetensors", _estimator_reader(DropoutRegressor), kind),
        Base("classifier", folder / "classifier.safetensors", _estimator_reader(DropoutClassifier), kind),
        Base("table", folder / "table", _read_table),
        Base(
            "conformal",
            folder / "conformal.json",
            lambda path: ({}, str(ConformalRegressor.load(path).state())),
        ),
        Base(
            "temperature",
            folder / "temperature.json",
            lambda p: ({}, str(TemperatureScaling.load(p).state())),
        ),
    ]


def _estimator_reader(kind: Any) -> Callable[[Path], Read]:
    def read(path: Path) -> Read:
        return _estimator_parts(kind.load(path))

    return read


def _estimator_parts(estimator: Any) -> Read:
    mixture = estimator.mixture_
    tensors: dict[str, Tensor] = {}
    for place, component in enumerate(mixture.components):
        network = component.network
        for layer, (weight, bias, p) in enumerate(
            zip(network.weights, network.biases, network.p, strict=True)
        ):
            tensors |= {
                f"{place}.{layer}.weight": weight,
                f"{place}.{layer}.bias": bias,
                f"{place}.{layer}.p": p,
            }
        if network.log_noise_std is not None:
            tensors[f"{place}.log_noise_std"] = network.log_noise_std
    for bins, encoder in mixture.encoders.items():
        tensors |= {f"encoder.{bins}.{name}": torch.from_numpy(a) for name, a in encoder.as_dict().items()}
    if mixture.target is not None:
        tensors["target.mean"] = torch.from_numpy(mixture.target.mean)
        tensors["target.scale"] = torch.from_numpy(mixture.target.scale)
    settings = [component.network.settings for component in mixture.components]
    return tensors, f"{estimator} {settings} {mixture.num_draws} {mixture.dof} {mixture.search}"


def _read_table(path: Path) -> Read:
    from bayesdrop.tables import load_table_model

    model = load_table_model(path)
    tensors, text = _estimator_parts(model.estimator)
    held = {f"held.{name}": torch.from_numpy(np.array(values)) for name, values in model.held_out.items()}
    if model.rows is not None:
        held |= {
            f"rows.{name}": torch.from_numpy(getattr(model.rows, name)) for name in ("x", "y", "numbers")
        }
    return (
        tensors | held,
        f"{text} {model.schema} {model.level} {model.rule} {model.about} {model.deferral()}",
    )


# accidents


def flipped_bits(rng: random.Random, folder: Path) -> tuple[Base, Path, Read]:
    """One bit, or a few, are others."""

    def damage(content: bytearray) -> None:
        for _ in range(rng.choice((1, 1, 1, 2, 8))):
            # Headers are short, and have more ways to go wrong: half of the bits are from there.
            end = min(len(content), 400) if rng.random() < 0.5 else len(content)
            content[rng.randrange(end)] ^= 1 << rng.randrange(8)

    return _damaged(rng, folder, damage)


def lost_blocks(rng: random.Random, folder: Path) -> tuple[Base, Path, Read]:
    """The file ends early or late, or a block of it is zero, missing, or from elsewhere in the file."""

    def damage(content: bytearray) -> None:
        start, size = rng.randrange(len(content)), rng.choice((1, 8, 64, 512))
        block = slice(start, start + size)
        match rng.randrange(6):
            case 0:
                del content[start:]
            case 1:
                content += bytes(rng.randrange(1, 600))
            case 2:
                content[block] = bytes(len(content[block]))
            case 3:
                del content[block]
            case 4:
                other = rng.randrange(len(content))
                content[block] = content[other : other + len(content[block])]
            case _:
                content[:] = rng.randbytes(rng.randrange(2000))

    return _damaged(rng, folder, damage)


def _damaged(
    rng: random.Random, folder: Path, damage: Callable[[bytearray], None]
) -> tuple[Base, Path, Read]:
    base = rng.choice(bases())
    path = folder / f"victim{base.path.suffix}"
    if base.path.is_dir():
        shutil.copytree(base.path, path)
        file = rng.choice(sorted(path.iterdir()))
    else:
        file = path
        shutil.copyfile(base.path, path)
    content = bytearray(file.read_bytes())
    damage(content)
    file.write_bytes(content)
    return base, path, base.truth()


def swapped_tensors(rng: random.Random, folder: Path) -> tuple[Base, Path, Read]:
    """Two tensors' places, names or dtypes are exchanged in the header, which stays as long as it was."""
    changes: list[tuple[str, str, str]] = []
    while not changes:
        base = _tensor_base(rng)
        content = base.path.read_bytes()
        length = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + length])
        names = [name for name in header if name != "__metadata__"]
        field = rng.choice(("data_offsets", "shape", "dtype"))
        changes = [(a, b, field) for a in names for b in names if header[a][field] != header[b][field]]
    a, b, field = rng.choice(changes)
    header[a][field], header[b][field] = header[b][field], header[a][field]
    path = folder / "victim.safetensors"
    text = json.dumps(header, separators=(",", ":")).encode().ljust(length)
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])
    return base, path, base.truth()


# authors


def changed_description(
    rng: random.Random, folder: Path
) -> tuple[Base, Path, tuple[dict[str, Tensor], None]]:
    """Entries of the description are others, in a file whose checksums are right."""
    base = _tensor_base(rng)
    tensors, header = read_tensors(base.path, kind=base.kind)
    for _ in range(rng.choice((1, 1, 2, 5))):
        header = mutated(rng, header)
    path = folder / "victim.safetensors"
    _write(rng, path, tensors, base.kind, header)
    state, _ = base.truth()
    aliases = header.get("aliases") if isinstance(header, dict) else None
    if isinstance(aliases, dict):  # a tensor's further name may now be another's: that is what the file says
        state = state | {
            new: tensors[old] for new, old in aliases.items() if isinstance(old, str) and old in tensors
        }
    return base, path, (state, None)


def changed_tensors(rng: random.Random, folder: Path) -> tuple[Base, Path, tuple[dict[str, Tensor], None]]:
    """Tensors are lost, added, or of another shape or dtype, in a file whose checksums are right."""
    base = _tensor_base(rng)
    tensors, header = read_tensors(base.path, kind=base.kind)
    name = rng.choice(list(tensors))
    match rng.randrange(5):
        case 0:
            del tensors[name]
        case 1:
            tensors[rng.choice(("extra", f"{name}x", f"best.{name}", ""))] = torch.zeros(2)
        case 2:
            tensors[name] = tensors[name].reshape(-1).repeat(2)
        case 3:
            tensors[name] = tensors[name].to(rng.choice((torch.int64, torch.bool, torch.complex64)))
        case _:
            tensors[name] = tensors[name].unsqueeze(0)
    path = folder / "victim.safetensors"
    _write(rng, path, tensors, base.kind, header)
    return base, path, (base.truth()[0], None)


def hostile_architecture(
    rng: random.Random, folder: Path
) -> tuple[Base, Path, tuple[dict[str, Tensor], None]]:
    """A small file that describes something enormous, endless or senseless."""
    node = _hostile_node(rng, depth=rng.choice((0, 0, 1, 2)))
    count = rng.randrange(3)
    tensors = {f"{name}": torch.ones(rng.randrange(3), 2) for name in ("weight", "0.weight")[:count]}
    aliases = {"bias": "weight"} if count and rng.random() < 0.2 else {}
    path = folder / "victim.safetensors"
    header = {"aliases": aliases, "frozen": [], "architecture": node, "reason": None}
    _write(rng, path, tensors, "bayesdrop-model", header)
    return bases()[0], path, (tensors | {new: tensors[old] for new, old in aliases.items()}, None)


def hostile_json(rng: random.Random, folder: Path) -> tuple[Base, Path, tuple[dict[str, Tensor], None]]:
    """A description, or a whole header, that is no JSON or is nested without end."""
    base = _tensor_base(rng)
    depth = rng.choice((100, 1000, 100_000))
    text = rng.choice(("[" * depth, "[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth))
    text = rng.choice(
        (text, f'{{"architecture":{text}}}', "", "null", "1e999", f"[1{'0' * 5000}]", '"\\ud800"', "\0")
    )
    path = folder / "victim.safetensors"
    if rng.random() < 0.5:
        content = text.encode()
        path.write_bytes(len(content).to_bytes(8, "little") + content)
    else:
        metadata = {"format": base.kind, "format_version": "1", "description": text}
        save_file({"weight": torch.ones(2)}, path, metadata=metadata)
    return base, path, ({}, None)


def changed_folder(rng: random.Random, folder: Path) -> tuple[Base, Path, Any]:
    """The JSON of a table model, or of a calibrator, is another, and every checksum is right."""
    import hashlib

    base = rng.choice([base for base in bases() if not base.kind])
    path = folder / f"victim{base.path.suffix}"
    if not base.path.is_dir():
        content = json.loads(base.path.read_text())
        del content["checksum"]
        path.write_bytes(_sealed(rng, mutated(rng, content)))
        return base, path, ({}, None)
    shutil.copytree(base.path, path)
    about = json.loads((path / "table.json").read_text())
    del about["checksum"]
    if rng.random() < 0.5:
        schema = mutated(rng, json.loads((path / "schema.json").read_text()))
        (path / "schema.json").write_text(json.dumps(schema))
        about["sha256"]["schema.json"] = hashlib.sha256((path / "schema.json").read_bytes()).hexdigest()
    else:
        about = mutated(rng, about)
    (path / "table.json").write_bytes(_sealed(rng, about))
    return base, path, (base.truth()[0], None)


def _sealed(rng: random.Random, content: Any) -> bytes:
    if not isinstance(content, dict) or rng.random() < 0.2:
        return json.dumps(content).encode()
    return to_json(content)


def _write(rng: random.Random, path: Path, tensors: dict[str, Tensor], kind: str, header: Any) -> None:
    if isinstance(header, dict) and rng.random() < 0.7:
        write_tensors(path, tensors, kind=kind, header=header)
        return
    metadata = {"format": kind, "format_version": "1", "description": json.dumps(header)}
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, metadata=metadata)


def _tensor_base(rng: random.Random) -> Base:
    return rng.choice([base for base in bases() if base.kind])


def _nasty(rng: random.Random) -> Any:
    return rng.choice(
        (
            None,
            True,
            -1,
            0,
            1,
            2**31,
            10**9,
            2**63,
            10**30,
            0.5,
            1e308,
            float("nan"),
            float("inf"),
            "",
            "x",
            "0",
            "weight",
            "torch.nn.Linear",
            "torch.nn.LazyLinear",
            "bayesdrop.layers.StochasticLayer",
            [],
            {},
            [[1]],
            {"tensor": [[1.0], 2.0]},
            {"tensor": ["x"]},
            {"tuple": 3},
            {"dict": []},
            {"shared": ""},
            {"shared": "0"},
            {"class": "torch.nn.ReLU"},
            {"module": {"class": "torch.nn.Identity"}, "place": ""},
            {"tensor": "optimizer.state.0.exp_avg"},
            "\ud800",
            "a" * 500,
            _nest(rng.choice((10, 150, 300))),
        )
    )


def _nest(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"children": value} if depth % 20 else [value]
    return value


def mutated(rng: random.Random, value: Any) -> Any:
    """A copy in which one entry, anywhere inside, is another, is gone, has another name, or stands twice."""
    value = copy.deepcopy(value)
    places = list(_places(value))
    if not places:
        return _nasty(rng)
    holder, key = rng.choice(places)
    match rng.randrange(6):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[rng.choice(("", "class", "shared", "options", "x", "0"))] = holder.pop(key)
        case 2:
            other, name = rng.choice(places)
            holder[key] = copy.deepcopy(other[name])
        case 3:
            holder[key] = [holder[key]]
        case _:
            holder[key] = _nasty(rng)
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    stack = [value]
    while stack:
        part = stack.pop()
        if isinstance(part, dict | list):
            for key in part if isinstance(part, dict) else range(len(part)):
                yield part, key
                stack.append(part[key])


def _hostile_node(rng: random.Random, depth: int) -> Any:
    huge = rng.choice((2**31, 10**9, 10**12, 2**62))
    linear = {
        "class": "torch.nn.Linear",
        "options": {"in_features": huge, "out_features": rng.choice((1, huge))},
    }
    identity = {"class": "torch.nn.Identity"}
    many = {"class": "torch.nn.LSTM", "options": {"input_size": 1, "hidden_size": 1, "num_layers": huge}}
    clones: dict[str, Any] = {
        "class": "torch.nn.TransformerEncoder",
        "options": {"encoder_layer": {"module": identity, "place": "layers.0"}, "num_layers": huge},
    }
    nested = copy.deepcopy(clones)
    nested["options"]["num_layers"] = 900
    for _ in range(3):
        inner = nested
        nested = copy.deepcopy(clones)
        nested["options"] |= {"num_layers": 900, "encoder_layer": {"module": inner, "place": "layers.0"}}
    doubling: dict[str, Any] = {"0": identity}
    for place in range(1, 60):
        doubling[f"{place}"] = {
            "class": "torch.nn.Sequential",
            "children": {"0": {"shared": f"{place - 1}"}, "1": {"shared": f"{place - 1}"}},
        }
    around = {"class": "torch.nn.Sequential", "children": {"0": {"shared": ""}}}
    further = {"class": "torch.nn.Sequential", "children": {"0": around, "1": {"shared": "0"}}}
    wide: dict[str, Any] = {"layer": {"module": linear, "place": "layer"}}
    node = rng.choice(
        (
            linear,
            many,
            clones,
            nested,
            {"class": "torch.nn.Sequential", "children": doubling},
            around,
            further,
            {"class": "torch.nn.Transformer", "options": {"num_encoder_layers": huge, "d_model": 8}},
            {"class": "torch.nn.Embedding", "options": {"num_embeddings": huge, "embedding_dim": 7}},
            {
                "class": "torch.nn.Bilinear",
                "options": {"in1_features": 50_000, "in2_features": 50_000, "out_features": 9},
            },
            {
                "class": "torch.nn.Conv3d",
                "options": {"in_channels": 9, "out_channels": 9, "kernel_size": huge},
            },
            {"class": "torch.nn.BatchNorm1d", "options": {"num_features": huge}},
            {"class": "torch.nn.MultiheadAttention", "options": {"embed_dim": 2**20, "num_heads": 1}},
            {"class": "torch.nn.PReLU", "options": {"num_parameters": huge}},
            {"class": "torch.nn.LazyLinear", "options": {"out_features": 3}},
            {"class": "torch.nn.ParameterList", "options": {"values": [1, 2]}},
            {
                "class": "torch.nn.AdaptiveLogSoftmaxWithLoss",
                "options": {"in_features": 8, "n_classes": huge, "cutoffs": [3]},
            },
            {"class": "bayesdrop.layers.LearnableDropout", "options": wide},
            {
                "class": "bayesdrop.layers.BernoulliDropout",
                "options": wide | {"p": {"tensor": [float("nan")]}},
            },
            {"class": "bayesdrop.layers.BernoulliDropout", "options": wide},
            {"class": "bayesdrop.layers.VariationalGaussianDropout", "options": wide | {"per": "weight"}},
            {
                "class": "bayesdrop.layers.RecurrentDropout",
                "options": {"layer": {"module": many, "place": "layer"}},
            },
            {
                "class": "bayesdrop.likelihoods.Gaussian",
                "options": {"noise_std": {"tensor": [0.1, float("inf")]}},
            },
            {"class": "torch.nn.Sequential", "children": {f"{n}": identity for n in range(5000)}},
        )
    )
    for _ in range(depth):
        node = {
            "class": "torch.nn.Sequential",
            "children": {"0": node, "1": {"shared": rng.choice(("0", "", "9"))}},
        }
    return mutated(rng, node) if rng.random() < 0.3 else node


ATTACKS: tuple[Callable[[random.Random, Path], tuple[Base, Path, Any]], ...] = (
    flipped_bits,
    flipped_bits,
    lost_blocks,
    swapped_tensors,
    changed_description,
    changed_description,
    changed_tensors,
    hostile_architecture,
    hostile_architecture,
    hostile_json,
    changed_folder,
    changed_folder,
)
