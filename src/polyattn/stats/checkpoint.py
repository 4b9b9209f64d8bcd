"""Checkpoint: how far the chunks of a source are added up, in a file that a new call goes on from.

The file holds the sums of the finished stretches and of the present one, and says of which data,
form and release they are.  It is replaced as a whole, so whenever a process is killed it is either
the one before or the one after; and since chunks are added in a fixed order, whoever goes on ends
in the same bits.  A file that does not fit is refused, and never overwritten.
"""

from __future__ import annotations

import os
from pathlib import Path
from time import monotonic
from typing import Any, Generic

from polyattn._version import __version__
from polyattn.errors import FileFormatError, InvalidInput, InvalidType, OutOfRange
from polyattn.files import fields
from polyattn.files.atomic import refuse_other_format, require_writable
from polyattn.files.records import Record, read_record, write_record
from polyattn.files.strict_json import json_digest
from polyattn.quoting import shown
from polyattn.sources.contents import LONGEST_SOURCE, Contents
from polyattn.sources.digest import content_digest
from polyattn.sources.names import SequenceNames
from polyattn.sources.opened import read_chunk
from polyattn.sources.source import Source
from polyattn.sources.stretches import stretches
from polyattn.stats.gather import Gathering, S

KIND = "checkpoint"

# The file is written so often, and takes at most such a share of the time.
CHECKPOINT_SECONDS, LARGEST_SHARE = 30.0, 0.1

FIELDS = fields.entries({
    "version": fields.text(100),
    "statistics": fields.text(100),
    "empty": fields.any_object,
    "chunks": fields.digest,
    "n_chunks": fields.integer(1),
    "first_content": fields.digest,
    "n_done": fields.integer(1),
    "total": fields.nullable(fields.any_object),
    "present": fields.nullable(fields.any_object),
    "names": fields.any_object,
})  # fmt: skip

# What to do about a file that does not fit.
ELSEWHERE = "Name another file, or remove this one to begin anew."


class Checkpoint(Generic[S]):
    """The file behind one call: read once at its beginning, written again and again."""

    def __init__(self, path: str | os.PathLike[str], empty: S, source: Source) -> None:
        refuse_other_format(path, ".safetensors", "checkpoint")
        self.path: Path = require_writable(path, "checkpoint")
        self._empty = empty
        self._identities = [chunk.identity for chunk in source.chunks]
        self._about: dict[str, Any] = {
            "version": __version__,
            "statistics": empty.kind,
            # A form that no file can hold is refused here, and not after an hour.
            "empty": empty.to_record().metadata,
            "chunks": json_digest([list(each) for each in self._identities]),
            "n_chunks": len(self._identities),
            # Identities are of files; what is read of them the options of the source decide.
            "first_content": _first_content(source, empty.mode if empty.n_outputs else None),
        }
        self._next = monotonic() + CHECKPOINT_SECONDS

    def resumed(self) -> Gathering[S]:
        """What the file holds; nothing done, if there is none."""
        if not self.path.exists():
            return Gathering()
        record = read_record(self.path, KIND)
        try:
            FIELDS(record.metadata, "metadata")
            self._require_version(record.metadata)
            state = self._restored(record)
        except (FileFormatError, InvalidInput, InvalidType, OutOfRange) as error:
            raise FileFormatError(f"the checkpoint {str(self.path)!r}: {error}") from error
        self._require_same(record.metadata, state)
        return state

    def save(self, state: Gathering[S], at_once: bool = False) -> None:
        """Write the file if it is time, or ``at_once``."""
        begun = monotonic()
        if begun < self._next and not at_once:
            return
        arrays, metadata = state.names.arrays(), {**self._about, "n_done": state.n_done}
        metadata["names"] = state.names.metadata()
        for name in ("total", "present"):
            part: S | None = getattr(state, name)
            record = None if part is None else part.to_record()
            metadata[name] = None if record is None else record.metadata
            if record is not None:
                arrays |= {f"{name}.{key}": array for key, array in record.arrays.items()}
        try:
            write_record(Record(KIND, arrays, metadata), self.path)
        except OSError as error:
            words = f"the checkpoint could not be written ({error.strerror or error}); the last "
            words += "one that was is still good. Make room, and call again to go on from there"
            raise OSError(error.errno, words, str(self.path)) from error
        ended = monotonic()
        self._next = ended + max(CHECKPOINT_SECONDS, (ended - begun) / LARGEST_SHARE)

    def _require_version(self, held: dict[str, Any]) -> None:
        if held["version"] != __version__:
            raise FileFormatError(
                f"it was written by polyattn {shown(held['version'])}, and this is {__version__}, "
                f"which may round differently. {ELSEWHERE}"
            )

    def _restored(self, record: Record) -> Gathering[S]:
        held, arrays = record.metadata, dict(record.arrays)
        fields.require("names" in arrays, "arrays", "a set with the array 'names'", [*arrays])
        names = SequenceNames.restored(held["names"], arrays.pop("names"))
        parts: dict[str, S | None] = {"total": None, "present": None}
        for name in parts:
            prefix = f"{name}."
            own = [key for key in arrays if key.startswith(prefix)]
            content = {key.removeprefix(prefix): arrays.pop(key) for key in own}
            if held[name] is None:
                fields.require(not content, "arrays", f"a set without those of {name!r}", own)
            elif held["statistics"] == self._empty.kind:
                made = Record(self._empty.kind, content, held[name])
                parts[name] = type(self._empty).from_record(made)
        fields.require(not arrays, "arrays", "a set of known names", [*arrays])
        return Gathering(held["n_done"], parts["total"], parts["present"], names)

    def _require_same(self, held: dict[str, Any], state: Gathering[S]) -> None:
        """Refuse a file of other statistics, of another form, or of other data."""
        where = f"the checkpoint {str(self.path)!r} is of"
        about = self._about
        if held["statistics"] != about["statistics"]:
            kinds = f"{shown(held['statistics'])}, and not of {about['statistics']!r}"
            raise InvalidInput(f"{where} {kinds}. {ELSEWHERE}")
        own, other = about["empty"], held["empty"]
        different = [key for key in own.keys() | other.keys() if own.get(key) != other.get(key)]
        if different:
            key = min(different)
            raise InvalidInput(
                f"{where} another form or other sizes: its {key} is {shown(other.get(key))}, and "
                f"{shown(own.get(key))} here. {ELSEWHERE}"
            )
        if (held["chunks"], held["n_chunks"]) != (about["chunks"], about["n_chunks"]):
            raise InvalidInput(f"{where} other data: {self._difference(held, state)}. {ELSEWHERE}")
        if held["first_content"] != about["first_content"]:
            raise InvalidInput(
                f"{where} other data: the same files are read in another way (other columns, "
                f"targets or weights). {ELSEWHERE}"
            )
        self._require_complete(state)

    def _require_complete(self, state: Gathering[S]) -> None:
        """Refuse sums that are not of the chunks that are said to be done."""
        borders = [each.stop for each in stretches(len(self._identities))]
        finished = max((each for each in borders if each <= state.n_done), default=0)
        done = self._identities[: state.n_done]
        for part, some in ((state.total, done[:finished]), (state.present, done[finished:])):
            inside = Contents() if part is None else part.contents
            if len(done) < state.n_done or inside != Contents(some):
                raise FileFormatError(
                    f"the checkpoint {str(self.path)!r} does not hold the {state.n_done} chunks "
                    f"that it says it does. {ELSEWHERE}"
                )

    def _difference(self, held: dict[str, Any], state: Gathering[S]) -> str:
        """What is not as it was, in words."""
        now = {each.source: each.fingerprint for each in self._identities}
        for part in (state.total, state.present):
            for identity in () if part is None else part.contents.identities():
                name = shown(identity.source, LONGEST_SOURCE)
                if identity.source not in now:
                    return f"{name} is in it, and not among these"
                if now[identity.source] != identity.fingerprint:
                    return f"{name} has changed since"
        if held["n_chunks"] != len(self._identities):
            return f"it has {held['n_chunks']} chunks, and these are {len(self._identities)}"
        return "chunks that it does not hold yet are others, or in another order"


def _first_content(source: Source, mode: str | None) -> str:
    """The digest of the first chunk that is not empty."""
    read = (read_chunk(chunk, mode) for chunk in source.chunks)
    data = next((each for each in read if each is not None), None)
    if data is None:
        raise InvalidInput("all chunks of the source are empty: it holds no sequence.")
    return content_digest(data)
