"""Statistics: sums that merge, know what is in them, and are kept in files."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from os import PathLike
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.display import Described, Description
from polyattn.errors import InvalidInput, InvalidType, require_integer, require_number
from polyattn.files import fields
from polyattn.files.records import Record, read_record, rebuild, write_record
from polyattn.form.form import Form, require_form
from polyattn.form.in_words import form_in_words, form_sizes
from polyattn.form.layout import Layout
from polyattn.form.stored import form_fields
from polyattn.numerics.parallel import require_physical_memory, single_threaded_blas
from polyattn.quoting import counted, shown
from polyattn.sequences import Sequences
from polyattn.sizes_in_words import data_in_words
from polyattn.sources.contents import Contents
from polyattn.sources.digest import content_digest
from polyattn.sources.names import SequenceNames
from polyattn.sources.source import ChunkData, ChunkIdentity, Source
from polyattn.stats.accumulated import Accumulated
from polyattn.stats.gather import gathered, require_fitting
from polyattn.stats.magnitudes import Magnitudes
from polyattn.stats.rows import Rows
from polyattn.stats.stored import (
    ADDED,
    LARGEST,
    ROUNDINGS,
    SHAPE,
    SIZES,
    UNITS,
    checked_layout,
    estimated_sizes,
    stored_sizes,
)
from polyattn.stats.target_spread import TargetSpread
from polyattn.targets import Targets


class Statistics(Accumulated, Described):
    """Sums over predicted positions that merge: ``update``, ``+``, ``sum``, ``save``, ``load``.

    Parameters
    ----------
    n_dims : int
        Coordinates per token (without the constant one of ``bias``).
    n_outputs : int
        Target coordinates; 0 for statistics of the inputs alone (enough for a certificate).
    mode : "last" | "causal" | "full"
        Which positions are predicted.
    bias : bool
        Append a coordinate that is always 1 to every token.
    form : Form, optional
        The layer, instead of ``mode`` and ``bias``.
    n_context_dims : int, optional
        Coordinates per token of the ``context``, where tokens attend to other sequences.

    Attributes
    ----------
    contents : Contents
        Which chunks are in the sums; none is added a second time.
    """

    kind: str

    # The names of sequences, while the chunks of one source are added up in several processes.
    sequence_names: SequenceNames | None = None

    def __init__(
        self,
        n_dims: int,
        n_outputs: int = 0,
        mode: str = "last",
        bias: bool = False,
        *,
        form: Form | None = None,
        n_context_dims: int | None = None,
    ) -> None:
        self.n_outputs = require_integer("n_outputs", n_outputs, 0)
        if n_context_dims is not None:
            n_context_dims = require_integer("n_context_dims", n_context_dims, 1)
        own = require_integer("n_dims", n_dims, 1)
        self.layout = Layout.of(require_form(form, mode, bias), own, n_context_dims)
        require_physical_memory(
            8 * self._numbers,
            f"{type(self).__name__} of {counted(self.n_features, 'feature')}",
            "Give X and Y to fit, whose solvers 'dual' and 'iterative' need less, or reduce the "
            "number of coordinates.",
        )
        super().__init__(self.layout, self.n_outputs)

    def update(
        self,
        X: Sequences | Source,
        Y: Targets | None = None,
        sample_weight: ArrayLike | None = None,
        context: Sequences | None = None,
        *,
        chunk: str | None = None,
        forget: float = 1.0,
        checkpoint: str | PathLike[str] | None = None,
        client: Any = None,
    ) -> Self:
        """Add sequences and their targets; returns itself.

        X : sequences, or a source: targets, weights and contexts then come from it
        context : the sequences that the tokens of X attend to, where they are others
        chunk : a name for arrays, under which they are counted once and can be taken out again
        forget : in (0, 1], by which all that was added before is multiplied first
        checkpoint : a file from which the same call goes on if it was interrupted; for a source
        client : a ``distributed.Client``, on whose workers a source is added up
        Guarantee: a refused update changes nothing.  The sum over a source has the same bits
        however often it was interrupted, and however many workers there were.
        Cost: one pass over X, a second one for the magnitudes of forms whose keys and values are
        different columns, memory independent of the number of sequences.
        """
        factor = require_number("forget", forget, 1.0)
        if factor == 0.0:
            raise InvalidInput("forget must be above 0; to drop everything, make new statistics.")
        if isinstance(X, Source):
            if any(each is not None for each in (Y, sample_weight, context, chunk)):
                raise InvalidInput(
                    "targets, weights, contexts and names come from the source: leave out Y, "
                    "sample_weight, context and chunk."
                )
            return self._add_source(X, factor, checkpoint, client)
        if checkpoint is not None or client is not None:
            raise InvalidInput(
                "a checkpoint and a client are for a source; arrays are added at once."
            )
        if (Y is None) != (self.n_outputs == 0):
            raise InvalidInput(
                f"these statistics were made with n_outputs={self.n_outputs}; "
                + ("Y is missing." if Y is None else "they take no Y.")
            )
        rows = Rows.build(
            X, Y, self.form, sample_weight, context,
            layout=self.layout, n_outputs=self.n_outputs or None,
        )  # fmt: skip
        identity = None if chunk is None else _named(chunk, rows)
        if identity is not None:
            self.contents.require_new(identity)
        self._require_joinable(rows, factor)
        self._forget(factor)
        return self.add_rows(rows) if identity is None else self.add_chunk_rows(rows, identity)

    @classmethod
    def of(cls, rows: Rows) -> Self:
        """The statistics of rows that are validated already."""
        layout = rows.layout
        empty = cls(
            layout.n_dims, rows.n_outputs,
            form=layout.form, n_context_dims=layout.n_context_dims,
        )  # fmt: skip
        return empty.add_rows(rows)

    def empty(self) -> Self:
        """New statistics of the same kind and form, with nothing in them."""
        return type(self)(
            self.n_dims, self.n_outputs, form=self.form, n_context_dims=self.n_context_dims
        )

    def _add_source(
        self, source: Source, forget: float, checkpoint: str | PathLike[str] | None, client: Any
    ) -> Self:
        self.contents.require_disjoint(require_fitting(self, source))
        more = gathered(self.empty(), source, checkpoint, client)
        if self.n_rows == 0:
            contents = self.contents.union(more.contents)
            vars(self).update(vars(more), contents=contents)
            return self
        self._require_joinable(more, forget)
        self._forget(forget)
        self.absorb(more)
        return self

    def __add__(self, other: Self) -> Self:
        """The statistics of both data sets together; neither operand changes."""
        if type(other) is not type(self):
            return NotImplemented
        self._require_same_kind(other)
        self.contents.require_disjoint(other.contents)
        merged = self.copy()
        merged.absorb(other.copy())
        return merged

    def __radd__(self, other: object) -> Self:
        """What ``sum([...])`` begins with: zero adds nothing."""
        return self.copy() if isinstance(other, int) and other == 0 else NotImplemented

    def __eq__(self, other: object) -> bool:
        """Equal sums, bit for bit, over as many rows of as much weight, of the same chunks."""
        if type(other) is not type(self):
            return NotImplemented
        mine, theirs = self.content(), other.content()
        return (
            (self.layout, mine.metadata) == (other.layout, theirs.metadata)
            and self.contents == other.contents
            and mine.arrays.keys() == theirs.arrays.keys()
            and all(np.array_equal(mine.arrays[name], theirs.arrays[name]) for name in mine.arrays)
        )

    # They change, so they are no keys of dictionaries.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        form = f"mode {self.mode!r}{', bias' * self.bias}" if self.form.is_plain else self.form
        counts = [
            counted(self.n_sequences, "sequence"),
            counted(self.n_rows, "predicted position"),
            counted(self.n_features, "feature"),
            counted(self.n_outputs, "output"),
        ]
        if self.contents.n_sources:
            counts.append(counted(self.contents.n_sources, "named source"))
        return f"{type(self).__name__}({', '.join(counts)}, {form})"

    def describe(self) -> Description:
        words = form_in_words(self.layout)
        data = data_in_words(self.data_sizes, self.mode, words)
        names = ["n_sequences", "n_rows", "n_features", "n_outputs", "total_weight", "max_length"]
        facts = {name: getattr(self, name) for name in names}
        if self.contents.n_sources:
            facts["n_sources"] = self.contents.n_sources
        forgotten = "Older data count less: they were multiplied by factors of forget."
        return Description(
            "Statistics of a data set", f"Sums of {data}", facts=facts,
            sentence=forgotten * self.down_weighted,
            sizes={"n_dims": self.n_dims, "mode": self.mode, "bias": self.bias}
            | form_sizes(self.layout),
        )  # fmt: skip

    @property
    def absent(self) -> NDArray[np.bool_]:
        """Which features (p,) are known to have had no term other than zero in any row."""
        return self._magnitudes.absent

    def scaled_magnitudes(self) -> NDArray[np.float64] | None:
        """Sums of squares of features without cancellation (p,), see ``Magnitudes``."""
        return self._magnitudes.squares

    def copy(self) -> Self:
        """An independent copy, of the same form: a function in it may be equal to itself alone."""
        return deepcopy(self, {id(self.layout): self.layout})

    def save(self, path: str | PathLike[str]) -> None:
        """Write to one file (safetensors with JSON metadata), atomically."""
        write_record(self.to_record(), path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read what ``save`` wrote."""
        return rebuild(cls, read_record(path, cls.kind), path)

    def to_record(self) -> Record:
        """The content, the form and what is in it as named arrays and plain metadata."""
        record = self.content()
        more = form_fields(self.layout)
        if self.contents.n_sources:
            more["contents"] = self.contents.to_metadata()
        return replace(record, metadata=record.metadata | more)

    def content(self) -> Record:
        """The same without the form, which may hold functions that no file can, and the names."""
        metadata = {key: getattr(self, key) for key in SHAPE | ADDED | LARGEST | UNITS}
        if self.n_context_dims is None:
            del metadata["max_context_length"]
        metadata |= {key: getattr(self, key).tolist() for key in SIZES}
        if self.min_length is not None:
            metadata["min_length"] = self.min_length
        # Those of sums that were only ever added are not written.
        metadata |= {key: getattr(self, key) for key in ROUNDINGS if getattr(self, key)}
        arrays = self._arrays() | self._magnitudes.arrays()
        if self.target_spread is not None:
            arrays |= self.target_spread.arrays()
        if self.subtracted is not None:
            arrays["subtracted"] = self.subtracted
        return Record(self.kind, arrays, metadata)

    @classmethod
    def from_record(cls, record: Record) -> Self:
        """The inverse of ``to_record``; the arrays are copied."""
        held, arrays = record.metadata, record.arrays
        layout, largest = checked_layout(held)
        # Sizes are held against the arrays before anything of these sizes is made.
        required, optional = Magnitudes.stored(layout)
        required |= cls._stored(layout, held["n_outputs"], largest)
        n_powers = layout.n_features + held["n_outputs"]
        optional |= {"subtracted": fields.array((n_powers,), least=0.0)}
        optional |= TargetSpread.stored(held["n_outputs"], largest)
        fields.entries(required, optional)(arrays, "arrays")
        made = cls(
            layout.n_dims, held["n_outputs"],
            form=layout.form, n_context_dims=layout.n_context_dims,
        )  # fmt: skip
        for key in ADDED | LARGEST | UNITS | ROUNDINGS:
            setattr(made, key, held.get(key, getattr(made, key)))
        made.contents = Contents(unnamed=made.n_rows > 0)
        if "contents" in held:
            made.contents = Contents.from_metadata(held["contents"], "metadata.contents")
        made._restore(arrays)
        if "subtracted" in arrays:
            made.subtracted = np.array(arrays["subtracted"])
        made._magnitudes.restore(arrays, made.scaled_feature_powers())
        made.min_length = held.get("min_length")
        made.target_spread = TargetSpread.restored(arrays, made.total_weight, made.n_outputs)
        known = (made.coordinate_sizes, made.output_sizes)
        powers = (made.scaled_feature_powers(), made._target_powers())
        estimates = estimated_sizes(made, *powers) if layout.is_plain else known
        for name, estimate in zip(SIZES, estimates, strict=True):
            setattr(made, name, stored_sizes(held, name, estimate))
        return made

    @single_threaded_blas()
    def add_chunk_rows(self, rows: Rows, identity: ChunkIdentity) -> Self:
        """Add the rows of a chunk that is not in yet."""
        self.contents.require_new(identity)
        self._add_rows(rows)
        self.contents.add(identity)
        return self


def _named(chunk: str, rows: Rows) -> ChunkIdentity:
    """The identity of arrays with a name: under it other data are noticed."""
    if not isinstance(chunk, str) or not chunk:
        raise InvalidType(f"chunk must be a name for these data; got {shown(chunk)}.")
    targets = rows.targets if rows.n_outputs else None
    data = ChunkData(rows.batch, targets, rows.sequence_weights, rows.context)
    return ChunkIdentity(chunk, content_digest(data), 0, rows.n_sequences)
