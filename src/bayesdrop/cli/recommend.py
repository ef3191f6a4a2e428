"""`bayesdrop recommend fit`, `for` and `evaluate`: from a table of choices to lists with uncertainty."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from bayesdrop.cli.options import AsJson, Force, Seed, Separator, WrittenModel
from bayesdrop.cli.printing import plain_errors, print_rows, print_safely, shows_progress

__all__ = ["recommend"]

#: validation users, and test users, at most
_MOST_USERS = 2000

Model = Annotated[Path, typer.Argument(help="A folder that `bayesdrop recommend fit` wrote.")]
Choices = Annotated[Path, typer.Argument(help="A CSV or Parquet table with a row for each choice of a user.")]
User = Annotated[str, typer.Option(help="The column of users.")]
Item = Annotated[str, typer.Option(help="The column of items.")]
Rating = Annotated[str | None, typer.Option(help="A column of ratings.")]
AtLeast = Annotated[float | None, typer.Option(help="The least rating that means liked.")]

recommend = typer.Typer(help="Recommend items to users, and say how sure it is.", no_args_is_help=True)


@recommend.command()
def fit(
    data: Choices,
    output: WrittenModel,
    user: User = "user",
    item: Item = "item",
    rating: Rating = None,
    at_least: AtLeast = None,
    separator: Separator = None,
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Choose between EASE, a VAE, a SIVAE and blends of them by validation users, and write the model."""
    with plain_errors():
        from bayesdrop.cli.recommend_report import render_recommender_report
        from bayesdrop.storage import check_writable, whole_folder, write_file

        if output.exists() and not force:
            raise ValueError(f"{output} is there already. Choose another name, or replace it with --force.")
        check_writable(output, owner="recommend fit")
        choices = _choices(data, user, item, rating, at_least, separator)
        print_safely(f"{data}: {choices!r}")
        model, report = _fitted(choices, seed)
        with whole_folder(output, owner="recommend fit") as folder:
            model.save(folder / "model.safetensors")
            write_file(folder / "report.json", json.dumps(report, indent=1), owner="recommend fit")
            page = render_recommender_report(report, f"Recommender of {data.name}")
            write_file(folder / "report.html", page, owner="recommend fit")
        print("What was tried, by NDCG@100 of validation users, and what is in the blend:")
        for row in report["search"]:
            print_safely(f"  {row['ndcg']:.4f}  weight {row['weight']:.2f}  {row['model']}")
        print_safely(report["why"])
        print(f"On {report['test_users']:,} test users:")
        print_rows(_rows(report))
        print(f"Model: {output.resolve()}")
        print(f"Report: {(output / 'report.html').resolve()}")


@recommend.command("for")
def lists(
    model: Model,
    histories: Choices,
    output: Annotated[Path, typer.Option("--output", "-o", help="The CSV or Parquet file to write.")],
    k: Annotated[int, typer.Option("-k", min=1, help="Items of a list.")] = 20,
    user: User = "user",
    item: Item = "item",
    rating: Rating = None,
    at_least: AtLeast = None,
    seen_too: Annotated[bool, typer.Option("--seen-too", help="List items of the history as well.")] = False,
    draws: Annotated[int, typer.Option(min=0, help="Draws for the spread of scores; 0 for no spread.")] = 20,
    explore: Annotated[str | None, typer.Option(help="thompson or ucb.")] = None,
    separator: Separator = None,
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Write a list for every user of a table: user, rank, item, score and its spread over draws."""
    with plain_errors():
        from bayesdrop.tables.writing import check_output, write_frame

        check_output(output, histories, force=force)
        recommender = _loaded(model)
        choices = _choices(histories, user, item, rating, at_least, separator)
        options: dict[str, Any] = {"exclude_seen": not seen_too, "explore": explore, "seed": seed}
        found = recommender.recommend(choices, k, num_draws=draws, **options)
        unknown = int((found.known == 0).sum())
        if unknown:
            print(f"{unknown:,} users have no item that the model knows: their list is that of no choices.")
        write_frame(output, found.table().rename(columns={"user": user, "item": item}))
        print_safely(f"{len(found.users):,} lists: {output.resolve()}")


@recommend.command()
def evaluate(
    model: Model,
    data: Choices,
    user: User = "user",
    item: Item = "item",
    rating: Rating = None,
    at_least: AtLeast = None,
    separator: Separator = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Hide a fifth of every user's items, and measure where the model ranks them.

    For users that the model was not fitted to: it remembers the hidden items of the others.
    """
    with plain_errors():
        from bayesdrop.recommend import evaluate_lists

        recommender = _loaded(model)
        choices = _choices(data, user, item, rating, at_least, separator)
        known = choices.aligned(recommender.items)
        if not len(known):
            raise ValueError(f"the model knows none of the {len(choices.items):,} items of {data}.")
        report = evaluate_lists(recommender, known.hidden(seed=seed))
        if as_json:
            print(json.dumps(report, indent=1))
        else:
            print_rows(_rows(report))


def _choices(
    path: Path, user: str, item: str, rating: str | None, at_least: float | None, separator: str | None
) -> Any:
    from bayesdrop.recommend import Interactions
    from bayesdrop.tables import open_table

    frame = open_table(path, separator=separator).read()
    return Interactions.from_table(frame, user=user, item=item, rating=rating, at_least=at_least)


def _fitted(choices: Any, seed: int) -> tuple[Any, dict[str, Any]]:
    """The model, and what its report says."""
    from bayesdrop.cli.recommend_report import why_chosen
    from bayesdrop.recommend import Blend, Popularity, evaluate_lists

    users = int((choices.matrix.sum(1) >= 5).sum())
    held = min(_MOST_USERS, users // 10)
    if held < 10:
        raise ValueError(f"there must be 100 users with at least 5 items to learn from; there are {users:,}.")
    split = choices.split_by_users(validation=held, test=held, seed=seed)
    model = Blend(seed=seed).fit(split.train, split.validation, progress=shows_progress(False))
    everybody = evaluate_lists(Popularity().fit(split.train), split.test, split.train)
    report = {
        "data": f"{len(choices):,} choices of {len(choices.users):,} users among {len(choices.items):,} "
        f"items. {len(split.train.users):,} users were fitted to, {held:,} chosen by and {held:,} tested "
        f"on; users of fewer than 5 items were left out. The model knows {len(model.items):,} items.",
        "why": why_chosen(model.search, model.ndcg),
        "ndcg": model.ndcg,
        "search": model.search,
        **evaluate_lists(model, split.test, split.train),
        "most popular": everybody,
    }
    return model, report


def _loaded(folder: Path) -> Any:
    from bayesdrop.recommend import Recommender

    path = folder / "model.safetensors"
    if not path.is_file():
        raise ValueError(f"{folder} is not a folder that `bayesdrop recommend fit` wrote.")
    return Recommender.load(path)


def _rows(report: dict[str, Any]) -> list[tuple[str, str, str]]:
    errors = report["standard_errors"]
    return [
        (name, f"{value:.4f}", f"± {errors[name]:.4f}" if name in errors else "")
        for name, value in report["numbers"].items()
    ]
