"""Old names say where they went."""

from __future__ import annotations

import pytest


def test_draws_say_where_they_went() -> None:
    with pytest.raises(ImportError, match=r"import FunctionDraw from bayesdrop\.trace"):
        from bayesdrop.draws import FunctionDraw  # noqa: F401
    with pytest.raises(ImportError, match=r"import NoiseSource from bayesdrop\.noise"):
        from bayesdrop.draws import NoiseSource  # noqa: F401
