"""`bayesdrop desk-demo`: two small models, a week of history, traffic, and a desk to sit down at."""

from bayesdrop.serve.demo.models import DIABETES, DIGITS, Stage, prepare
from bayesdrop.serve.demo.past import seed_past, seeded

__all__ = ["DIABETES", "DIGITS", "Stage", "prepare", "seed_past", "seeded"]
