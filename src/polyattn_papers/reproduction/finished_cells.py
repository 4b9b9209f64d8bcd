"""Finished cells on disk, so that an interrupted experiment goes on where it was.

Each cell is one JSON file, written complete or not at all, whose name is a digest of all that
determines it: experiment, revision, version of polyattn, settings.  In the file stands a digest of
what came out: a cell that was edited, cut or put in another's place is named and refused.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from polyattn._version import __version__
from polyattn.errors import FileFormatError, InvalidInput
from polyattn.files.atomic import require_writable_folder, write_atomically
from polyattn.files.fields import any_object, digest, entries, number, text
from polyattn_papers.reproduction.digests import (
    ENVIRONMENT,
    ROWS,
    read_object,
    require_intact,
    with_digest,
)
from polyattn_papers.reproduction.experiment import Experiment, Row, Settings

CELL = entries({
    "experiment": text(1000), "settings": any_object, "rows": ROWS, "seconds": number(0),
    "surroundings": ENVIRONMENT, "digest": digest,
})  # fmt: skip


@dataclass(frozen=True)
class FinishedCell:
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
        except OSError as error:
            raise InvalidInput(
                f"the folder {str(folder)!r} cannot be made ({error.strerror or error})."
            ) from None
        require_writable_folder(folder, "the output")

    def read(self, settings: Settings) -> FinishedCell | None:
        """A cell if it is finished."""
        path = self._path(settings)
        if not path.is_file():
            return None
        remedy = "remove it, and the cell is run again"
        content = require_intact(read_object(path, remedy), path, CELL, remedy)
        own = {"experiment": self.experiment.name, "settings": settings}
        if {name: content[name] for name in own} != json.loads(json.dumps(own)):
            raise FileFormatError(f"{str(path)!r} is the cell of other settings; {remedy}.")
        return FinishedCell(content["rows"], content["seconds"], content["surroundings"])

    def keep(self, settings: Settings, cell: FinishedCell) -> None:
        """Write a finished cell."""
        own = {"experiment": self.experiment.name, "settings": settings}
        text = json.dumps(with_digest(own | asdict(cell)), indent=1, allow_nan=False)
        write_atomically(self._path(settings), lambda file: file.write(text.encode()))

    def _path(self, settings: Settings) -> Path:
        whole = [self.experiment.name, self.experiment.revision, __version__, settings]
        digest = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()
        return self.folder / f"{digest[:24]}.json"
