"""Files of weights: safetensors tensor by tensor, in one file or in shards; nothing is executed.

A safetensors file begins with the length of a JSON header that says where each tensor lies.  What
numpy has a type for is read by the safetensors package; bfloat16, the upper half of a float32, is
read here.  Files of torch are opened by ``polyattn.interop.torch.files``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import FileFormatError, InvalidInput
from polyattn.files.atomic import file_to_read
from polyattn.files.fields import any_object, check_that, entries
from polyattn.files.strict_json import parse_json, read_text
from polyattn.quoting import shown

# Names under which folders hold weights, the first that is there is taken.
IN_FOLDERS = (
    "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)  # fmt: skip

OF_TORCH = (".bin", ".pt", ".pth")
INDEX = ".index.json"

# Types of safetensors whose numbers are weights; all of them fit float64 exactly.
FLOATS = ("F64", "F32", "F16", "BF16")

ADVICE = (
    "Weights are read from .safetensors, .bin and .pt files, from their .index.json, and from "
    "folders that hold these; convert others to safetensors (safetensors.torch.save_file)."
)


class NamedTensors(NamedTuple):
    """The names of tensors, how one of them is read, and where they come from, in words."""

    names: tuple[str, ...]
    read: Callable[[str], Any]
    where: str


def open_weights(path: str | os.PathLike[str]) -> NamedTensors:
    """The tensors of a file, of the shards of an index, or of a folder; none is read yet."""
    given = Path(os.fspath(path))
    if given.is_dir():
        given = _in_folder(given)
    source = file_to_read(given, "source")
    if source.name.endswith(INDEX):
        return _of_shards(source)
    if source.suffix.lower() == ".safetensors":
        return _of_safetensors(source)
    if source.suffix.lower() in OF_TORCH:
        return _of_torch(source)
    raise InvalidInput(f"source {str(source)!r} is a file of another kind. {ADVICE}")


def config_beside(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """What ``config.json`` in the folder, or beside the file, says; None where there is none."""
    given = Path(os.fspath(path))
    file = (given if given.is_dir() else given.parent) / "config.json"
    return read_config(file) if file.is_file() else None


def read_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The object that a JSON file holds."""
    return _json_object(Path(os.fspath(path)))


def _in_folder(folder: Path) -> Path:
    """The file of a folder that holds its weights."""
    for name in IN_FOLDERS:
        if (folder / name).is_file():
            return folder / name
    raise InvalidInput(
        f"source {str(folder)!r} is a folder without {', '.join(IN_FOLDERS[:-1])} or "
        f"{IN_FOLDERS[-1]}; name the file that holds the weights."
    )


def _of_safetensors(path: Path) -> NamedTensors:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            names = tuple(file.keys())
    except SafetensorError as error:
        raise FileFormatError(
            f"{str(path)!r} is no safetensors file, or it is truncated ({error})."
        ) from None

    def read(name: str) -> NDArray:
        with safe_open(path, framework="numpy") as file:
            kind = file.get_slice(name).get_dtype()
            if kind not in FLOATS:
                raise InvalidInput(
                    f"the tensor {name!r} of {str(path)!r} has type {kind}; weights are read from "
                    f"{', '.join(FLOATS)}. Dequantise the model first."
                )
            if kind != "BF16":
                return np.asarray(file.get_tensor(name))
        return _upper_halves(path, name)

    return NamedTensors(names, read, repr(str(path)))


def _upper_halves(path: Path, name: str) -> NDArray[np.float32]:
    """A bfloat16 tensor as float32; that the header is sound was found when it was opened."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        entry = parse_json(file.read(length).decode())[name]
        begin, end = entry["data_offsets"]
        file.seek(8 + length + begin)
        halves = np.frombuffer(file.read(end - begin), dtype="<u2")
    return (halves.astype(np.uint32) << 16).view(np.float32).reshape(entry["shape"])


def _of_shards(path: Path) -> NamedTensors:
    """The tensors that an index finds in files beside it; a file is opened when one is read."""
    content = _json_object(path)
    if not isinstance(content.get("weight_map"), dict):
        raise FileFormatError(f"{str(path)!r} is no index of weights: it lacks 'weight_map'.")
    places: Mapping[str, Any] = content["weight_map"]
    plain = check_that(
        lambda file: isinstance(file, str) and Path(file).name == file, "a file beside the index"
    )
    entries(dict.fromkeys(places, plain))(places, f"{str(path)!r}: weight_map")
    opened: dict[str, NamedTensors] = {}

    def read(name: str) -> Any:
        file = places[name]
        if file not in opened:
            opened[file] = open_weights(path.parent / file)
        if name not in opened[file].names:
            raise FileFormatError(
                f"{str(path)!r} says that {file!r} holds {shown(name)}, which it does not."
            )
        return opened[file].read(name)

    return NamedTensors(tuple(places), read, repr(str(path)))


def _of_torch(path: Path) -> NamedTensors:
    from polyattn.interop.torch.files import load_state

    state = load_state(path)
    return NamedTensors(tuple(state), state.__getitem__, repr(str(path)))


def _json_object(path: Path) -> dict[str, Any]:
    try:
        content = parse_json(read_text(path))
    except InvalidInput as error:
        raise FileFormatError(f"{str(path)!r}: {error}") from None
    any_object(content, repr(str(path)))
    return dict(content)
