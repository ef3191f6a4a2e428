"""The store: requests, items, predictions, labels and people, on SQLite or PostgreSQL."""

from bayesdrop.serve.store.queue import LeaseLost
from bayesdrop.serve.store.records import (
    Item,
    Label,
    Model,
    NewItem,
    NewPrediction,
    NewRequest,
    Person,
    Prediction,
    Request,
    Role,
)
from bayesdrop.serve.store.requests import KeyTaken
from bayesdrop.serve.store.store import Store

__all__ = [
    "Item",
    "KeyTaken",
    "Label",
    "LeaseLost",
    "Model",
    "NewItem",
    "NewPrediction",
    "NewRequest",
    "Person",
    "Prediction",
    "Request",
    "Role",
    "Store",
]
