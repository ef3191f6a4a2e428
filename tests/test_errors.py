from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from bayesdrop.errors import (
    MissingExtra,
    must,
    must_be_finite,
    must_be_flag,
    real_number,
    real_numbers,
    require,
    whole_number,
    whole_seed,
)


def test_the_sentence_names_owner_argument_requirement_and_value() -> None:
    sentence = must("NegativeELBO", "num_data", "a positive int", 0, "Pass len(train_set).")
    assert sentence == "NegativeELBO: `num_data` must be a positive int; got 0. Pass len(train_set)."


def test_tensors_are_told_by_shape_and_long_values_cut() -> None:
    assert "a tensor of shape (3, 4)" in must("f", "x", "small", torch.zeros(3, 4))
    assert "tensor(2.0)" in must("f", "x", "small", torch.tensor(2.0))
    assert "an empty tensor" in must("f", "x", "full", torch.zeros(0))
    assert len(must("f", "x", "short", "a" * 1000)) < 300


def test_a_value_that_is_not_finite_is_counted_and_placed() -> None:
    value = torch.zeros(2, 3)
    value[1, 2] = float("nan")
    with pytest.raises(ValueError, match=r"f: `x` must be finite; got 1 of 6 .* first at \(1, 2\)"):
        must_be_finite("f", "x", value)
    must_be_finite("f", "x", torch.zeros(2))
    must_be_finite("f", "x", torch.tensor([1, 2]))


def test_a_missing_package_names_its_extra() -> None:
    with pytest.raises(MissingExtra, match=r"plot\(\) needs nowhere_to_be_found.*pip install '\.\[plot\]'"):
        require("nowhere_to_be_found.part", extra="plot", owner="plot()")


def test_numbers_of_an_argument_are_checked_in_one_place() -> None:
    assert whole_number("f", "n", np.int64(3), at_least=1) == 3
    assert type(whole_number("f", "n", np.int64(3))) is int
    for bad in (True, 1.0, "1", None, 0, 10**30, torch.tensor(1)):
        with pytest.raises(ValueError, match="f: `n` must be a positive int"):
            whole_number("f", "n", bad, at_least=1)
    with pytest.raises(ValueError, match=r"f: `n` must be 2 for 'arm'; got 3\."):
        whole_number("f", "n", 3, at_least=2, at_most=2, want="2 for 'arm'")
    assert real_number("f", "x", torch.tensor(0.5), "in (0, 1)", above=0, below=1) == 0.5
    for bad in (True, 1j, "0.5", None, math.nan, math.inf, 1.0, 0, 10**400, [0.5], torch.ones(2)):
        with pytest.raises(ValueError, match=r"f: `x` must be in \(0, 1\)"):
            real_number("f", "x", bad, "in (0, 1)", above=0, below=1)
    assert real_numbers("f", "x", [0.1, 0.2], "numbers").tolist() == [0.1, 0.2], "in double precision"
    for bad in (
        True,
        "a",
        None,
        [True, False],
        ["a"],
        {1},
        {},
        [[1], [1, 2]],
        torch.zeros(2, dtype=torch.cfloat),
    ):
        with pytest.raises(TypeError, match="f: `x` must be numbers"):
            real_numbers("f", "x", bad, "numbers")
    for bad in (-1, 2**63, 1.0, True, object()):
        with pytest.raises(ValueError, match="f: `seed` must be an int from 0"):
            whole_seed("f", bad)
    with pytest.raises(TypeError, match="f: `x` must be True or False; got 'no'"):
        must_be_flag("f", x="no")
