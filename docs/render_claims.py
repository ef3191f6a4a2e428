"""Writes docs/claims.md from docs/claims.toml: what the five papers say, and what came of it here.

    python docs/render_claims.py

The table says where each sentence stands in its paper and what judges it: claims of experiments, found by
words in them, whose verdict and number come from results/*.json; a test, which is in the suite; or a reason
why it is not judged. A test compares the page with both, so that none of them can change alone.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bayesdrop.data.files import write_whole
from bayesdrop.experiments.record import Record, read_records
from bayesdrop.experiments.registry import EXPERIMENTS
from bayesdrop.experiments.row import Claim

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "docs" / "claims.toml"
PAGE = ROOT / "docs" / "claims.md"
#: most characters of what was measured; the experiment's page has all of it
LONGEST = 260

TOP = """# The five papers, claim by claim

What the papers say, in their order and in our words, and whether it held here.

{counts}.

A verdict on numbers comes from the results file of the experiment that the line names, at that experiment's
scale and by the threshold on its page; "test" is a truth that the suite holds. The page is rendered from a
table (`docs/claims.toml`) and from the results files.
"""


@dataclass(frozen=True)
class Sentence:
    """One line of the table."""

    #: in the paper
    where: str
    #: what the paper says there, in our words
    says: str
    experiment: str = ""
    preset: str = "default"
    #: words that the claims which judge it contain
    words: str = ""
    test: str = ""
    #: why it is not judged
    reason: str = ""

    def __post_init__(self) -> None:
        if sum(map(bool, (self.experiment, self.test, self.reason))) != 1:
            raise ValueError(f"claims.toml: {self.says!r} needs one of experiment, test and reason.")
        if bool(self.experiment) != bool(self.words):
            raise ValueError(f"claims.toml: {self.says!r} needs both experiment and words, or none.")
        if self.experiment and self.experiment not in EXPERIMENTS:
            raise ValueError(f"claims.toml: there is no experiment {self.experiment!r}.")


def read_table(path: Path = TABLE) -> dict[str, list[Sentence]]:
    """Sentences by the title of their paper."""
    papers = tomllib.loads(path.read_text(encoding="utf-8"))["paper"]
    return {paper["title"]: [Sentence(**line) for line in paper["claims"]] for paper in papers}


def find_claims(sentence: Sentence, records: Mapping[str, Record]) -> list[Claim]:
    """The claims that judge a sentence; none where their experiment was not run."""
    runs = [
        record.outcome.claims
        for record in records.values()
        if (record.experiment, record.preset) == (sentence.experiment, sentence.preset)
        and not record.overrides
    ]
    found = [claim for claims in runs for claim in claims if sentence.words in claim.text]
    if runs and not found:
        raise ValueError(f"claims.toml: no claim of {sentence.experiment} has the words {sentence.words!r}.")
    return found


def judge(sentence: Sentence, records: Mapping[str, Record]) -> tuple[str, str]:
    """The verdict, and what it rests on."""
    if sentence.reason:
        return "not judged", sentence.reason
    if sentence.test:
        return "test", f"`{sentence.test}`"
    link = f"[{sentence.experiment}](experiments/{sentence.experiment}.md)"
    claims = find_claims(sentence, records)
    if not claims:
        return "not run", link
    held = sum(claim.holds for claim in claims)
    verdict = {0: "does not hold", len(claims): "holds"}.get(held, f"in {held} of {len(claims)}")
    told = next((claim for claim in claims if not claim.holds), claims[0])
    return verdict, f"{_cut(told.measured).rstrip('.')}. {link}"


def render(records: Mapping[str, Record]) -> str:
    """The page."""
    parts, verdicts = [], []
    for title, sentences in read_table().items():
        lines = ["| where | what it says | verdict | measured |", "| --- | --- | --- | --- |"]
        for sentence in sentences:
            verdict, basis = judge(sentence, records)
            verdicts.append(verdict)
            shown = verdict if verdict in ("test", "not judged", "not run") else f"**{verdict}**"
            lines.append(f"| {sentence.where} | {_cell(sentence.says)} | {shown} | {_cell(basis)} |")
        parts += [f"## {title}", "\n".join(lines)]
    return "\n\n".join([TOP.strip().format(counts=_counted(verdicts)), *parts]) + "\n"


def unused_claims(records: Iterable[Record]) -> Iterator[tuple[str, str]]:
    """Claims on the papers that judge no sentence of the table: experiment and text of each."""
    named = [sentence for lines in read_table().values() for sentence in lines if sentence.experiment]
    for record in records:
        own = [sentence for sentence in named if sentence.experiment == record.experiment]
        published = record.experiment.partition("-")[0][-4:].isdigit()
        if not published or record.preset != "default" or record.overrides:
            continue
        for claim in record.outcome.claims:
            beside = claim.text.startswith(("Ours", "(Not in the paper", "Beside the paper"))
            if not beside and not any(sentence.words in claim.text for sentence in own):
                yield record.experiment, claim.text


def _counted(verdicts: list[str]) -> str:
    part = sum(verdict.startswith("in ") for verdict in verdicts)
    counts = [
        f"{verdicts.count('holds') + verdicts.count('test')} of {len(verdicts)} sentences hold "
        f"({verdicts.count('test')} by a test)",
        f"{part} hold in part",
        f"{verdicts.count('does not hold')} do not",
    ]
    for verdict in ("not run", "not judged"):
        if verdict in verdicts:
            counts.append(f"{verdicts.count(verdict)} are {verdict}")
    return ", ".join(counts)


def _cut(text: str) -> str:
    """The beginning of a long text, to the end of a word."""
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST].rpartition(' ')[0].rstrip(',;.:')} …"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    write_whole(PAGE, render(read_records(ROOT / "results")).encode())
