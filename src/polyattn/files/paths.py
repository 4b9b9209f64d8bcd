"""Paths as they are given: names of files, or one clear error before anything is opened."""

from __future__ import annotations

import os
from pathlib import Path

from polyattn.errors import InvalidInput, InvalidType
from polyattn.quoting import shown


def file_to_write(path: object, name: str = "path") -> Path:
    """The path of a file that may or may not be there yet; refused if it names a folder."""
    given = _named(path, name)
    if given.is_dir():
        raise InvalidInput(f"{name} {str(given)!r} is a folder; name a file in it.")
    return given


def file_to_read(path: object, name: str = "path") -> Path:
    """The path of a file that is there."""
    given = file_to_write(path, name)
    if not given.is_file():
        raise FileNotFoundError(f"there is no file {str(given)!r}.")
    return given


def _named(path: object, name: str) -> Path:
    """A path that is a text with something in it."""
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise InvalidType(f"{name} must name a file, as a text or a Path; got {shown(path)}.")
    if not text or "\0" in text:
        raise InvalidInput(f"{name} must name a file; got {shown(text)}.")
    return Path(text)
