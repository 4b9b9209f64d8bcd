"""Files of tables that a source refers to, as they were when it was made."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from polyattn.errors import FileFormatError
from polyattn.files.atomic import file_to_read
from polyattn.files.unchanged import fingerprint, open_unchanged, require_unchanged
from polyattn.quoting import shown
from polyattn.sources.arrow_tables import arrow


@dataclass(frozen=True)
class StampedFile:
    """A file by its full path, with its size and time of change.

    path : without symbolic links, so that one file has one name
    fingerprint : changes when the content does (``files.unchanged``)
    """

    path: str
    fingerprint: str

    @classmethod
    def found(cls, path: object) -> StampedFile:
        """The file at this path as it is now."""
        full = os.path.realpath(file_to_read(path))
        return cls(full, fingerprint(Path(full)))

    @property
    def size(self) -> int:
        """Bytes."""
        return int(self.fingerprint.partition(" ")[0])

    @contextmanager
    def reading(self, kind: str) -> Iterator[None]:
        """Compare the file before and after it is read; what fails between names the file.

        kind : what the file should be, such as "Parquet file"
        """
        path = Path(self.path)
        with open_unchanged(path, self.fingerprint):
            try:
                yield
            except FileFormatError:
                raise
            except (OSError, arrow().ArrowException) as error:
                require_unchanged(path, self.fingerprint, "while it was read")
                reason = shown(str(error).partition("\n")[0], 300)
                raise FileFormatError(
                    f"the file {self.path!r} cannot be read as a {kind}: {reason}. It may be "
                    "truncated or of another format."
                ) from error
