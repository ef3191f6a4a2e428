"""Models on disk: one safetensors file, no pickle."""

from bayesdrop.storage.files import read_tensors, write_tensors
from bayesdrop.storage.models import load, save
from bayesdrop.storage.state import distinct_state, is_plain, plain_options

__all__ = ["distinct_state", "is_plain", "load", "plain_options", "read_tensors", "save", "write_tensors"]
