"""`bayesdrop serve`, `refit` and `people`: a model that answers, learns, and knows who may ask."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from bayesdrop.cli.options import Quiet
from bayesdrop.cli.printing import plain_errors, print_safely, shows_progress

__all__ = ["people", "refit", "serve"]

SavedModel = Annotated[
    str, typer.Argument(help="A folder of `fit` or of an image classifier, or package.module:function.")
]
Database = Annotated[
    str | None,
    typer.Option(
        help="URL, such as postgresql+psycopg://me@host/desk; if left out, a file desk.sqlite in the home."
    ),
]
Home = Annotated[
    Path | None, typer.Option(help="Folder of the database and of versions; MODEL.desk if left out.")
]
Data = Annotated[Path | None, typer.Option(help="The table that the model was fitted to, for refits.")]
Name = Annotated[
    str | None, typer.Option(help="Name of the model in addresses; that of its folder if left out.")
]


def serve(
    model: SavedModel,
    host: Annotated[
        str, typer.Option(help="Address to listen on; one that is not of this machine alone needs tokens.")
    ] = ("127.0.0.1"),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for a free one.")] = 8080,
    database: Database = None,
    home: Home = None,
    data: Data = None,
    name: Name = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A host name by which callers reach the server, as by a proxy.")
    ] = None,
    likelihood: Annotated[
        str | None,
        typer.Option(
            help="For package.module:function: categorical, bernoulli, gaussian, heteroscedastic or raw."
        ),
    ] = None,
    draws: Annotated[int | None, typer.Option(min=2, help="Functions drawn for an answer.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the draws.")] = 0,
    level: Annotated[
        float | None, typer.Option(help="Coverage of the intervals; the model's own if left out.")
    ] = None,
    defer_above: Annotated[
        float | None,
        typer.Option(help="For images and torch models: rows of a larger entropy, or std, go to a person."),
    ] = None,
    max_body: Annotated[int, typer.Option(min=1, help="Bytes that a request may have.")] = 32 * 2**20,
    max_rows: Annotated[int, typer.Option(min=1, help="Rows that a request may have.")] = 50_000,
    max_draws: Annotated[int, typer.Option(min=2, help="Draws that a request may ask for.")] = 1000,
    queue_rows: Annotated[int, typer.Option(min=1, help="Rows that may wait; beyond that, 429.")] = 100_000,
    workers: Annotated[int, typer.Option(min=1, help="Threads that predict.")] = 1,
    rate: Annotated[
        float, typer.Option(min=0, help="Requests a second that a caller may send; 0 for no limit.")
    ] = 0.0,
    random_share: Annotated[
        float, typer.Option(min=0, max=1, help="Share of rows, picked at random, that people see anyway.")
    ] = 0.1,
    second_share: Annotated[
        float, typer.Option(min=0, max=1, help="Share of items that two people are asked about.")
    ] = 0.0,
    lease: Annotated[
        float, typer.Option(min=1, help="Seconds that an item belongs to the person who got it.")
    ] = 300.0,
    adaptive: Annotated[
        bool, typer.Option("--adaptive", help="Stretch intervals as new labels show drift.")
    ] = False,
    adaptive_by: Annotated[
        str | None, typer.Option(help="A column: --adaptive, for each of its values separately.")
    ] = None,
) -> None:
    """Answer requests, store them, and ask people about the uncertain ones on a page at /desk."""
    with plain_errors():
        _needed()
        from bayesdrop.serve.running import run
        from bayesdrop.serve.settings import ServeSettings

        settings = ServeSettings(
            model,
            host=host,
            port=port,
            database=database,
            home=home,
            data=data,
            name=name,
            allowed_hosts=tuple(allow_host or ()),
            likelihood=likelihood,
            num_draws=draws,
            seed=seed,
            level=level,
            defer_above=defer_above,
            max_body=max_body,
            max_rows=max_rows,
            max_draws=max_draws,
            queue_rows=queue_rows,
            workers=workers,
            rate=rate,
            random_share=random_share,
            second_share=second_share,
            lease=lease,
            adaptive=adaptive,
            adaptive_by=adaptive_by,
        )
        try:
            run(settings, say=print_safely)
        except KeyboardInterrupt:
            # What was accepted is done by now.
            print("Stopped.", file=sys.stderr)


def refit(
    model: SavedModel,
    data: Data = None,
    database: Database = None,
    home: Home = None,
    name: Name = None,
    force: Annotated[
        bool, typer.Option("--force", help="Answer with the new version even if it is not better.")
    ] = False,
    back: Annotated[
        bool, typer.Option("--back", help="Do not train: answer with the version before again.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    quiet: Quiet = False,
) -> None:
    """Train a new version on the old data and the new labels; it answers only if it is better."""
    with plain_errors():
        _needed()
        import json

        from bayesdrop.serve.refit import refit as run_refit
        from bayesdrop.serve.settings import ServeSettings
        from bayesdrop.serve.store import Store

        settings = ServeSettings(model, database=database, home=home, data=data, name=name)
        with Store(settings.url) as store:
            if back:
                active = store.versions.active(settings.model_name)
                before = None if active is None else store.versions.before(active)
                if before is None:
                    raise ValueError("there is no version before the one that answers.")
                store.versions.activate(before, why="one step back")
                print(f"Version {before.version} answers.")
                return
            say = (lambda line: None) if quiet or as_json else print_safely
            result = run_refit(settings, store, force=force, say=say, progress=shows_progress(quiet))
        if as_json:
            print(json.dumps(asdict(result), indent=1))
            return
        for told, trial in result.comparison["trials"].items():
            print_safely(f"{told} ({trial['rows']:,} rows): {_told(trial)}")


def _told(trial: dict[str, Any]) -> str:
    """The measures of the old and the new model in a trial, as text."""
    parts = [f"{name} {trial['old'][name]:.4g} -> {trial['new'][name]:.4g}" for name in trial["old"]]
    return "; ".join(parts)


def people(
    model: SavedModel,
    add: Annotated[str | None, typer.Option(help="Name of a new person or program; prints a token.")] = None,
    role: Annotated[str, typer.Option(help="Of --add: reader, labeller or admin.")] = "labeller",
    renew: Annotated[str | None, typer.Option(help="Name of who gets a new token for the old one.")] = None,
    disable: Annotated[str | None, typer.Option(help="Name of who is not let in any more.")] = None,
    database: Database = None,
    home: Home = None,
    name: Name = None,
) -> None:
    """List people, or give out and take away their tokens."""
    with plain_errors():
        _needed()
        from bayesdrop.serve.settings import ServeSettings
        from bayesdrop.serve.store import Store

        if sum(asked is not None for asked in (add, renew, disable)) > 1:
            raise ValueError("give one of --add, --renew and --disable.")
        settings = ServeSettings(model, database=database, home=home, name=name)
        with Store(settings.url) as store:
            if add is not None or renew is not None:
                token = store.people.add(add, role)[1] if add is not None else store.people.renew(str(renew))  # type: ignore[arg-type]
                print("The token, which cannot be shown again:", file=sys.stderr)
                print(token)
                return
            if disable is not None:
                store.people.disable(disable)
            for person in store.people.all():
                state = "disabled" if person.disabled else "token" if person.has_token else "no token"
                print_safely(f"{person.name}  {person.role}  {state}")


def _needed() -> None:
    from bayesdrop.errors import require

    for module in (
        "fastapi",
        "uvicorn",
        "sqlalchemy",
        "alembic",
        "jinja2",
        "python_multipart",
        "PIL",
        "pandas",
    ):
        require(module, extra="serve", owner="bayesdrop serve")
