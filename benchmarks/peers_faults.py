"""What MC dropout of other libraries returns where bayesdrop was built not to go wrong.

    PYTHONPATH=src .venv-peers/bin/python benchmarks/peers_faults.py [--only lstm encoder ... | --render]

Runs in the peers' environment, all libraries on the same networks. Writes results/peers-faults.json and,
from it, the tables of docs/peers.md; --only prints some rows and writes nothing, --render needs no peers.
"""

from __future__ import annotations

import argparse
import copy
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from peers_sites import SITES, network

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "peers-faults.json"
PAGE = ROOT / "docs" / "peers.md"
BEGIN, END = "<!-- peers: begin -->", "<!-- peers: end -->"
ROWS, NUM_DRAWS = 8, 8000
NOTHING_RANDOM = ("zero", "none")
NAMES = ("bayesdrop", "torch-uncertainty", "baal", "baal, consistent", "lightning-uq-box")


# what is random


def site(name: str, *, beside: bool) -> dict[str, Any]:
    """For every library the std over draws, in units of that of passes in training mode, or what it said."""
    from peers_doors import DOORS

    net = network(name, beside=beside)
    torch.manual_seed(1)
    x = torch.randn(ROWS, *SITES[name].shape)
    truth = float(_spread(_training_passes(net, x)))
    found: dict[str, Any] = {}
    for library, door in DOORS.items():
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            try:
                spread = float(_spread(door(copy.deepcopy(net), NUM_DRAWS, 0)(x)))
            # Whatever stops a library, a warning raised as an error too, is what the table has to say.
            except Exception as error:
                found[library] = {"error": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
                continue
        found[library] = {"std": round(spread / truth if truth else spread, 3)}
        told = [str(item.message).splitlines()[0] for item in seen if _is_about_noise(str(item.message))]
        if told:
            found[library]["warning"] = told[0]
    return found


def _training_passes(net: nn.Module, x: Tensor) -> Tensor:
    """There is nothing in these networks but noise that training mode changes."""
    with torch.no_grad():
        outputs: Tensor = copy.deepcopy(net).train()(x.repeat(NUM_DRAWS, *[1] * (x.dim() - 1)))
    return outputs.unflatten(0, (NUM_DRAWS, len(x)))


def _spread(draws: Tensor) -> Tensor:
    """The root mean square, over rows and outputs, of the std over draws."""
    return draws.double().var(0).mean().sqrt()


def _is_about_noise(message: str) -> bool:
    return any(word in message.lower() for word in ("dropout", "patch", "random"))


# what else happens


def habit(name: str) -> dict[str, Any]:
    """For every library whether it holds, or the error."""
    from peers_doors import DOORS
    from peers_habits import HABITS

    found: dict[str, Any] = {}
    for library, door in DOORS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found[library] = {"holds": HABITS[name][1](door)}
            except Exception as error:
                found[library] = {"error": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
    return {"title": HABITS[name][0], "found": found}


# tables


def report(found: dict[str, Any]) -> str:
    """The tables of a run, in Markdown."""
    notes: list[str] = []
    return "\n".join([*_sites(found["alone"], notes), *_beside(found["beside"]), *_rest(found)])


def _head(first: str) -> list[str]:
    return [f"| {first} | " + " | ".join(NAMES) + " |", "|---|" + "---|" * len(NAMES)]


def _sites(rows: dict[str, Any], notes: list[str]) -> Iterator[str]:
    yield "**The only noise of the network is there.** Standard deviation over draws, 1.00 being right:"
    yield ""
    yield from _head("noise")
    for name, row in rows.items():
        right = "error" if name in NOTHING_RANDOM else None
        yield f"| {SITES[name].title} | " + " | ".join(_cell(row[at], notes, right) for at in NAMES) + " |"
    yield ""
    for number, note in enumerate(notes, 1):
        yield f"{number}. {_plain(note)}"
    yield ""


def _cell(entry: dict[str, Any], notes: list[str], right: str | None = None) -> str:
    if "error" in entry:
        text = f"error ({_number_of(entry['error'], notes)})"
        return f"**{text}**" if right == "error" else text
    if entry["std"] == 0:
        told = "warning" in entry
        text = f"0, warns ({_number_of(entry['warning'], notes)})" if told else "0, silent"
        return text.replace(" ", "\u00a0")
    return f"**{entry['std']:.2f}**" if abs(entry["std"] - 1) < 0.05 else f"{entry['std']:.2f}"


def _number_of(note: str, notes: list[str]) -> int:
    if note not in notes:
        notes.append(note)
    return notes.index(note) + 1


def _plain(note: str) -> str:
    return note.replace("|", r"\|")


def _beside(rows: dict[str, Any]) -> Iterator[str]:
    yield "**The same with an `nn.Dropout(0.1)` before the last layer**, as most networks have one:"
    yield ""
    yield from _head("noise")
    for name, row in rows.items():
        yield f"| {SITES[name].title} | " + " | ".join(_cell(row[at], []) for at in NAMES) + " |"
    yield ""


def _rest(found: dict[str, Any]) -> Iterator[str]:
    yield "**A network with `nn.Dropout` alone, which every library knows:**"
    yield ""
    yield from _head("")
    for row in found["habits"].values():
        entries = [row["found"][name] for name in NAMES]
        cells = ["error" if "error" in e else "**yes**" if e["holds"] else "no" for e in entries]
        yield f"| {row['title']} | " + " | ".join(cells) + " |"
    peak = found["memory"]
    both = [peak["mebibytes"][name] for name in NAMES]
    yield (
        f"| peak memory of the process in MiB, T = {peak['few']} and {peak['many']} | "
        + " | ".join(f"{few} and {many}" for few, many in both)
        + " |"
    )
    yield ""
    errors = {e["error"] for row in found["habits"].values() for e in row["found"].values() if "error" in e}
    for error in sorted(errors):
        yield f"The error is {_plain(error)}"
        yield ""
    lost = found["lost_spread"]
    low, high = (lost[f"lightning-uq-box, {end}"] for end in ("smallest", "largest"))
    yield (
        f"**Predictions near 2000 with a spread of {lost['true']:g}**, from a network with a mean and a "
        "log-variance: `MCDropoutRegression` of lightning-uq-box gives epistemic standard deviations of "
        f"{low:.2f} to {high:.2f}, and NaN for {100 * lost['lightning-uq-box, share NaN']:.0f} % of rows; "
        f"bayesdrop gives {lost['bayesdrop']:.3f} for every row."
    )
    yield ""
    yield ", ".join(f"{name} {number}" for name, number in found["versions"].items()) + "."


def rewritten(page: str, table: str) -> str:
    """A page with the text between its two markers replaced."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page must hold {BEGIN} and {END}")
    return f"{head}{BEGIN}\n\n{table}\n\n{END}{tail}"


def _render(found: dict[str, Any]) -> None:
    _write(PAGE, rewritten(PAGE.read_text(encoding="utf-8"), report(found)))


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


# the command


def main(arguments: list[str] | None = None) -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="CASE", help="some rows, printed as they are found")
    parser.add_argument("--render", action="store_true", help="the page's tables from the results file alone")
    parser.add_argument("--peak", choices=NAMES, help=argparse.SUPPRESS)
    parser.add_argument("--draws", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.render:
        _render(json.loads(RESULTS.read_text(encoding="utf-8")))
        return
    torch.set_num_threads(1)

    from peers_doors import let_peers_in, versions
    from peers_habits import HABITS, lost_spread, memory, overwritten_input, print_peak

    let_peers_in()
    if options.peak is not None:
        print_peak(options.peak, options.draws)
        return
    if options.only:
        for name in options.only:
            if name not in {**SITES, **HABITS}:
                parser.error(f"there is no case {name!r}; there are {', '.join([*SITES, *HABITS])}")
            found = site(name, beside=False) if name in SITES else habit(name)["found"]
            for library, entry in found.items():
                print(f"{name:12s} {library:18s} {entry}")
        return
    found = {
        "versions": versions(),
        "num_draws": NUM_DRAWS,
        "alone": {name: site(name, beside=False) for name in SITES},
        "beside": {name: site(name, beside=True) for name in SITES if name not in NOTHING_RANDOM},
        "habits": {name: habit(name) for name in HABITS},
        "lost_spread": lost_spread(),
        "overwritten_input": overwritten_input(),
        "memory": memory(),
    }
    print(report(found))
    _write(RESULTS, json.dumps(found, indent=2) + "\n")
    _render(found)


if __name__ == "__main__":
    main()
