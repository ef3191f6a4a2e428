"""QSPR, solar irradiance and Amazon reviews."""

from __future__ import annotations

import csv
import gzip
import io
import tarfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from bayesdrop.data import DATASETS, DataNotFound, load_amazon, load_qspr, load_solar
from bayesdrop.data import amazon as amazon_module
from bayesdrop.data import solar as solar_module
from bayesdrop.data.arrays import arrays_digest, read_npz


def test_qspr_correlates_as_the_paper_says() -> None:
    table = load_qspr()
    found = np.corrcoef(np.column_stack([table.x, table.y]).T)[-1, :-1]
    known = [0.645, 0.711, -0.648, 0.268, 0.290, 0.499, 0.300]
    np.testing.assert_allclose(found, known, atol=5e-4)
    assert (table.x.shape, table.y.shape, len(table.rows)) == ((19, 7), (19, 1), 19)
    assert table.x.dtype == torch.float64


def test_qspr_is_the_published_table(real: Callable[[str], Path]) -> None:
    path = real("solar").parents[1] / "qspr" / "aminoacids.csv"
    if not path.exists():
        pytest.skip("real data are absent: BAYESDROP_DATA has no qspr/aminoacids.csv")
    rows = list(csv.DictReader(path.read_text().splitlines()))
    table = load_qspr()
    assert [row["AA"] for row in rows] == list(table.rows)
    for column, values in zip((*table.columns, "DDGTS"), torch.cat([table.x, table.y], 1).T, strict=True):
        assert [float(row[column]) for row in rows] == values.tolist()


def test_the_sun_shines_every_year(real: Callable[[str], Path]) -> None:
    real("solar")
    series = load_solar()
    assert len(series) == 391
    assert series.x[:, 0].tolist() == [1610.5 + year for year in range(391)]
    assert (series.y.shape, series.cycle.shape) == ((391, 1), (391, 1))
    assert (series.x[0].item(), series.cycle[0].item(), series.y[0].item()) == (1610.5, 1365.8477, 1364.7338)


def test_the_home_of_the_solar_series_gives_the_stored_one(
    real: Callable[[str], Path], tmp_path: Path
) -> None:
    lines = ["YEAR 11yrCYCLE 11yrCYCLE+BKGRND"]
    for row in csv.reader(real("solar").read_text().splitlines()):
        if row[0] != "year":
            lines.append(f"{int(float(row[0]))} {float(row[1])} {float(row[2])}")
    (tmp_path / "irradiance_data.txt").write_text("\n".join(lines) + "\n")
    converted = solar_module._from_home(lambda file: tmp_path / file)
    assert arrays_digest(converted) == DATASETS["solar"].sha256


def test_svmlight_lines_become_a_matrix() -> None:
    arrays = amazon_module.svmlight_arrays(["-1 0:2 4999:1\n", "1 3:7\n", "1\n"], "")
    matrix = amazon_module._matrix(arrays, "").toarray()
    assert matrix.shape == (3, 5000)
    assert (matrix[0, 0], matrix[0, 4999], matrix[1, 3], matrix.sum()) == (2, 1, 7, 10)
    assert arrays["y"].tolist() == [-1, 1, 1]


def archive_of(path: Path, texts: dict[str, str]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in texts.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


def test_review_lines_become_a_matrix_over_sorted_terms(tmp_path: Path) -> None:
    texts = {
        "processed_acl/books/positive.review": "good:2 b:c:1 #label#:positive\n",
        "processed_acl/books/negative.review": "bad:1 good:1 #label#:negative\n",
    }
    path = archive_of(tmp_path / "processed_acl.tar.gz", texts)
    arrays = amazon_module._full_from_home("books", lambda file: path)
    # columns: b:c, bad, good
    assert amazon_module._matrix(arrays, "").toarray().tolist() == [[1, 0, 2], [0, 1, 1]]
    assert arrays["y"].tolist() == [1, -1]


def csr_lines(arrays: dict[str, np.ndarray], prefix: str, names: list[str]) -> list[str]:
    data, indices, indptr = (arrays[prefix + key] for key in ("data", "indices", "indptr"))
    cells = [
        f"{names[column]}:{count}" for column, count in zip(indices.tolist(), data.tolist(), strict=True)
    ]
    return [" ".join(cells[start:end]) for start, end in pairwise(indptr)]


def test_the_home_of_the_processed_reviews_gives_the_stored_ones(
    real: Callable[[str], Path], tmp_path: Path
) -> None:
    stored = read_npz(real("amazon-kitchen-processed"))
    for part, prefix in (("train", "labeled_"), ("test", "unlabeled_")):
        lines = csr_lines(stored, prefix, [str(column) for column in range(5000)])
        labelled = [f"{y} {line}\n" for y, line in zip(stored[prefix + "y"], lines, strict=True)]
        (tmp_path / f"kitchen_{part}.svmlight").write_text("".join(labelled))
    converted = amazon_module._processed_from_home("kitchen", lambda file: tmp_path / file)
    assert arrays_digest(converted) == DATASETS["amazon-kitchen-processed"].sha256


def test_the_home_of_the_full_reviews_gives_the_stored_ones(
    real: Callable[[str], Path], tmp_path: Path
) -> None:
    path = real("amazon-kitchen-full")
    stored = read_npz(path)
    terms = (
        gzip.decompress((path.parent / "fullvocab_kitchen_terms.txt.gz").read_bytes()).decode().split("\n")
    )
    lines = csr_lines(stored, "", terms)
    texts = {
        f"processed_acl/kitchen/{kind}.review": "".join(f"{line} #label#:{kind}\n" for line in part)
        for kind, part in (("positive", lines[:1000]), ("negative", lines[1000:]))
    }
    archive = archive_of(tmp_path / "processed_acl.tar.gz", texts)
    converted = amazon_module._full_from_home("kitchen", lambda file: archive)
    assert arrays_digest(converted) == DATASETS["amazon-kitchen-full"].sha256


def test_reviews_are_balanced_and_further_ones_come_with_the_processed_form(
    real: Callable[[str], Path],
) -> None:
    real("amazon-dvd-full")
    full, processed = load_amazon("dvd"), load_amazon("dvd", "processed")
    assert (full.x.shape, processed.x.shape, processed.x_more.shape) == (
        (2000, 188778), (2000, 5000), (3586, 5000),
    )  # fmt: skip
    assert full.y.sum() == processed.y.sum() == 0
    assert full.x_more is None
    assert set(processed.y_more.tolist()) == {-1, 1}


def test_what_is_asked_wrongly_or_absent_is_said() -> None:
    with pytest.raises(ValueError, match="`domain` must be one of books"):
        load_amazon("films")
    with pytest.raises(ValueError, match="'full' or 'processed'"):
        load_amazon("books", "raw")  # type: ignore[arg-type]
    for load in (load_amazon, load_solar):
        with pytest.raises(DataNotFound, match="BAYESDROP_OFFLINE is set"):
            load(*(("books",) if load is load_amazon else ()))
