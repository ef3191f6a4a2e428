"""Drop rates while they are learned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bayesdrop.errors import must
from bayesdrop.plots.checks import Numbers, Values, check_axes, numbers, row_numbers
from bayesdrop.plots.style import COLORS, dress, from_zero

__all__ = ["plot_rates"]


def plot_rates(
    ax: Any,
    rates: Any,
    *,
    steps: Values | None = None,
    names: Sequence[str] | None = None,
    colors: Sequence[Any] = COLORS,
) -> Any:
    """The drop rate of every layer over training: a line a layer.

    If each unit of a layer has its own rate, the line is their mean and a band shows their range.

    Args:
        ax: matplotlib axes.
        rates: a `History` from `fit`; or the rates of S steps: {path: (S,) or (S, units)}, or a list of S
            results of `bayesdrop.rates`.
        steps: (S,) the steps of the rates; 1, 2, ..., S if None.
        names: of the layers, for a legend; their paths if None.
        colors: used in turn, one for each layer.

    Returns: the axes.
    """
    owner = "plot_rates"
    check_axes(owner, ax)
    table = _table(owner, rates)
    lengths = {len(values) for values in table.values()}
    if len(lengths) != 1:
        raise ValueError(must(owner, "rates", "as many steps of every layer", sorted(lengths)))
    (length,) = lengths
    given = range(1, length + 1) if steps is None else steps
    places = row_numbers(owner, "steps", given, length, like="rates")
    if names is not None and len(names) != len(table):
        raise ValueError(must(owner, "names", f"{len(table)} names, one a layer", tuple(names)))
    for index, (path, values) in enumerate(table.items()):
        color = colors[index % len(colors)]
        name = names[index] if names is not None else f"layer {path}" if path else "layer"
        units = values.reshape(length, -1)
        if units.shape[1] > 1:
            ax.fill_between(places, units.min(1), units.max(1), color=color, alpha=0.18, linewidth=0)
        ax.plot(places, units.mean(1), color=color, linewidth=1.6, label=name)
    from_zero(ax)
    dress(ax, xlabel="epoch" if hasattr(rates, "rates") else "step", ylabel="drop rate p")
    return ax


def _table(owner: str, rates: Any) -> dict[str, Numbers]:
    """The rates of every layer, steps on axis 0."""
    found = getattr(rates, "rates", rates)
    if isinstance(found, Sequence) and found and all(isinstance(step, Mapping) for step in found):
        paths = list(found[0])
        if any(list(step) != paths for step in found):
            raise ValueError(must(owner, "rates", "of the same layers at every step", paths))
        found = {path: [step[path] for step in found] for path in paths}
    if not isinstance(found, Mapping):
        want = "a History, a mapping of paths to rates, or a list of such mappings"
        raise TypeError(must(owner, "rates", want, type(rates)))
    if not found:
        hint = "Rates are learned by ConcreteDropout, LearnableDropout and VariationalGaussianDropout."
        raise ValueError(must(owner, "rates", "of at least one layer", "none", hint))
    table = {str(path): numbers(owner, f"rates[{path!r}]", value, 1, 2) for path, value in found.items()}
    for path, values in table.items():
        if (values < 0).any() or (values > 1).any():
            raise ValueError(must(owner, f"rates[{path!r}]", "in [0, 1]", (values.min(), values.max())))
    return table
