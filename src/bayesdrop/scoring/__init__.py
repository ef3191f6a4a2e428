"""Scoring more rows than one process should: the Scorer, and tables in parts on local processes or Ray."""

import importlib
from typing import TYPE_CHECKING, Any

from bayesdrop.scoring.scorer import Scorer

if TYPE_CHECKING:
    from bayesdrop.scoring.run import ScoredTables, score_tables

__all__ = ["ScoredTables", "Scorer", "score_tables"]


def __getattr__(name: str) -> Any:
    # These need the extra "tables", which a Scorer of networks does without.
    if name in ("ScoredTables", "score_tables"):
        return getattr(importlib.import_module("bayesdrop.scoring.run"), name)
    raise AttributeError(f"module 'bayesdrop.scoring' has no attribute {name!r}")
