"""DATA of a verb: files, patterns and columns of tables in; arrays, statistics or a source out.

One file of arrays that is small is read whole; anything else is a source, read in chunks.
"""

from __future__ import annotations

import csv
import glob
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import click
import numpy as np
from numpy.typing import NDArray

import polyattn as pa
from polyattn.cli import console
from polyattn.cli.command_words import current_command
from polyattn.cli.io import load_as, read_data
from polyattn.cli.table_hint import columns_hint, other_columns
from polyattn.errors import InvalidInput
from polyattn.files.records import record_digest
from polyattn.numerics.parallel import physical_memory
from polyattn.quoting import readable_bytes
from polyattn.sequences import SequenceBatch
from polyattn.sources import Source
from polyattn.sources.collected import collected
from polyattn.sources.data_file import DataFile
from polyattn.sources.scan import TABLES, files_named, scan
from polyattn.sources.tables import TableSource
from polyattn.targets import as_weights

Command = TypeVar("Command", bound=Callable[..., Any])

# One file of arrays up to this size is read whole, and a larger one in chunks.
WHOLE_BYTES = 256 << 20

ARRAYS = (".npz", ".npy")
STATISTICS = ".safetensors"

_OF_INPUTS = (
    click.option("--sequence", metavar="COLUMN", help="The name of the sequence of a token."),
    click.option(
        "--order", metavar="COLUMN", help="Its position in the sequence [default: as rows stand]."
    ),
    click.option(
        "--tokens", multiple=True, metavar="COLUMNS",
        help="Its coordinates: a,b,c, or the option once for each.",
    ),
)  # fmt: skip
_OF_TARGETS = (
    click.option(
        "--targets", multiple=True, metavar="COLUMNS|FILE",
        help="Y, in the same way; for X in a .npy: Y as a .npy file.",
    ),
    click.option("--weight", metavar="COLUMN", help="The weight of the sequence [default: 1]."),
)  # fmt: skip
_OWN_NAMES = "columns are those of tables, and files of arrays name their own"
NAMES = ("sequence", "order", "tokens", "targets", "weight")


def data_argument(required: bool = True, name: str = "data") -> Callable[[Command], Command]:
    """DATA: one file or several, or patterns of their names."""
    return click.argument(name, nargs=-1, required=required, type=console.FILE)


def input_options(command: Command) -> Command:
    """Add the options that say where the sequences are in a table."""
    for option in reversed(_OF_INPUTS):
        command = option(command)
    return command


def data_options(command: Command) -> Command:
    """Add the options that say where sequences, targets and weights are."""
    for option in reversed(_OF_TARGETS):
        command = option(command)
    return input_options(command)


@dataclass(frozen=True, eq=False)
class Held:
    """Data in memory: sequences, and what belongs to each of them."""

    X: SequenceBatch
    Y: Any  # as functions take targets; None without any
    weights: NDArray | None
    context: SequenceBatch | None
    place: str  # what messages call the data

    def require_equal_weights(self, verb: str) -> None:
        """Refuse weights that would make a difference to a verb that counts sequences once."""
        weights = as_weights(self.weights, self.X)
        if weights is None or (weights[0] > 0 and np.all(weights == weights[0])):
            return
        raise InvalidInput(
            f"{self.place} holds 'weights' from {weights.min():g} to {weights.max():g}, "
            f"which {verb} does not use: every sequence counts once. Leave out the sequences of "
            "weight zero, then remove the array."
        )


@dataclass(frozen=True)
class GivenData:
    """The files that a verb was given, and which columns of tables are what."""

    names: tuple[Path, ...]
    columns: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def files(self) -> list[Path]:
        """One file as it was named; several, and those of patterns, in the order of their names."""
        [first, *others] = self.names
        if not others and (first.exists() or not glob.has_magic(str(first))):
            return [first]
        return files_named([str(name) for name in self.names])

    def refuse_output(self, output: Path | None) -> None:
        """Refuse to write over one of the files, under whatever name."""
        if output is None or not output.exists():
            return
        for path in self.files:
            if path.exists() and path.samefile(output):
                raise InvalidInput(
                    f"the output {str(output)!r} is one of the files of DATA, which would be lost; "
                    "name another file."
                )

    def others(self, names: tuple[Path, ...]) -> GivenData:
        """Other files, with the same columns of tables; files of arrays bring their own targets."""
        made = GivenData(names, self.columns)
        return made if made._are_tables else GivenData(names)

    @property
    def token_names(self) -> tuple[str, ...]:
        """The columns of tables that are coordinates of tokens."""
        return tuple(_names(self.columns).get("tokens") or ())

    @property
    def has_targets(self) -> bool:
        """Whether targets were given, or stand in files of arrays."""
        given = bool(self.columns.get("targets"))
        return given or (not self._are_tables and self.source().n_outputs > 0)

    @property
    def are_statistics(self) -> bool:
        """Whether saved statistics were given; beside data they are refused."""
        saved = [path for path in self.files if path.suffix == STATISTICS]
        other = next((path for path in self.files if path.suffix != STATISTICS), None)
        if saved and other is not None:
            raise InvalidInput(
                f"{str(saved[0])!r} holds statistics and {str(other)!r} is data; give the one or "
                "the others."
            )
        return bool(saved)

    def statistics(self, otherwise: str) -> pa.Moments | pa.TriangularFactor:
        """The sum of all statistics; ``otherwise`` ends the message about what holds none."""
        self._refuse_columns("statistics already contain targets and tokens", but="targets")
        self._refuse_columns("statistics already contain targets")
        total: Any = None
        seen: dict[str, Path] = {}
        for path in self.files:
            loaded = load_as(path, (pa.Moments, pa.TriangularFactor), otherwise)
            _refuse_copy(loaded, path, seen)
            if total is not None and type(loaded) is not type(total):
                raise InvalidInput(
                    f"{str(path)!r} holds a {type(loaded).__name__} and {str(self.files[0])!r} a "
                    f"{type(total).__name__}; statistics of one kind can be added."
                )
            total = loaded if total is None else _sum(total, loaded, path)
        return total

    def arguments(self, mode: str, chunked: bool = False) -> dict[str, Any]:
        """X, Y, sample_weight and context as functions take them; X alone if it is a source."""
        whole = self._whole(chunked)
        if whole is None:
            return {"X": self.source(targets=True)}
        content: dict[str, Any] = {"X": whole.sequences(), "Y": whole.targets(mode)}
        content |= {"sample_weight": whole.weights, "context": whole.context()}
        return _as_source(content) if chunked else content

    def inputs(self, chunked: bool = False, missing: bool = False) -> dict[str, Any]:
        """X and its context; X alone if it is a source; with ``missing`` it may hold NaN."""
        whole = self._whole(chunked, missing)
        if whole is None:
            return {"X": self.source().with_missing() if missing else self.source()}
        content = {"X": whole.sequences(), "context": whole.context()}
        return _as_source(content) if chunked else content

    def held(self, verb: str, mode: str | None, targets: bool = True) -> Held:
        """All data in memory, with targets in this mode if there are any.

        With ``targets`` there must be some.
        """
        with console.working("reading the data"):
            whole = self._whole(chunked=False)
            if whole is not None:
                wanted = targets or (mode is not None and "Y" in whole.arrays)
                Y = whole.targets(mode or "last") if wanted else None
                place = repr(str(whole.path))
                return Held(whole.sequences(), Y, whole.weights, whole.context(), place)
            source = self.source(targets)
        require_memory(source, verb)
        with console.passes("reading the data", source):
            read = collected(source, mode)
        place = "DATA" if len(self.files) > 1 else repr(str(self.files[0]))
        return Held(read.batch, read.targets, read.weights, read.context, place)

    def whole_arrays(self, missing: bool) -> DataFile | None:
        """X and Y of two .npy files, which are read whole; None where the data are a source."""
        return self._whole(chunked=True, missing=missing)

    def source(self, targets: bool = False) -> Source:
        """The data in chunks; with ``targets`` there must be some."""
        if not self._are_tables:
            self._refuse_columns(_OWN_NAMES, but="targets")
            if self.columns.get("targets"):
                raise InvalidInput(
                    "--targets names a .npy file beside one .npy of X, or columns of tables; "
                    "write X and Y into .npz files, and leave it out."
                )
        elif not self.columns.get("tokens"):
            raise InvalidInput(
                f"{str(self.files[0])!r} is a table; say which of its columns are what, by "
                "--tokens, --sequence and so on. "
                f"{columns_hint(self.files[0], current_command())}"
            )
        given = _names(self.columns) if self._are_tables else {}
        made = scan([str(path) for path in self.files], **given)
        if targets and made.n_outputs == 0:
            hint = "add array Y to each file"
            if self._are_tables:
                used = tuple(made.columns.used) if isinstance(made, TableSource) else ()
                left = other_columns(self.files[0], used)
                hint = f"give --targets COLUMNS, of which {left} are left"
            raise InvalidInput(f"{str(self.files[0])!r} has no targets; {hint}.")
        return made

    @cached_property
    def _are_tables(self) -> bool:
        kinds = {path.suffix.lower() in TABLES: path for path in self.files}
        if len(kinds) > 1:
            raise InvalidInput(
                f"files of one kind are read together; got {str(kinds[True])!r}, a table, and "
                f"{str(kinds[False])!r}."
            )
        return True in kinds

    def _whole(self, chunked: bool, missing: bool = False) -> DataFile | None:
        """The content of one small file, or of X and Y in two; None where chunks are better."""
        [path, *others] = self.files
        if others or self._are_tables:
            return None
        targets = self.columns.get("targets", ())
        large = path.is_file() and path.stat().st_size > WHOLE_BYTES
        if not targets and (large or chunked):
            return None
        self._refuse_columns(_OWN_NAMES, but="targets")
        if len(targets) > 1:
            raise InvalidInput("--targets names one .npy file beside arrays; got several.")
        return read_data(path, Path(targets[0]) if targets else None, missing)

    def _refuse_columns(self, why: str, but: str = "") -> None:
        for name, given in self.columns.items():
            if given and name != but:
                raise InvalidInput(f"{why}; leave --{name} out.")


def require_memory(source: Source, verb: str) -> None:
    """Refuse data that memory cannot hold, for what holds them there."""
    available = physical_memory()
    # While parts are put together there are two of each.
    if available is not None and 2 * source.n_bytes > available:
        raise InvalidInput(
            f"{verb} holds its data in memory, twice while they are read: DATA are about "
            f"{readable_bytes(source.n_bytes)}, and this machine has "
            f"{readable_bytes(available)}. Give fewer files."
        )


def take_data(data: tuple[Path, ...], options: dict[str, Any]) -> GivenData:
    """What was given as DATA, with the options about it taken out of ``options``."""
    return GivenData(data, {name: options.pop(name) for name in NAMES if name in options})


def _names(columns: dict[str, Any]) -> dict[str, Any]:
    """Columns by what they are; a list that was given once is divided at its commas."""
    names = {name: each or None for name, each in columns.items()}
    for name in ("tokens", "targets"):
        given = columns.get(name, ())
        if len(given) == 1:
            [names[name]] = csv.reader(given)
    return names


def _as_source(content: dict[str, Any]) -> dict[str, Any]:
    """The same data as one source."""
    given = {name: each for name, each in content.items() if name != "X"}
    return {"X": scan(content["X"], **given)}


def _refuse_copy(statistics: pa.Moments | pa.TriangularFactor, path: Path, seen: Any) -> None:
    """Refuse the statistics of an earlier file again: chunks without a name cannot tell."""
    if not statistics.contents.unnamed:
        return
    digest = record_digest(statistics.to_record())
    if digest in seen:
        raise InvalidInput(
            f"{str(path)!r} holds the same statistics as {str(seen[digest])!r}, bit for bit: their "
            "data would count twice. Leave one of them out."
        )
    seen[digest] = path


def _sum(total: Any, more: Any, path: Path) -> Any:
    try:
        return total + more
    except InvalidInput as error:
        raise InvalidInput(f"{str(path)!r} cannot be added: {error}") from error
