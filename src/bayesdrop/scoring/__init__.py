"""Scoring more rows than one process should: the Scorer, and tables in parts on local processes or Ray."""

from bayesdrop.scoring.scorer import Scorer

__all__ = ["Scorer"]
