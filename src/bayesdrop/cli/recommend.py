"""`bayesdrop recommend fit`, `for` and `evaluate`: from a table of choices to lists with uncertainty."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bayesdrop.cli.recommend_report import render_recommender_report, why_chosen
from bayesdrop.cli.tables import plain_errors, print_rows, print_safely, watched

__all__ = ["add_recommend"]

#: held-out users of each kind at the most
_MOST_USERS = 2000


def add_recommend(app: Any, typer: Any) -> None:
    """Give the application its group of commands `recommend`."""
    group = typer.Typer(help="Recommend items to users, and say how sure it is.", no_args_is_help=True)
    user_option = typer.Option("user", "--user", help="The column of users.")
    item_option = typer.Option("item", "--item", help="The column of items.")
    rating_option = typer.Option(None, "--rating", help="A column of ratings.")
    least_option = typer.Option(None, "--at-least", help="The least rating that means liked.")
    separator_option = typer.Option(None, "--separator", help="Between the cells; told from the header.")
    force_option = typer.Option(False, "--force", help="Replace what is there.")
    output_option = typer.Option(..., "--output", "-o", help="The folder to write the model in.")
    lists_option = typer.Option(..., "--output", "-o", help="The CSV or Parquet file to write.")
    seed_option = typer.Option(0, "--seed", min=0, max=2**32 - 1, help="The same seed, the same model.")
    model_argument = typer.Argument(help="A folder that `bayesdrop recommend fit` wrote.")
    data_argument = typer.Argument(help="A CSV or Parquet table: a row for every choice of a user.")
    k_option = typer.Option(20, "-k", min=1, help="Items of a list.")
    seen_option = typer.Option(False, "--seen-too", help="List items of the history as well.")
    draws_option = typer.Option(20, "--draws", min=0, help="Draws that the spread is of; 0 for none.")
    explore_option = typer.Option(None, "--explore", help="thompson or ucb.")
    json_option = typer.Option(False, "--json", help="Print JSON.")

    @group.command("fit")  # type: ignore[untyped-decorator, unused-ignore]
    def fit(
        data: Path = data_argument,
        output: Path = output_option,
        user: str = user_option,
        item: str = item_option,
        rating: str | None = rating_option,
        at_least: float | None = least_option,
        separator: str | None = separator_option,
        seed: int = seed_option,
        force: bool = force_option,
    ) -> None:
        """Choose between EASE, a VAE, a SIVAE and blends of them by validation users, and write the model."""
        with plain_errors():
            from bayesdrop.storage import check_writable, whole_folder, write_file

            if output.exists() and not force:
                raise ValueError(
                    f"{output} is there already. Choose another name, or replace it with --force."
                )
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

    @group.command("for")  # type: ignore[untyped-decorator, unused-ignore]
    def lists(
        model: Path = model_argument,
        histories: Path = data_argument,
        output: Path = lists_option,
        k: int = k_option,
        user: str = user_option,
        item: str = item_option,
        rating: str | None = rating_option,
        at_least: float | None = least_option,
        seen_too: bool = seen_option,
        draws: int = draws_option,
        explore: str | None = explore_option,
        separator: str | None = separator_option,
        seed: int = seed_option,
        force: bool = force_option,
    ) -> None:
        """A list for every user of a table: user, rank, item, score and its spread over draws."""
        with plain_errors():
            from bayesdrop.tables.writing import check_output, write_frame

            check_output(output, histories, force=force)
            recommender = _loaded(model)
            choices = _choices(histories, user, item, rating, at_least, separator)
            options: dict[str, Any] = {"exclude_seen": not seen_too, "explore": explore, "seed": seed}
            found = recommender.recommend(choices, k, num_draws=draws, **options)
            unknown = int((found.known == 0).sum())
            if unknown:
                print(f"{unknown:,} users have no item that the model knows: their list is everybody's.")
            table = found.table().rename(columns={"user": user, "item": item})
            write_frame(output, table)
            print_safely(f"{len(found.users):,} lists: {output.resolve()}")

    @group.command("evaluate")  # type: ignore[untyped-decorator, unused-ignore]
    def evaluate(
        model: Path = model_argument,
        data: Path = data_argument,
        user: str = user_option,
        item: str = item_option,
        rating: str | None = rating_option,
        at_least: float | None = least_option,
        separator: str | None = separator_option,
        seed: int = seed_option,
        as_json: bool = json_option,
    ) -> None:
        """Hide a fifth of every user's items, and see where the model ranks them.

        For users that the model was not fitted to; of those that it was, it remembers what is hidden.
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

    app.add_typer(group, name="recommend")


def _choices(
    path: Path, user: str, item: str, rating: str | None, at_least: float | None, separator: str | None
) -> Any:
    from bayesdrop.recommend import Interactions
    from bayesdrop.tables import open_table

    frame = open_table(path, separator=separator).read()
    return Interactions.from_table(frame, user=user, item=item, rating=rating, at_least=at_least)


def _fitted(choices: Any, seed: int) -> tuple[Any, dict[str, Any]]:
    """The model, and what is to be said of it."""
    from bayesdrop.recommend import Blend, Popularity, evaluate_lists

    users = int((choices.matrix.sum(1) >= 5).sum())
    held = min(_MOST_USERS, users // 10)
    if held < 10:
        raise ValueError(f"there must be 100 users with at least 5 items to learn from; there are {users:,}.")
    split = choices.split_by_users(validation=held, test=held, seed=seed)
    model = Blend(seed=seed).fit(split.train, split.validation, progress=watched(False))
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
