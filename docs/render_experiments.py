"""Writes docs/experiments.md, a page for every experiment, and its pictures, all from results/*.json.

    python docs/render_experiments.py              what is not up to date
    python docs/render_experiments.py --redraw     every picture again

A test compares the pages with the results files, so that neither can change alone.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from bayesdrop.data.files import write_whole
from bayesdrop.experiments.record import Record, read_records
from bayesdrop.experiments.registry import EXPERIMENTS, experiment_text, load_experiment
from bayesdrop.experiments.row import Claim
from bayesdrop.experiments.table import beside_claims, beside_rows, caption, markdown_table
from bayesdrop.plots import save_figure

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
DOCS = ROOT / "docs"
# The mark in a picture's file of what it was drawn from.
MARK = "drawn-from"

INDEX = """# Experiments

Tables and figures of the papers, run again with this library at a scale that a CPU can bear. Every page has
the numbers as printed beside ours, what the paper claims and whether it held, the settings, and the command.

```console
$ bayesdrop experiments list
$ bayesdrop experiments run NAME [--preset P|--quick] [--set key=value ...]
      [--fresh] [--processes N] [-o DIR] [--from FILE ...]
$ bayesdrop experiments table [NAME]
```

A run is made of pieces that are kept in the user's cache as they are finished: one that was interrupted goes
on where it was, and `--fresh` starts anew. It writes a JSON file with all its numbers, and a picture that is
drawn from that file. "not run" is a number for which the data or the time were not there; nothing is filled
in. `--from` takes what results files have already, where nothing that it depends on has changed (the UCI
tables). A preset other than the default, or settings of one's own, go to files of their own.
The [data sets](data.md) have a page of their own.

{table}

```{{toctree}}
:hidden:

{pages}
```
"""


def shown_records(name: str, records: dict[str, Record]) -> list[Record]:
    """The records that a page shows: the reproduction first, then other presets at full length."""
    own = [record for record in records.values() if record.experiment == name]
    shown = [record for record in own if record.preset != "smoke" and not record.overrides]
    return sorted(shown, key=lambda record: (record.preset != "default", record.preset))


def render_index(records: dict[str, Record]) -> str:
    """The page that lists all experiments."""
    lines = ["| experiment | what | numbers | claims that hold |", "| --- | --- | ---: | ---: |"]
    for name in EXPERIMENTS:
        title = experiment_text(name).partition("\n")[0].rstrip(".")
        shown = shown_records(name, records)
        numbers, claims = "not run", ""
        if shown:
            outcome = shown[0].outcome
            run = sum(row.ours is not None for row in outcome.rows)
            numbers = f"{run}" if outcome.complete else f"{run} of {len(outcome.rows)}"
            held = sum(claim.holds for claim in outcome.claims)
            claims = f"{held} of {len(outcome.claims)}" if outcome.claims else ""
        lines.append(f"| [{name}](experiments/{name}.md) | {title} | {numbers} | {claims} |")
    return INDEX.format(
        table="\n".join(lines), pages="\n".join(f"experiments/{name}" for name in EXPERIMENTS)
    )


def render_page(name: str, records: dict[str, Record]) -> str:
    """The page of one experiment."""
    title, _, text = experiment_text(name).partition("\n")
    parts = [f"# {title.rstrip('.')}"]
    if text.strip():
        parts.append(text.strip("\n"))
    parts.append(f"```console\n$ bayesdrop experiments run {name}\n```")
    shown = shown_records(name, records)
    if not shown:
        parts.append("There is no results file of it yet: not run.")
    if len(shown) > 1:
        parts += render_beside(shown)
    for record in shown:
        parts += render_record(record, heading=len(shown) > 1)
    return "\n\n".join(parts) + "\n"


def render_beside(records: list[Record]) -> list[str]:
    """What several presets have in common: claims, then numbers."""
    tables = [table for table in (beside_claims(records), beside_rows(records)) if table]
    return ["## The presets side by side", *tables] if tables else []


def render_record(record: Record, *, heading: bool) -> list[str]:
    """Picture, table, claims, notes and settings of one run."""
    parts, level = ([f"## Preset {record.preset}"], "###") if heading else ([], "##")
    outcome = record.outcome
    title = experiment_text(record.experiment).partition("\n")[0]
    parts.append(f"![{_sentence(title)}](../assets/experiments/{record.stem}.png)")
    if record.preset == "default" and has_film(record.experiment):
        parts.append(f"![A film of {record.experiment}.](../assets/experiments/{record.experiment}.gif)")
    parts.append(markdown_table(record))
    if outcome.claims:
        parts.append(f"{level} What the paper claims")
        parts.append("\n".join(f"- {_claim(claim)}" for claim in outcome.claims))
    if outcome.notes:
        parts.append(f"{level} What differs")
        parts.append("\n".join(f"- {_sentence(note)}" for note in outcome.notes))
    parts.append(f"{level} Settings")
    settings = "\n".join(f"| `{name}` | {_setting(value)} |" for name, value in record.config.items())
    parts.append(f"| field | value |\n| --- | --- |\n{settings}")
    parts.append(f"From `results/{record.stem}.json`: {caption(record)}; {_duration(record.seconds)}.")
    return parts


def _claim(claim: Claim) -> str:
    verdict = "It holds." if claim.holds else "It does not hold."
    line = f"{_sentence(claim.text)} **{verdict}** Measured: {_sentence(claim.measured)}"
    if not claim.correction:
        return line
    return f"{line} {'To be precise' if claim.holds else 'Instead'}: {_sentence(claim.correction)}"


def _sentence(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _setting(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text.replace("|", "\\|")


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def render(records: dict[str, Record]) -> dict[Path, str]:
    """Every page and its text."""
    pages = {DOCS / "experiments.md": render_index(records)}
    return pages | {DOCS / "experiments" / f"{name}.md": render_page(name, records) for name in EXPERIMENTS}


def picture_path(record: Record) -> Path:
    """Where the picture of a record is."""
    return DOCS / "assets" / "experiments" / f"{record.stem}.png"


def picture_mark(record: Record) -> str:
    """What a picture is made of: the numbers, and the code that draws them, spaces apart."""
    draw = load_experiment(record.experiment).module.draw
    source = Path(inspect.getsourcefile(draw) or "").read_text(encoding="utf-8")
    return hashlib.sha256((record.digest + "".join(source.split())).encode()).hexdigest()


def mark_in(path: Path) -> str | None:
    """The mark in a picture's file; None where there is no file or no mark."""
    if not path.exists():
        return None
    with Image.open(path) as image:
        return image.info.get(MARK)


def draw_picture(record: Record) -> None:
    """Draw the picture of a record and mark what it was drawn from."""
    marks = PngInfo()
    marks.add_text(MARK, picture_mark(record))
    buffer = BytesIO()
    with TemporaryDirectory() as folder:
        figure = load_experiment(record.experiment).draw(record.outcome)
        with Image.open(save_figure(figure, Path(folder) / "picture.png", colors=256)) as image:
            image.save(
                buffer, format="png", optimize=True, pnginfo=marks, dpi=image.info.get("dpi", (72, 72))
            )
    write_whole(picture_path(record), buffer.getvalue())


def film_path(name: str) -> Path:
    """Where the film of an experiment lies, if it has one."""
    return DOCS / "assets" / "experiments" / f"{name}.gif"


def has_film(name: str) -> bool:
    """Whether an experiment's module has a `film`."""
    return hasattr(load_experiment(name).module, "film")


def draw_film(record: Record) -> None:
    """Write the film of a record as a GIF that says what it was drawn from: frames from its `film`."""
    frames = load_experiment(record.experiment).module.film(record.outcome)
    palette = Image.fromarray(frames[len(frames) // 2]).quantize(32, dither=Image.Dither.NONE)
    pictures = [
        Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames
    ]
    buffer = BytesIO()
    pictures[0].save(
        buffer, format="gif", save_all=True, append_images=pictures[1:], duration=80, loop=0, optimize=True,
        comment=picture_mark(record).encode(),
    )  # fmt: skip
    write_whole(film_path(record.experiment), buffer.getvalue())


def film_mark(path: Path) -> str | None:
    """What a film was drawn from; None where there is no film."""
    if not path.exists():
        return None
    with Image.open(path) as image:
        return bytes(image.info.get("comment", b"")).decode()


def main(arguments: list[str] | None = None) -> None:
    """Bring all pages and pictures up to date; take away those that no experiment has."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--redraw", action="store_true", help="draw pictures that are up to date too")
    redraw = parser.parse_args(arguments).redraw
    records = read_records(RESULTS)
    pages = render(records)
    for path, text in pages.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            write_whole(path, text.encode())
            print(path.relative_to(ROOT))
    shown = [record for name in EXPERIMENTS for record in shown_records(name, records)]
    for record in shown:
        if redraw or mark_in(picture_path(record)) != picture_mark(record):
            draw_picture(record)
            print(picture_path(record).relative_to(ROOT))
    for record in shown:
        if record.preset == "default" and has_film(record.experiment):
            path = film_path(record.experiment)
            if redraw or film_mark(path) != picture_mark(record):
                draw_film(record)
                print(path.relative_to(ROOT))
    kept = {*pages, *(picture_path(record) for record in shown)}
    for folder, ending in ((DOCS / "experiments", "*.md"), (DOCS / "assets" / "experiments", "*.png")):
        for path in set(folder.glob(ending)) - kept:
            path.unlink()
            print(f"removed {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
