"""Tables in parts: equal to one table at a time, whatever the engine, and never done twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pandas as pd
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from bayesdrop.cli import build_app
from bayesdrop.engines import LocalEngine
from bayesdrop.scoring import parts as parts_module
from bayesdrop.scoring import score_tables
from bayesdrop.tables import load_table_model, open_table, score_file

Houses = Callable[[int, int], Any]
ONE = LocalEngine(1)


@pytest.fixture
def tables(tmp_path: Path, houses: Houses) -> Path:
    """Three Parquet files, of 2,500 rows in all."""
    folder = tmp_path / "data"
    folder.mkdir()
    for place, rows in enumerate((1500, 990, 10)):
        houses(rows, place).drop(columns="price").to_parquet(
            folder / f"t{place}.parquet", index=False, row_group_size=400
        )
    return folder


def parts_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("part-*"))}


def joined(folder: Path) -> Any:
    return pd.concat([pd.read_parquet(path) for path in sorted(folder.glob("part-*"))], ignore_index=True)


@pytest.mark.parametrize("part_rows", [313, 960, 100_000])
def test_parts_are_the_rows_of_one_table_bit_for_bit(part_rows: int, models: Path, tables: Path) -> None:
    output = tables.parent / "scored"
    found = score_tables(
        models / "numbers", [tables], output, engine=ONE, part_rows=part_rows, chunk_rows=500
    )
    whole = tables.parent / "whole.parquet"
    expected = score_file(load_table_model(models / "numbers"), open_table(tables), whole)
    pd.testing.assert_frame_equal(joined(output), pd.read_parquet(whole), check_exact=True)
    assert found.scored == expected
    assert found.scored.rows == 2500
    assert len(parts_of(output)) == {313: 5 + 4 + 1, 960: 2 + 2 + 1, 100_000: 3}[part_rows]
    # A folder of parts is a table again.
    assert open_table(output).num_rows == 2500


def test_the_manifest_has_the_digest_of_every_part(models: Path, tables: Path) -> None:
    output = tables.parent / "scored"
    score_tables(models / "labels", [tables / "t0.parquet"], output, engine=ONE, part_rows=700)
    manifest = json.loads((output / "_manifest.json").read_text())
    assert manifest["total"]["rows"] == 1500
    assert [entry["span"] for entry in manifest["parts"]] == [[0, 700], [700, 1400], [1400, 1500]]
    for entry in manifest["parts"]:
        content = (output / entry["file"]).read_bytes()
        assert (entry["sha256"], entry["size"]) == (sha256(content).hexdigest(), len(content))
    assert sorted(path.name for path in output.iterdir() if path.name.startswith("_")) == [
        "_lock",
        "_manifest.json",
    ]


def test_finished_parts_are_never_done_again(
    models: Path, tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tables.parent / "scored"
    done: list[str] = []
    original = parts_module.score_file

    def counted(model: Any, table: Any, path: Path, **options: Any) -> Any:
        if len(done) == 4:
            raise KeyboardInterrupt
        done.append(path.name)
        return original(model, table, path, **options)

    monkeypatch.setattr(parts_module, "score_file", counted)
    options: dict[str, Any] = {"engine": ONE, "part_rows": 313}
    with pytest.raises(KeyboardInterrupt):
        score_tables(models / "numbers", [tables], output, **options)
    assert len(parts_of(output)) == 4
    # One that lost its file is not finished.
    (output / "part-000001.parquet").unlink()
    monkeypatch.setattr(parts_module, "score_file", original)
    found = score_tables(models / "numbers", [tables], output, **options)
    assert found.found == 3
    undisturbed = tables.parent / "undisturbed"
    score_tables(models / "numbers", [tables], undisturbed, **options)
    assert parts_of(output) == parts_of(undisturbed)
    monkeypatch.setattr(parts_module, "score_file", None)
    assert score_tables(models / "numbers", [tables], output, **options).found == 10


def test_a_part_that_is_gone_from_a_finished_scoring_is_made_again(models: Path, tables: Path) -> None:
    output = tables.parent / "scored"
    score_tables(models / "numbers", [tables], output, engine=ONE)
    before = parts_of(output)
    (output / "part-000001.parquet").unlink()
    found = score_tables(models / "numbers", [tables], output, engine=ONE)
    assert (found.found, parts_of(output)) == (2, before)


def test_a_part_that_a_lost_worker_had_finished_is_not_done_again(
    models: Path, tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When one worker dies, all that is under way is given out again; another may have finished its part."""
    output = tables.parent / "scored"

    class Twice(LocalEngine):
        def run(self, function: Any, tasks: Any) -> Any:
            for place, task in enumerate(tasks):
                first = function(task)
                monkeypatch.setattr(parts_module, "score_file", None)
                assert function(task) == first
                monkeypatch.undo()
                yield place, first

    found = score_tables(models / "numbers", [tables], output, engine=Twice(1))
    assert found.scored.rows == 2500


def test_two_processes_write_the_files_of_one(models: Path, tables: Path) -> None:
    for workers in (1, 2):
        score_tables(
            models / "numbers",
            [tables],
            tables.parent / str(workers),
            engine=LocalEngine(workers),
            part_rows=313,
        )
    assert parts_of(tables.parent / "1") == parts_of(tables.parent / "2")


def test_another_scoring_in_the_folder_is_refused_unless_forced(models: Path, tables: Path) -> None:
    output = tables.parent / "scored"
    score_tables(models / "numbers", [tables], output, engine=ONE)
    with pytest.raises(ValueError, match="holds parts of another scoring: its level differ"):
        score_tables(models / "numbers", [tables], output, engine=ONE, level=0.5)
    with pytest.raises(ValueError, match="its data differ"):
        score_tables(models / "numbers", [tables / "t0.parquet"], output, engine=ONE)
    with pytest.raises(ValueError, match="its parts have another size"):
        score_tables(models / "numbers", [tables], output, engine=ONE, part_rows=700)
    forced = score_tables(models / "numbers", [tables / "t0.parquet"], output, engine=ONE, force=True)
    assert (forced.scored.rows, len(parts_of(output))) == (1500, 1)
    other = tables.parent / "other"
    other.mkdir()
    (other / "letter.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"holds files of something else \(letter\.txt\)"):
        score_tables(models / "numbers", [tables], other, engine=ONE, force=True)
    (other / "letter.txt").rename(other / "part-letter.txt")
    with pytest.raises(ValueError, match="holds files of something else"):
        score_tables(models / "numbers", [tables], other, engine=ONE, force=True)


def test_texts_become_texts_and_a_mixture_must_be_settled(models: Path, tables: Path, houses: Houses) -> None:
    houses(30, 9).to_csv(tables / "u.csv", index=False)
    output = tables.parent / "scored"
    with pytest.raises(ValueError, match="say with --format"):
        score_tables(models / "numbers", [tables], output, engine=ONE)
    score_tables(models / "numbers", [tables / "u.csv"], output, engine=ONE)
    scored = pd.read_csv(output / "part-000000.csv")
    assert list(scored["id"]) == list(houses(30, 9)["id"])
    score_tables(models / "numbers", [tables], tables.parent / "mixed", engine=ONE, format="parquet")
    assert len(joined(tables.parent / "mixed")) == 2530


def test_a_table_that_changes_meanwhile_is_refused(
    models: Path, tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = parts_module.score_file

    def changing(model: Any, table: Any, path: Path, **options: Any) -> Any:
        os.utime(tables / "t0.parquet", (1, 1))
        return original(model, table, path, **options)

    monkeypatch.setattr(parts_module, "score_file", changing)
    with pytest.raises(ValueError, match="was changed while it was scored"):
        score_tables(models / "numbers", [tables], tables.parent / "scored", engine=ONE)


def test_addresses_of_other_stores_are_read_and_written(models: Path, tables: Path) -> None:
    store = fsspec.filesystem("memory")
    for path in tables.iterdir():
        store.put_file(str(path), f"/data/{path.name}")
    try:
        options: dict[str, Any] = {"engine": ONE}
        found = score_tables(models / "numbers", ["memory://data/*.parquet"], "memory://scored", **options)
        again = score_tables(models / "numbers", ["memory://data"], "memory://scored", **options)
        local = tables.parent / "scored"
        score_tables(models / "numbers", [tables], local, **options)
        for name, content in parts_of(local).items():
            assert store.cat_file(f"/scored/{name}") == content
        assert (found.found, again.found) == (0, 3)
    finally:
        store.rm("/data", recursive=True)
        store.rm("/scored", recursive=True)
    with pytest.raises(ValueError, match=r"nosuch://x/y\.csv cannot be opened"):
        score_tables(models / "numbers", ["nosuch://x/y.csv"], tables.parent / "scored")


def test_the_span_of_a_table_is_read_across_its_groups(tables: Path) -> None:
    whole = pd.read_parquet(tables / "t0.parquet")
    for span in ((0, 1500), (399, 401), (100, 1234), (1499, 1500)):
        table = open_table(tables / "t0.parquet", span=span)
        read = pd.concat(list(table.chunks(150)))
        assert table.num_rows == len(read) == span[1] - span[0]
        assert np.array_equal(read["id"], whole["id"].iloc[slice(*span)])


# the command


def invoke(*words: str | Path) -> Any:
    return CliRunner().invoke(build_app(), [str(word) for word in words], env={"COLUMNS": "200"})


def test_the_command_scores_many_tables_into_a_folder(models: Path, tables: Path) -> None:
    output = tables.parent / "scored"
    words = ("predict", models / "numbers", tables / "t0.parquet", tables / "t1.parquet", "-o", output)
    result = invoke(*words, "--workers", "1", "--part-rows", "1000")
    assert result.exit_code == 0, result.output
    assert "2,490 rows scored" in result.output
    assert f"Written: {output}" in result.output
    assert parquet.read_metadata(output / "part-000001.parquet").num_rows == 500
    again = invoke(*words, "--workers", "1", "--part-rows", "1000")
    assert "3 of 3 parts were there already." in again.output
    wrong = invoke("predict", models / "numbers", tables / "t0.parquet", tables / "t1.parquet", "-o", "x.csv")
    assert wrong.exit_code == 2
    assert "the output of 2 tables must be a folder" in wrong.output
    single = invoke("predict", models / "numbers", tables / "t0.parquet", "-o", "x.csv", "--workers", "2")
    assert "are for a folder of parts" in single.output


def command(models: Path, tables: Path, output: Path) -> list[str]:
    words = ["predict", str(models / "numbers"), str(tables), "-o", str(output), "--part-rows", "100"]
    return [sys.executable, "-m", "bayesdrop", *words, "--workers", "2", "-q"]


def test_killed_drivers_lose_nothing_that_was_finished(models: Path, tables: Path) -> None:
    """Each time the driver is killed once one more part is finished; parts that were are left as they are."""
    output, records = tables.parent / "scored", tables.parent / "scored" / "_parts"
    written: dict[str, int] = {}
    for kill in range(2):
        driver = subprocess.Popen(command(models, tables, output), stdout=subprocess.DEVNULL)
        while driver.poll() is None and (
            not records.is_dir() or len(list(records.glob("0*.json"))) <= 3 * kill
        ):
            time.sleep(0.02)
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        for record in records.glob("0*.json"):
            part = output / f"part-{record.stem}.parquet"
            assert written.setdefault(part.name, part.stat().st_mtime_ns) == part.stat().st_mtime_ns
    assert written
    subprocess.run(command(models, tables, output), check=True, stdout=subprocess.DEVNULL)
    for name, stamp in written.items():
        assert (output / name).stat().st_mtime_ns == stamp, name
    undisturbed = tables.parent / "undisturbed"
    score_tables(models / "numbers", [tables], undisturbed, engine=ONE, part_rows=100)
    assert parts_of(output) == parts_of(undisturbed)
    assert not [path.name for path in output.iterdir() if path.name.endswith(".tmp")]
