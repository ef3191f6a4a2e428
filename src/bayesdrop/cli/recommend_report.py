"""The report of `bayesdrop recommend fit`: measures, what was tried, and how popular listed items are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bayesdrop.page import Picture, note, page, table

__all__ = ["render_recommender_report", "why_chosen"]

#: how to read measures, by how their names begin
_HINTS = {
    "recall": "share of the hidden items that are listed",
    "NDCG": "1 is a perfect list; hits high up count more",
    "coverage": "share of all items that are in anybody's list",
    "novelty": "higher for lists of what few users chose",
    "popularity of lists": "1 is the most popular item, 0 the least",
    "popularity of what was chosen": "if the line above is far higher, lists favour what is popular anyway",
}


def render_recommender_report(report: Mapping[str, Any], title: str) -> str:
    """The HTML page about a recommender.

    Args:
        report: what `report.json` holds.
        title: of the page.
    """
    return page(
        title,
        [
            note(report["data"]),
            "<h2>Lists of test users</h2>",
            note(f"{report['test_users']:,} users that nothing was fitted to or chosen by."),
            table(("", "this model", "", "most popular items", ""), _number_rows(report), numbers=(1, 3)),
            '<div class="pictures">',
            _tried_picture(report),
            _popularity_picture(report),
            "</div>",
            "<h2>What was tried</h2>",
            note(report["why"]),
            f'<div class="wide">{_tried(report)}</div>',
        ],
    )


def why_chosen(search: list[dict[str, Any]], ndcg: float) -> str:
    """Which model or blend was taken, in words."""
    taken = [row for row in search if row["weight"] > 0]
    best = max(search, key=lambda row: float(row["ndcg"]))
    names = ", ".join(f"{_short(row['model'])} ({row['weight']:.2f})" for row in taken)
    if len(taken) == 1:
        return f"{names} alone: no blend has a higher NDCG@100 of validation users ({ndcg:.4f})."
    return (
        f"A blend of {names}: NDCG@100 of validation users is {ndcg:.4f}; the best model alone, "
        f"{_short(best['model'])}, has {best['ndcg']:.4f}."
    )


def _short(model: str) -> str:
    return model.partition("(")[0]


def _number_rows(report: Mapping[str, Any]) -> list[tuple[str, str, str, str, str]]:
    errors, popular = report["standard_errors"], report["most popular"]["numbers"]
    rows = []
    for name, value in report["numbers"].items():
        hint = next((text for start, text in reversed(_HINTS.items()) if name.startswith(start)), "")
        error = f"± {errors[name]:.4f}" if name in errors else ""
        rows.append((name, f"{value:.4f}", error, f"{popular[name]:.4f}", hint))
    return rows


def _tried(report: Mapping[str, Any]) -> str:
    rows = [
        (
            f"{row['ndcg']:.4f}",
            f"{row['weight']:.2f}",
            ", ".join(f"{name} {value}" for name, value in row["chosen"].items()),
            row["model"],
        )
        for row in report["search"]
    ]
    return table(("NDCG@100", "weight", "chosen by validation users", "model"), rows, numbers=(0, 1))


def _tried_picture(report: Mapping[str, Any]) -> str:
    picture = Picture("What was tried (grey: not taken)")
    rows = [(_short(row["model"]), row["ndcg"], row["weight"] > 0) for row in report["search"]]
    rows.append(("what was taken", report["ndcg"], True))
    names = [f"{name} {place + 1}" for place, (name, _, _) in enumerate(rows[:-1])] + ["what was taken"]
    colors = ["C0" if used else "0.7" for *_, used in rows]
    picture.ax.barh(names, [value for _, value, _ in rows], color=colors)
    picture.ax.invert_yaxis()
    picture.ax.set(xlabel="NDCG@100 of validation users")
    return picture.html()


def _popularity_picture(report: Mapping[str, Any]) -> str:
    picture = Picture("Popularity")
    for name, shares in report["tenths"].items():
        picture.ax.plot(range(1, 11), [100 * share for share in shares], "o-", label=name)
    picture.ax.set(xlabel="tenth of all items, least popular first", ylabel="share (%)")
    return picture.html()
