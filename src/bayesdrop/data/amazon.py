"""Amazon product reviews as bags of words, with the reviewer's verdict (Blitzer et al., 2007)."""

from __future__ import annotations

import tarfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bayesdrop.data.arrays import Arrays, Fetch, load_arrays, read_npz
from bayesdrop.errors import is_one_of, must, require

__all__ = ["AMAZON_DOMAINS", "AmazonReviews", "load_amazon"]

AMAZON_DOMAINS = ("books", "dvd", "electronics", "kitchen")
_NUM_FREQUENT = 5000


@dataclass(frozen=True, eq=False)
class AmazonReviews:
    """Counts of words and word pairs in reviews of one domain, and whether each review was favourable."""

    domain: str
    features: str
    x: Any  #: (2000, P) scipy CSR matrix of float64 counts: the balanced reviews
    y: NDArray[np.int8]  #: (2000,) +1 favourable, -1 not
    x_more: Any  #: further reviews, called unlabeled, of the "processed" features; None of the "full" ones
    y_more: NDArray[np.int8] | None  #: their labels, which they have in spite of that name


def load_amazon(domain: str, features: Literal["full", "processed"] = "full") -> AmazonReviews:
    """Reviews of one domain (needs scipy, in the extra "sklearn").

    Args:
        domain: one of `AMAZON_DOMAINS`.
        features: "full" counts every word and pair of words (93,474 to 195,887 columns) of 2,000 reviews;
            "processed" counts the 5,000 most frequent, of those and of 3,586 to 5,945 further reviews.
    """
    if domain not in AMAZON_DOMAINS:
        raise ValueError(must("load_amazon", "domain", f"one of {', '.join(AMAZON_DOMAINS)}", domain))
    if not is_one_of(features, ("full", "processed")):
        raise ValueError(must("load_amazon", "features", "'full' or 'processed'", features))
    require("scipy.sparse", extra="sklearn", owner="load_amazon")
    name = f"amazon-{domain}-{features}"
    if features == "full":
        arrays = load_arrays(name, read_npz, lambda fetch: _full_from_home(domain, fetch))
        return AmazonReviews(domain, features, _matrix(arrays, ""), arrays["y"], None, None)
    arrays = load_arrays(name, read_npz, lambda fetch: _processed_from_home(domain, fetch))
    return AmazonReviews(
        domain,
        features,
        _matrix(arrays, "labeled_"),
        arrays["labeled_y"],
        _matrix(arrays, "unlabeled_"),
        arrays["unlabeled_y"],
    )


def _matrix(arrays: Arrays, prefix: str) -> Any:
    sparse = require("scipy.sparse", extra="sklearn", owner="load_amazon")
    data, indices, indptr, shape = (arrays[prefix + key] for key in ("data", "indices", "indptr", "shape"))
    parts = (data.astype(np.float64), indices.astype(np.int32), indptr)
    return sparse.csr_matrix(parts, shape=tuple(int(length) for length in shape))


def svmlight_arrays(lines: Iterable[str], prefix: str) -> Arrays:
    """CSR arrays of lines "label column:count column:count ...", columns from 0.

    Args:
        lines: of a file.
        prefix: of the arrays' names.
    """
    rows, labels = [], []
    for line in lines:
        label, *cells = line.split()
        labels.append(int(float(label)))
        rows.append([(int(column), int(float(count))) for column, count in (c.split(":") for c in cells)])
    arrays = _csr(rows, _NUM_FREQUENT, np.dtype(np.int16))
    arrays["y"] = np.array(labels, dtype=np.int8)
    return {prefix + key: value for key, value in arrays.items()}


def review_arrays(positive: Iterable[str], negative: Iterable[str]) -> Arrays:
    """CSR arrays of lines "term:count term:count ... #label#:positive"; columns are the terms, sorted.

    Args:
        positive: lines of favourable reviews, which are the first rows.
        negative: lines of the others.
    """
    labelled = [(_terms(line), 1) for line in positive] + [(_terms(line), -1) for line in negative]
    vocabulary = sorted({term for counts, _ in labelled for term in counts})
    column = {term: index for index, term in enumerate(vocabulary)}
    rows = [sorted((column[term], count) for term, count in counts.items()) for counts, _ in labelled]
    arrays = _csr(rows, len(vocabulary), np.dtype(np.int32))
    arrays["y"] = np.array([label for _, label in labelled], dtype=np.int8)
    return arrays


def _terms(line: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    for cell in line.split(" "):
        # A term may contain a colon; the count follows the last one.
        term, _, count = cell.strip().rpartition(":")
        if term and term != "#label#":
            counts[term] += int(count)
    return counts


def _csr(rows: Sequence[Sequence[tuple[int, int]]], columns: int, index_type: np.dtype[Any]) -> Arrays:
    cells = np.array([cell for row in rows for cell in row], dtype=np.int64).reshape(-1, 2)
    return {
        "data": cells[:, 1].astype(np.uint8),
        "indices": cells[:, 0].astype(index_type),
        "indptr": np.cumsum([0, *map(len, rows)]).astype(np.int32),
        "shape": np.array([len(rows), columns], dtype=np.int32),
    }


def _processed_from_home(domain: str, fetch: Fetch) -> Arrays:
    arrays: Arrays = {}
    for part, prefix in (("train", "labeled_"), ("test", "unlabeled_")):
        with fetch(f"{domain}_{part}.svmlight").open(encoding="utf-8") as lines:
            arrays |= svmlight_arrays(lines, prefix)
    return arrays


def _full_from_home(domain: str, fetch: Fetch) -> Arrays:
    parts = {}
    with tarfile.open(fetch("processed_acl.tar.gz")) as archive:
        for kind in ("positive", "negative"):
            member = archive.extractfile(f"processed_acl/{domain}/{kind}.review")
            assert member is not None
            parts[kind] = member.read().decode("utf-8").split("\n")
    lines = {kind: [line for line in text if line.strip()] for kind, text in parts.items()}
    return review_arrays(lines["positive"], lines["negative"])
