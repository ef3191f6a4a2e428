"""From a table of any format to predictions with uncertainty, and to the rows that a person should see."""

from bayesdrop.tables.deferral import Deferral, Rule
from bayesdrop.tables.explain import Explanation, explain_row
from bayesdrop.tables.fitting import FitOptions, FittedTable, fit_table
from bayesdrop.tables.inspection import Inspection, inspect_table
from bayesdrop.tables.model import TableModel, load_table_model, save_table_model
from bayesdrop.tables.onnx_model import ExportedTable, export_table
from bayesdrop.tables.reading import TableFile, open_table
from bayesdrop.tables.rows import TrainingRows, rows_of
from bayesdrop.tables.schema import Column, Schema
from bayesdrop.tables.score import predict_frame, score_file
from bayesdrop.tables.wishes import EditedSchema, read_schema

__all__ = [
    "Column",
    "Deferral",
    "EditedSchema",
    "Explanation",
    "ExportedTable",
    "FitOptions",
    "FittedTable",
    "Inspection",
    "Rule",
    "Schema",
    "TableFile",
    "TableModel",
    "TrainingRows",
    "explain_row",
    "export_table",
    "fit_table",
    "inspect_table",
    "load_table_model",
    "open_table",
    "predict_frame",
    "read_schema",
    "rows_of",
    "save_table_model",
    "score_file",
]
