"""Running what was recorded or read, for many draws at once."""

from bayesdrop.execute.plan import WAYS, Plan, Runner
from bayesdrop.execute.sequential import Reading, read

__all__ = ["WAYS", "Plan", "Reading", "Runner", "read"]
