"""Items and labels on their way out and in: JSON of Label Studio, and CSV that a spreadsheet does not run."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO
from typing import Any

from bayesdrop.harmless import harmless_cell
from bayesdrop.serve.store import Item, SavedModel

__all__ = ["csv_lines", "item_as_dict", "label_of_annotation", "prediction_of", "result_of", "tasks_of"]

#: what our labels are called in Label Studio, unless a project calls them otherwise
FROM_NAME, TO_NAME = "label", "item"


def item_as_dict(item: Item) -> dict[str, Any]:
    """An item with all that is known of it, as JSON can hold it."""
    return {
        "item": item.id,
        "request": item.request_id,
        "state": item.state,
        "random": item.random,
        "uncertainty": item.uncertainty,
        "opinions": item.opinions,
        "created": item.created,
        "external": item.external,
        "data": item.data,
        "predictions": [
            {
                "model_id": said.model_id,
                "num_draws": said.num_draws,
                "seed": said.seed,
                "level": said.level,
                "answer": said.answer,
                "created": said.created,
            }
            for said in item.predictions
        ],
        "labels": [
            {
                "person": label.person,
                "value": label.value,
                "skipped": label.skipped,
                "note": label.note,
                "seconds": label.seconds,
                "source": label.source,
                "created": label.created,
            }
            for label in item.labels
        ],
        "agreed": item.agreed,
        "disagreement": item.disagreement,
        "lease_expires": item.expires,
    }


# Label Studio


def result_of(value: Any, from_name: str = FROM_NAME, to_name: str = TO_NAME) -> list[dict[str, Any]]:
    """A label as a result of Label Studio: a choice, or a number."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    kind = "number" if number else "choices"
    inner = {kind: value if number else [str(value)]}
    return [{"from_name": from_name, "to_name": to_name, "type": kind, "value": inner}]


def prediction_of(
    answer: dict[str, Any],
    uncertainty: float,
    version: str,
    from_name: str = FROM_NAME,
    to_name: str = TO_NAME,
) -> dict[str, Any]:
    """What a model says, as a prediction of Label Studio.

    The score is 1 - uncertainty: Label Studio hands out tasks with the lowest score first.
    """
    value = answer.get("label", answer.get("mean"))
    result = [] if value is None or isinstance(value, list) else result_of(value, from_name, to_name)
    return {"model_version": version, "score": 1 - uncertainty, "result": result}


def tasks_of(items: Iterable[Item], versions: dict[int, SavedModel]) -> Iterator[dict[str, Any]]:
    """Tasks with predictions and annotations, as Label Studio imports and exports them.

    Args:
        items: what to write.
        versions: by their ids.
    """
    for item in items:
        yield {
            "data": {**_pictured(item.data), "bayesdrop_item": item.id},
            "predictions": [
                prediction_of(said.answer, said.uncertainty, version_text(versions[said.model_id]))
                for said in item.predictions
            ],
            "annotations": [
                {
                    "result": [] if label.skipped else result_of(label.value),
                    "was_cancelled": label.skipped,
                    "lead_time": label.seconds,
                    "completed_by": {"email": label.person},
                }
                for label in item.labels
            ],
        }


def version_text(model: SavedModel) -> str:
    """How a version is called there."""
    return f"{model.name}-{model.version}"


def _pictured(data: dict[str, Any]) -> dict[str, Any]:
    if isinstance(data.get("image"), str) and not data["image"].startswith("data:"):
        return {**data, "image": f"data:image/png;base64,{data['image']}"}
    return data


def label_of_annotation(annotation: Any) -> tuple[Any, bool] | None:
    """The label of an annotation of Label Studio, and whether it was skipped; None if it holds no label."""
    if not isinstance(annotation, dict):
        return None
    if annotation.get("was_cancelled"):
        return None, True
    results = annotation.get("result")
    for result in results if isinstance(results, list) else []:
        value = result.get("value") if isinstance(result, dict) else None
        if not isinstance(value, dict):
            continue
        choices, number = value.get("choices"), value.get("number")
        if isinstance(choices, list) and len(choices) == 1 and isinstance(choices[0], str):
            return choices[0], False
        if isinstance(number, int | float) and not isinstance(number, bool):
            return number, False
    return None


# CSV


def csv_lines(items: Iterable[Item], names: Sequence[str]) -> Iterator[str]:
    """Lines of a CSV: a line for each label.

    Args:
        items: with labels.
        names: of the cells that are written; an image is left out, its item's id stays.
    """
    own = ["item", "person", "label", "note", "source", "random", "uncertainty", "predicted", "created"]
    yield _line([*own, *names])
    for item in items:
        said = item.predictions[-1].answer if item.predictions else {}
        predicted = said.get("label", said.get("mean"))
        for label in item.labels:
            if label.skipped:
                continue
            cells = [item.id, label.person, label.value, label.note, label.source, item.random]
            cells += [item.uncertainty, predicted, label.created]
            yield _line([*cells, *(item.data.get(name) for name in names)])


def _line(cells: Sequence[Any]) -> str:
    file = StringIO()
    csv.writer(file, lineterminator="\n").writerow([_cell(cell) for cell in cells])
    return file.getvalue()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return harmless_cell(value if isinstance(value, str) else json.dumps(value))
