"""Model folders: replaced in one step, read back as they were written, refused when they are not."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bayesdrop.estimators import DropoutRegressor
from bayesdrop.storage import to_json, whole
from bayesdrop.tables import Rule, TableModel, load_table_model, save_table_model
from bayesdrop.tables import model as model_module
from bayesdrop.tables.model import check_folder
from bayesdrop.tables.schema import Column, Schema


@pytest.fixture(scope="module")
def sound() -> TableModel:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3))
    options: dict[str, Any] = {"preset": "quick", "hidden": (3,), "epochs": 1, "num_draws": 4}
    estimator = DropoutRegressor(**options, random_state=0).fit(x, x[:, 0])
    columns = (
        Column("a", "numeric"),
        Column("b", "category", categories=("u", "v")),
        Column("c", "left out"),
    )
    held = {name: rng.normal(size=9) for name in ("std", "epistemic", "aleatoric", "loss", "scaled")}
    return TableModel(Schema("y", "regression", columns), estimator, held, 0.9, Rule(0.1), {"rows": 40})


@pytest.fixture
def folder(sound: TableModel, tmp_path: Path) -> Path:
    save_table_model(sound, tmp_path / "model", report="<p>old")
    return tmp_path / "model"


def test_a_folder_brings_the_model_back(sound: TableModel, folder: Path) -> None:
    loaded = load_table_model(folder)
    x = np.ones((2, 3))
    assert np.array_equal(loaded.estimator.predict(x), sound.estimator.predict(x))
    assert (loaded.schema, loaded.level, loaded.rule, loaded.about) == (
        sound.schema,
        sound.level,
        sound.rule,
        sound.about,
    )


@pytest.mark.parametrize("exchange", [True, False])
def test_with_force_a_model_stands_at_its_path_whatever_fails(
    exchange: bool, sound: TableModel, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not exchange:
        monkeypatch.setattr(whole, "_exchanged", lambda a, b: False)
    full = OSError(errno.ENOSPC, "No space left on device")
    for name in ("_flush", "_put"):

        def fails(*_: object) -> None:
            raise full

        with monkeypatch.context() as patch:
            patch.setattr(whole, name, fails)
            sentence = r"the model: .* cannot be written in the folder .*: No space left on device\."
            with pytest.raises(OSError, match=sentence):
                save_table_model(sound, folder, report="<p>new", force=True)
        assert (folder / "report.html").read_text() == "<p>old"
        load_table_model(folder)
        assert [path.name for path in folder.parent.iterdir()] == ["model"]
    save_table_model(sound, folder, report="<p>new", force=True)
    assert (folder / "report.html").read_text() == "<p>new"
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


#: Replaces a model again and again; the process is killed before the n-th rename, link or removal.
_KILLED = """
import os, signal, sys
from pathlib import Path
from bayesdrop.storage import whole
from bayesdrop.tables import load_table_model, save_table_model

folder, exchange = Path(sys.argv[1]), sys.argv[2] == "True"
if not exchange:
    whole._exchanged = lambda a, b: False
model = load_table_model(folder)
left = None

def hook(event, args):
    global left
    if left is not None and event in ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "ctypes.dlsym"):
        left -= 1
        if left < 0:
            left = None
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(hook)
for count in range(1000):
    pid = os.fork()
    if pid == 0:
        left = count
        save_table_model(model, folder, report="<p>", force=True)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    load_table_model(folder)
    if os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) == 0
        break
names = [path.name for path in folder.parent.iterdir()]
assert names == ["model"], names
print(count)
"""


@pytest.mark.parametrize("exchange", [True, False])
def test_a_model_can_be_loaded_after_a_kill_at_any_step_of_its_replacement(
    exchange: bool, folder: Path
) -> None:
    command = [sys.executable, "-c", _KILLED, str(folder), str(exchange)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) >= 15


def test_a_folder_that_is_replaced_while_it_is_read_is_read_again(
    sound: TableModel, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: Callable[..., Any] = model_module._read
    replaced = []

    def replace_first(path: Path, name: str) -> Any:
        content = read(path, name)
        if name == "table.json" and not replaced:
            replaced.append(name)
            held = {**sound.held_out, "loss": sound.held_out["loss"] + 1}
            other = TableModel(sound.schema, sound.estimator, held, 0.5, sound.rule, {"rows": 7})
            save_table_model(other, folder, report="<p>", force=True)
        return content

    monkeypatch.setattr(model_module, "_read", replace_first)
    assert load_table_model(folder).level == 0.5
    assert replaced


def test_a_link_to_a_model_stays_a_link(sound: TableModel, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(ValueError, match="--force"):
        save_table_model(sound, tmp_path / "link", report="<p>new")
    save_table_model(sound, tmp_path / "link", report="<p>new", force=True)
    assert (tmp_path / "link").is_symlink()
    assert (folder / "report.html").read_text() == "<p>new"
    load_table_model(tmp_path / "link")


def test_a_folder_that_cannot_be_written_is_found_by_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_folder(tmp_path / "model", force=False)
    assert list(tmp_path.iterdir()) == []

    def read_only(path: object, *_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(os, "mkdir", read_only)
    with pytest.raises(OSError, match=r"model cannot be written in the folder .*: Read-only file system"):
        check_folder(tmp_path / "model", force=False)


@pytest.mark.parametrize("name", ["table.json", "schema.json"])
def test_no_bit_of_the_json_changes_without_a_word(name: str, folder: Path) -> None:
    whole_text = (folder / name).read_bytes()
    for bit in range(0, 8 * len(whole_text), 3):
        content = bytearray(whole_text)
        content[bit // 8] ^= 1 << (bit % 8)
        (folder / name).write_bytes(content)
        with pytest.raises(ValueError, match="model"):
            load_table_model(folder)


def changed(folder: Path, name: str, change: dict[str, Any]) -> None:
    """Change entries of a JSON file, and put every checksum right again."""
    about = json.loads((folder / "table.json").read_text())
    del about["checksum"]
    if name == "table.json":
        about |= change
    else:
        content = json.loads((folder / name).read_text()) | change
        (folder / name).write_text(json.dumps(content))
        about["sha256"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    (folder / "table.json").write_bytes(to_json(about))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("table.json", {"level": "0.9"}),
        ("table.json", {"level": 1.5}),
        ("table.json", {"level": None}),
        ("table.json", {"deferral": {"share": "x"}}),
        ("table.json", {"deferral": {"odd": 1}}),
        ("table.json", {"deferral": {"by": "entropy"}}),
        ("table.json", {"deferral": 3}),
        ("table.json", {"about": []}),
        ("table.json", {"sha256": []}),
        ("table.json", {"format_version": "two"}),
        ("table.json", {"format_version": True}),
        ("table.json", {"format": 3}),
        ("schema.json", {"task": "ranking"}),
        ("schema.json", {"columns": 3}),
        ("schema.json", {"columns": []}),
        ("schema.json", {"columns": [{"name": "a"}]}),
        ("schema.json", {"classes": ["a"]}),
        ("schema.json", {"target": None}),
        ("schema.json", {"number_labels": "no"}),
        ("schema.json", {"odd": 1}),
        ("schema.json", {"target_format": "1;5"}),
        ("schema.json", {"target_format": 3}),
    ],
)
def test_json_that_makes_no_sense_is_refused_by_name(name: str, change: dict[str, Any], folder: Path) -> None:
    changed(folder, name, change)
    with pytest.raises(ValueError, match=f"{folder}"):
        load_table_model(folder)


def test_a_folder_of_before_checksums_loads(sound: TableModel, folder: Path) -> None:
    changed(folder, "table.json", {"format_version": 1})
    about = json.loads((folder / "table.json").read_text())
    del about["checksum"]
    (folder / "table.json").write_text(json.dumps(about))
    assert load_table_model(folder).level == sound.level
    about["format_version"] = 2
    (folder / "table.json").write_text(json.dumps(about))
    with pytest.raises(ValueError, match=r"table\.json is not as it was written"):
        load_table_model(folder)


def test_a_folder_of_before_dates_loads(sound: TableModel, folder: Path) -> None:
    state = json.loads((folder / "schema.json").read_text())
    del state["target_format"]
    for column in state["columns"]:
        del column["format"], column["last"]
    (folder / "schema.json").write_text(json.dumps(state))
    digest = hashlib.sha256((folder / "schema.json").read_bytes()).hexdigest()
    digests = json.loads((folder / "table.json").read_text())["sha256"] | {"schema.json": digest}
    changed(folder, "table.json", {"format_version": 2, "sha256": digests})
    assert load_table_model(folder).schema == sound.schema


def test_parts_of_two_models_are_not_one(sound: TableModel, folder: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(1).normal(size=(40, 5))
    other = DropoutRegressor(preset="quick", hidden=(3,), epochs=1, num_draws=4, random_state=0).fit(
        x, x[:, 0]
    )
    other.save(tmp_path / "other")
    shutil.copyfile(tmp_path / "other", folder / "model.safetensors")
    about = json.loads((folder / "table.json").read_text())
    del about["checksum"]
    about["sha256"]["model.safetensors"] = hashlib.sha256((tmp_path / "other").read_bytes()).hexdigest()
    (folder / "table.json").write_bytes(to_json(about))
    with pytest.raises(ValueError, match="are of different tables"):
        load_table_model(folder)
