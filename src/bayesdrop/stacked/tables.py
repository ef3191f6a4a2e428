"""fit_tables(): a recipe for one table or many, all networks of all tables in common stacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bayesdrop.errors import must
from bayesdrop.stacked.mixture import Mixture
from bayesdrop.stacked.recipe import Recipe
from bayesdrop.stacked.table import Table
from bayesdrop.stacked.table_fit import TableFit
from bayesdrop.stacked.train import train

__all__ = ["Table", "fit_tables"]


def fit_tables(
    tables: Sequence[Table], recipe: Recipe | Sequence[Recipe], *, processes: int = 1, progress: bool = False
) -> list[Mixture]:
    """Fit every table by a recipe; networks of all tables that have one shape are trained side by side.

    Args:
        tables: what to fit, each by itself.
        recipe: one for all tables, or one for each.
        processes: as in `train`.
        progress: as in `train`.
    """
    recipes = [recipe] * len(tables) if isinstance(recipe, Recipe) else list(recipe)
    if len(recipes) != len(tables):
        raise ValueError(must("fit_tables", "recipe", f"one, or one for each of {len(tables)}", len(recipes)))
    fits = [TableFit(table, one) for table, one in zip(tables, recipes, strict=True)]

    def run(wanted: Sequence[tuple[TableFit, int, int]]) -> None:
        """Blocks of candidates: (table, candidate, block)."""
        made = [fit.block_jobs(place, block) for fit, place, block in wanted]
        found = train([job for jobs, _ in made for job in jobs], processes=processes, progress=progress)
        done = 0
        for (fit, place, _), (jobs, held) in zip(wanted, made, strict=True):
            fit.add(place, found[done : done + len(jobs)], held)
            done += len(jobs)

    searching = [fit for fit in fits if fit.parts_of_block]
    for fit in fits:
        fit.candidates = list(fit.recipe.candidates)
    run([(fit, place, 0) for fit in searching for place in range(len(fit.candidates))])
    for fit in searching:
        for place in range(len(fit.candidates)):
            fit.judge(place)
    for _ in range(max((fit.recipe.rounds for fit in searching), default=0)):
        _round(searching, run)
    picked = {id(fit): fit.picks() if fit.parts_of_block else [0] for fit in fits}
    more = [
        (fit, place, block)
        for fit in searching
        if not fit.recipe.refit
        for place in sorted(set(picked[id(fit)]))
        for block in range(1, picked[id(fit)].count(place))
    ]
    run(more)
    refits = [fit for fit in fits if fit.recipe.refit or not fit.parts_of_block]
    jobs = [
        fit.final_job(picked[id(fit)][0], restart) for fit in refits for restart in range(fit.recipe.restarts)
    ]
    trained = iter(train(jobs, processes=processes, progress=progress))
    refitted = {id(fit): [next(trained) for _ in range(fit.recipe.restarts)] for fit in refits}
    return [fit.result(picked[id(fit)], refitted.get(id(fit))) for fit in fits]


def _round(fits: Sequence[TableFit], run: Any) -> None:
    """One round of Bayesian optimisation of every table that has one left."""
    wanted = []
    for fit in fits:
        if fit.proposals is None or fit.proposals.done:
            continue
        new = fit.proposals.ask([(one, fit.scores.get(place)) for place, one in enumerate(fit.candidates)])
        for candidate in new:
            fit.candidates.append(candidate)
            wanted.append((fit, len(fit.candidates) - 1, 0))
    run(wanted)
    for fit, place, _ in wanted:
        value = fit.judge(place)
        assert fit.proposals is not None
        fit.proposals.tell(fit.candidates[place], value)
