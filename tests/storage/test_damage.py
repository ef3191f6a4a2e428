"""A file that is not as it was written is refused, whichever bit it is; files of before checksums load."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import bayesdrop as bd
from bayesdrop.storage import load, open_tensors, read_tensors, save, write_tensors
from bayesdrop.storage.sealed import BLANK, BadJson, from_json, is_sealed, parsed, seal, to_json


def header_of(path: Path) -> tuple[dict[str, dict[str, str]], bytes]:
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def test_no_bit_of_a_file_can_change_without_a_word(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save(nn.Linear(2, 1), path)
    whole = path.read_bytes()
    loaded = []
    with path.open("r+b", buffering=0) as file:
        for bit in range(8 * len(whole)):
            place = bit // 8
            os.pwrite(file.fileno(), bytes([whole[place] ^ (1 << bit % 8)]), place)
            try:
                load(path)
                loaded.append(bit)
            except ValueError as error:
                assert f"{path}" in str(error)  # noqa: PT017
            os.pwrite(file.fileno(), whole[place : place + 1], place)
    assert loaded == []
    load(path)


def test_what_is_damaged_is_told(tmp_path: Path) -> None:
    save(nn.Linear(2, 1), path := tmp_path / "m")
    whole = path.read_bytes()
    for content, sentence in (
        (whole[:-1] + bytes([whole[-1] ^ 1]), "m is damaged: its tensors are not as they were written"),
        (whole.replace(b"in_features", b"in_featureZ"), "m is damaged: its header is not as it was written"),
        (whole.replace(b'"checksum"', b'"chexksum"'), "m is damaged: its header is not as it was written"),
        (
            whole.replace(b'_version":"2"', b'_version":"1"'),
            "m is damaged: its format version is not that of",
        ),
        (
            whole.replace(b'_version":"2"', b'_version":"0"'),
            "m is damaged: its format version is not that of",
        ),
    ):
        assert content != whole
        path.write_bytes(content)
        with pytest.raises(ValueError, match=sentence):
            load(path)


def test_tensors_that_changed_places_are_refused(tmp_path: Path) -> None:
    save(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), path := tmp_path / "m")
    header, data = header_of(path)
    a, b = header["0.weight"], header["1.weight"]
    a["data_offsets"], b["data_offsets"] = b["data_offsets"], a["data_offsets"]
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    assert torch.equal(load_file(path)["0.weight"], load_file(path)["0.weight"])  # sound for safetensors
    with pytest.raises(ValueError, match="m is damaged: its header is not as it was written"):
        load(path)


def test_every_dtype_is_read_as_safetensors_reads_it(tmp_path: Path) -> None:
    floats = (
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
    )
    integers = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32)
    tensors = {
        f"{dtype}": torch.arange(6).reshape(2, 3).to(dtype) for dtype in (*floats, *integers, torch.uint64)
    }
    tensors |= {"bool": torch.tensor([True, False]), "empty": torch.empty(0, 3), "scalar": torch.tensor(1.5)}
    write_tensors(tmp_path / "ours", tensors, kind="kind", header={})
    save_file(
        tensors, tmp_path / "theirs", metadata={"format": "kind", "format_version": "1", "description": "{}"}
    )
    theirs, ours = load_file(tmp_path / "ours"), read_tensors(tmp_path / "theirs", kind="kind")[0]
    for name, tensor in tensors.items():
        for read in (theirs[name], ours[name], read_tensors(tmp_path / "ours", kind="kind")[0][name]):
            assert read.dtype == tensor.dtype
            assert read.shape == tensor.shape
            assert bytes_of(read) == bytes_of(tensor)
    complex_ones = {"z": torch.complex(torch.ones(2), torch.zeros(2)).conj()}
    write_tensors(tmp_path / "z", complex_ones, kind="kind", header={})
    assert torch.equal(read_tensors(tmp_path / "z", kind="kind")[0]["z"], complex_ones["z"].resolve_conj())
    with pytest.raises(ValueError, match="`z` must be of a dtype that safetensors knows"):
        write_tensors(tmp_path / "z", {"z": torch.zeros(2, dtype=torch.complex128)}, kind="kind", header={})


def bytes_of(tensor: Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def test_files_without_checksums_load_as_before(tmp_path: Path) -> None:
    model = nn.Sequential(bd.BernoulliDropout(nn.Linear(3, 2), p=0.3), nn.BatchNorm1d(2))
    save(model, tmp_path / "new")
    with safe_open(tmp_path / "new", framework="pt") as file:
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    old = {name: metadata[name] for name in ("format", "bayesdrop_version", "description")}
    save_file(tensors, tmp_path / "old", metadata={**old, "format_version": "1"})
    loaded = load(tmp_path / "old")
    assert f"{loaded}" == f"{model}"
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor)


def test_the_tensors_are_known_before_they_are_read(tmp_path: Path) -> None:
    write_tensors(tmp_path / "t", {"a": torch.ones(2, 3).half()}, kind="kind", header={"b": 1})
    with open_tensors(tmp_path / "t", kind="kind") as file:
        assert file.header == {"b": 1}
        assert file.outline["a"].is_meta
        assert (file.outline["a"].shape, file.outline["a"].dtype) == ((2, 3), torch.float16)
        assert torch.equal(file.read()["a"], torch.ones(2, 3).half())


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ({"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}, "has another size than its shape"),
        ({"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}, "does not begin where"),
        ({"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, "it holds 8 bytes of tensors instead of 4"),
        ({"dtype": "F33", "shape": [2], "data_offsets": [0, 8]}, "a dtype that is not known"),
        ({"dtype": ["F32"], "shape": [2], "data_offsets": [0, 8]}, "a dtype that is not known"),
        ({"dtype": "F32", "shape": [True, 2], "data_offsets": [0, 8]}, "makes no sense"),
        ({"dtype": "F32", "shape": [-1, -2], "data_offsets": [0, 8]}, "makes no sense"),
        ({"dtype": "F32", "shape": 2, "data_offsets": [0, 8]}, "makes no sense"),
        ({"dtype": "F32", "shape": [2], "data_offsets": [0, 8, 8]}, "makes no sense"),
        ({"dtype": "F32", "shape": [1] * 70 + [2], "data_offsets": [0, 8]}, "makes no sense"),
        ({"dtype": "F32", "shape": [2**62, 2**62, 0], "data_offsets": [0, 0]}, "makes no sense|8 bytes"),
        ({"dtype": "F32", "shape": [10**40], "data_offsets": [0, 8]}, "makes no sense"),
        ({"dtype": "F32", "shape": [2]}, "has no dtype, shape and place"),
        ([], "has no dtype, shape and place"),
    ],
)
def test_a_layout_that_makes_no_sense_is_damage(entry: object, sentence: str, tmp_path: Path) -> None:
    header = {"__metadata__": {"format": "bayesdrop-model", "format_version": "1"}, "a": entry}
    text = json.dumps(header).encode()
    (tmp_path / "m").write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
    with pytest.raises(ValueError, match=rf"load: .*m is damaged or not a safetensors file \(.*({sentence})"):
        load(tmp_path / "m")


def test_bytes_that_are_neither_true_nor_false_are_damage(tmp_path: Path) -> None:
    metadata = {"format": "kind", "format_version": "1", "description": "{}"}
    save_file({"a": torch.tensor([True, False])}, tmp_path / "m", metadata=metadata)
    content = (tmp_path / "m").read_bytes()
    (tmp_path / "m").write_bytes(content[:-1] + b"\x07")
    with pytest.raises(ValueError, match="m is damaged: a holds bytes that are not true or false"):
        read_tensors(tmp_path / "m", kind="kind")


# sealed JSON


def test_a_seal_covers_every_byte_and_digits_like_its_own_do_no_harm() -> None:
    text = to_json({"zeros": BLANK, "a": [1, float("inf")], "b": "\ud800"})
    assert from_json(text) == ({"zeros": BLANK, "a": [1, float("inf")], "b": "\ud800"}, True)
    for bit in range(8 * len(text)):
        changed = bytearray(text)
        changed[bit // 8] ^= 1 << (bit % 8)
        try:
            content, has_checksum = from_json(bytes(changed))
        except BadJson:
            continue
        assert not has_checksum, (
            content
        )  # the name "checksum" itself; who reads it knows that it must be there
    assert not is_sealed(text, None)
    assert not is_sealed(text, "é" * 64)
    assert is_sealed(seal(f'"{BLANK}"'.encode()), seal(f'"{BLANK}"'.encode()).decode().strip('"'))


@pytest.mark.parametrize(
    "text", ["", "{", "[" * 10**5, "[" * 500 + "]" * 500, '{"a": 1, "a": 2}', b"\xff", "1" * 5000]
)
def test_json_that_is_none_or_has_no_end_is_refused(text: str | bytes) -> None:
    with pytest.raises(BadJson):
        parsed(text)
