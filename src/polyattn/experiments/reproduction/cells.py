"""Finished cells on disk, so that an interrupted experiment goes on where it was.

Each cell is one JSON file, written complete or not at all, whose name is a digest of all that
determines it: experiment, revision, version of polyattn, settings.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from polyattn._version import __version__
from polyattn.atomic_files import write_atomically
from polyattn.errors import FileFormatError, InvalidInput
from polyattn.experiments.reproduction.experiment import Experiment, Row, Settings


@dataclass(frozen=True)
class Finished:
    """What a finished cell left: its rows, how long it took, when and with which versions."""

    rows: list[Row]
    seconds: float
    surroundings: dict[str, str]


class FinishedCells:
    """The folder ``OUT/NAME/cells`` of one experiment."""

    def __init__(self, experiment: Experiment, folder: Path) -> None:
        self.experiment, self.folder = experiment, folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise InvalidInput(f"the output {str(folder)!r} must be a folder; it is not.") from None
        if not os.access(folder, os.W_OK):
            raise InvalidInput(f"the folder {str(folder)!r} cannot be written to.")

    def read(self, settings: Settings) -> Finished | None:
        """A cell if it is finished."""
        path = self._path(settings)
        if not path.is_file():
            return None
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            return Finished(content["rows"], content["seconds"], content["surroundings"])
        except (json.JSONDecodeError, KeyError, TypeError, UnicodeDecodeError) as error:
            raise FileFormatError(
                f"{str(path)!r} is damaged ({error}); remove it, and the cell is run again."
            ) from None

    def keep(self, settings: Settings, cell: Finished) -> None:
        """Write a finished cell."""
        content = {"experiment": self.experiment.name, "settings": settings} | asdict(cell)
        text = json.dumps(content, indent=1, allow_nan=False)
        write_atomically(self._path(settings), lambda file: file.write(text.encode()))

    def _path(self, settings: Settings) -> Path:
        whole = [self.experiment.name, self.experiment.revision, __version__, settings]
        digest = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()
        return self.folder / f"{digest[:24]}.json"
