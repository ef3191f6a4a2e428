"""`python -m bayesdrop`."""

from __future__ import annotations

from bayesdrop.cli import main

if __name__ == "__main__":
    main()
