"""Models in safetensors files, without pickle; and files that are replaced as a whole."""

from bayesdrop.storage.files import open_tensors, read_tensors, write_tensors
from bayesdrop.storage.models import load, save
from bayesdrop.storage.sealed import BadJson, from_json, to_json
from bayesdrop.storage.state import distinct_state, is_count, is_plain, plain_options
from bayesdrop.storage.whole import (
    check_writable,
    only_one,
    recover_folder,
    whole_file,
    whole_folder,
    write_file,
)

__all__ = [
    "BadJson",
    "check_writable",
    "distinct_state",
    "from_json",
    "is_count",
    "is_plain",
    "load",
    "only_one",
    "open_tensors",
    "plain_options",
    "read_tensors",
    "recover_folder",
    "save",
    "to_json",
    "whole_file",
    "whole_folder",
    "write_file",
    "write_tensors",
]
