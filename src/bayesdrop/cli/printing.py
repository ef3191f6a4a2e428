"""What commands print: rows in columns, texts of a table made harmless, errors as a sentence."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from bayesdrop.harmless import visible

__all__ = ["plain_errors", "print_rows", "print_safely", "shows_progress"]


def print_rows(rows: Iterable[tuple[str, str, str]]) -> None:
    """Print rows of a name, a value and a hint, in columns."""
    rows = list(rows)
    width = max(len(name) for name, _, _ in rows)
    wide = max(len(value) for _, value, _ in rows)
    for name, value, hint in rows:
        print_safely(f"  {name.ljust(width)}  {value.rjust(wide)}  {hint}".rstrip())


def print_safely(line: str) -> None:
    """Print a line that may have texts of a table in it, whose control characters are written out."""
    print(visible(line), flush=True)


def shows_progress(quiet: bool) -> bool:
    """Whether bars are to be shown: on a terminal, unless quiet was asked for."""
    return not quiet and sys.stderr.isatty()


@contextmanager
def plain_errors() -> Iterator[None]:
    """Print an error as a sentence and exit with 2; nothing has been written by then."""
    try:
        yield
    except BrokenPipeError:  # nobody reads what is printed any more, which is no error of ours
        raise
    except KeyboardInterrupt:
        print("Stopped; nothing was written.", file=sys.stderr)
        raise SystemExit(130) from None
    except Exception as error:
        from bayesdrop.errors import Diverged

        if not isinstance(error, ValueError | TypeError | OSError | Diverged | MemoryError):
            raise
        said = str(error) or "there is not enough memory."
        if isinstance(error, OSError) and error.filename and error.strerror:
            said = f"{error.filename}: {error.strerror.lower()}."
        print(f"Error: {visible(said)}", file=sys.stderr)
        raise SystemExit(2) from error
