"""Files that verbs read as a whole: arrays of a .npz or .npy, and what was saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from polyattn.errors import FileFormatError, InvalidInput
from polyattn.files.array_files import read_arrays
from polyattn.sources.data_file import DataFile, refuse_unknown_names
from polyattn.storage import load

# How the message ends about a saved thing that is neither.
NEEDED = "; DATA must be sequences or saved statistics."


def read_data(path: Path, targets: Path | None = None, missing: bool = False) -> DataFile:
    """Read a ``.npz`` of named arrays, or X from a ``.npy``; Y may come from a second file."""
    content = read_arrays(path)
    arrays = content if isinstance(content, dict) else {"X": content}
    refuse_unknown_names(path, arrays)
    if targets is not None:
        if "Y" in arrays:
            raise InvalidInput(f"{str(path)!r} already holds 'Y'; leave --targets out.")
        given = read_arrays(targets)
        if isinstance(given, dict):
            raise FileFormatError(
                f"--targets must be a .npy file of one array; got {str(targets)!r}."
            )
        arrays = arrays | {"Y": given}
    return DataFile(path, arrays, missing)


def load_as(path: Path, kinds: tuple[type, ...], otherwise: str) -> Any:
    """What was saved, if it is of one of these kinds; ``otherwise`` ends the message."""
    loaded = load(path)
    if not isinstance(loaded, kinds):
        raise InvalidInput(f"{str(path)!r} holds a {type(loaded).__name__}{otherwise}")
    return loaded
