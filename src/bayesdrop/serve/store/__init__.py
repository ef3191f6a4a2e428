"""The store: requests, items, predictions, labels and people, on SQLite or PostgreSQL."""

from bayesdrop.serve.store.queue import LeaseLost
from bayesdrop.serve.store.records import (
    Item,
    Label,
    NewItem,
    NewPrediction,
    NewRequest,
    Person,
    Request,
    Role,
    SavedModel,
    SavedPrediction,
)
from bayesdrop.serve.store.requests import KeyTaken
from bayesdrop.serve.store.store import Store

__all__ = [
    "Item",
    "KeyTaken",
    "Label",
    "LeaseLost",
    "NewItem",
    "NewPrediction",
    "NewRequest",
    "Person",
    "Request",
    "Role",
    "SavedModel",
    "SavedPrediction",
    "Store",
]
