"""Hostile tables, model files, arguments and threads, any number of each.

    python tests/adversary --count 10000 [--seed 0] [--kinds tables threads]

Each kind is tried `count` times. Prints what was wrong as it is found, and ends with a count: right (the
answer is the true one), refused (a clear error of ours), wrong (anything else). Exits with 1 if anything
was wrong.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import warnings
from collections import Counter

KINDS = ("model_files", "tables", "arguments", "threads")
#: attempts from one line of progress to the next
_PIECE = 500


def main() -> int:
    """Run the adversaries that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--count", type=int, default=1000, help="attempts of each kind")
    parser.add_argument("--seed", type=int, default=0, help="another seed makes other attempts")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    total: Counter[str] = Counter()
    for kind in options.kinds:
        outcomes = importlib.import_module(kind).outcomes
        found: Counter[str] = Counter()
        for piece in range(0, options.count, _PIECE):
            found += outcomes(options.seed + piece // _PIECE, min(_PIECE, options.count - piece))
            print(f"{kind}: {_told(found)}", flush=True)
        total += found
    print(_told(total))
    return 1 if total["wrong"] else 0


def _told(found: Counter[str]) -> str:
    return ", ".join(f"{outcome} {found[outcome]:,}" for outcome in ("right", "refused", "wrong"))


if __name__ == "__main__":
    sys.exit(main())
