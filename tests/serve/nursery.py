"""A process that has everything imported and forks servers: kills in tests then cost no second start.

    python nursery.py MODEL HOME DATABASE

For each line that it reads it forks a server and prints its process id and its port.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from bayesdrop.serve.running import run
from bayesdrop.serve.settings import ServeSettings


def main() -> None:
    """Fork a server for each line; nothing has run yet that a fork could break."""
    model, home, database = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    print("ready", flush=True)
    for _ in sys.stdin:
        if not os.fork():
            settings = ServeSettings(model, home=home, database=database, port=0, random_share=0.5)
            run(settings, say=lambda line: print(os.getpid(), line, flush=True))
            os._exit(0)


if __name__ == "__main__":
    main()
