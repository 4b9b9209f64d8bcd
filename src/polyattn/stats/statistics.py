"""What both statistics share: sizes, counts, powers of two, and the rules of merging."""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import deepcopy
from dataclasses import replace
from os import PathLike
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.display import Described, Description, data_in_words
from polyattn.errors import InvalidInput, require_integer
from polyattn.files import fields
from polyattn.files.records import Record, read_record, rebuild, write_record
from polyattn.form.form import Form, require_form
from polyattn.form.in_words import form_in_words, form_sizes
from polyattn.form.layout import Layout
from polyattn.form.of_layout import OfLayout
from polyattn.form.stored import FORM_FIELDS, form_fields
from polyattn.numerics import scaling
from polyattn.numerics.parallel import physical_memory, single_threaded_blas
from polyattn.quoting import counted, readable_bytes
from polyattn.sequences import Sequences
from polyattn.stats.magnitudes import Magnitudes
from polyattn.stats.rows import Rows
from polyattn.stats.stored import ADDED, LARGEST, SHAPE, SIZES, UNITS, checked_layout, stored_sizes
from polyattn.targets import Targets


class Statistics(OfLayout, Described, ABC):
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
    """

    kind: str

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
        wanted, available = 8 * self._numbers, physical_memory()
        if available is not None and wanted > available:
            raise InvalidInput(
                f"{type(self).__name__} of {counted(self.n_features, 'feature')} would "
                f"take about {readable_bytes(wanted)}, and this machine has "
                f"{readable_bytes(available)}. Give X and Y to fit, whose solvers 'dual' and "
                "'iterative' need less, or reduce the number of coordinates."
            )
        self.n_rows = 0
        self.n_positive = 0  # rows of positive weight
        self.n_sequences = 0
        self.total_weight = 0.0
        self.max_length = 0
        self.max_context_length = 0
        # Powers of two taken out of tokens and targets (None: nothing but zeros so far).
        self.token_exponent: int | None = None
        self.target_exponent: int | None = None
        # Largest magnitudes so far of all columns, 1 for the constant, and of outputs (e,).
        self.coordinate_sizes = np.zeros(self.layout.n_columns)
        self.output_sizes = np.zeros(self.n_outputs)
        self._magnitudes = Magnitudes(self.layout)
        self._begin()

    def update(
        self,
        X: Sequences,
        Y: Targets | None = None,
        sample_weight: ArrayLike | None = None,
        context: Sequences | None = None,
    ) -> Self:
        """Add sequences and their targets; returns itself.

        context : the sequences that the tokens of X attend to, where they are others
        Cost: one pass over X, a second one for the magnitudes of forms whose keys and values are
        different columns, memory independent of the number of sequences.
        """
        if (Y is None) != (self.n_outputs == 0):
            raise InvalidInput(
                f"these statistics were made with n_outputs={self.n_outputs}; "
                + ("Y is missing." if Y is None else "they take no Y.")
            )
        rows = Rows.build(
            X, Y, self.form, sample_weight, context,
            layout=self.layout, n_outputs=self.n_outputs or None,
        )  # fmt: skip
        return self.add_rows(rows)

    @classmethod
    def of(cls, rows: Rows) -> Self:
        """The statistics of rows that are validated already."""
        layout = rows.layout
        empty = cls(
            layout.n_dims, rows.n_outputs,
            form=layout.form, n_context_dims=layout.n_context_dims,
        )  # fmt: skip
        return empty.add_rows(rows)

    @single_threaded_blas()
    def add_rows(self, rows: Rows) -> Self:
        """Add rows that are validated already."""
        self._join_units(rows)
        scaled = rows.with_exponents(self.token_exponent, self.target_exponent)
        self._accumulate(scaled)
        self._magnitudes.add(scaled, self.scaled_feature_powers())
        self._count(rows)
        return self

    @single_threaded_blas()
    def __add__(self, other: Self) -> Self:
        """The statistics of both data sets together; neither operand changes."""
        if type(other) is not type(self):
            return NotImplemented
        different = [
            f"{key} {getattr(self, key)} and {getattr(other, key)}"
            for key in (*SHAPE, *FORM_FIELDS)
            if getattr(self, key) != getattr(other, key)
        ]
        if different:
            raise InvalidInput(
                f"only statistics of the same kind merge; these have {', '.join(different)}."
            )
        merged, addend = self.copy(), other.copy()
        merged._join_units(other)
        addend._join_units(self)
        merged._absorb(addend)
        merged._magnitudes.absorb(addend._magnitudes)
        merged._count(other)
        return merged

    def __radd__(self, other: object) -> Self:
        """What ``sum([...])`` begins with: zero adds nothing."""
        return self.copy() if isinstance(other, int) and other == 0 else NotImplemented

    def __eq__(self, other: object) -> bool:
        """Equal sums, bit for bit, over as many rows of as much weight."""
        if type(other) is not type(self):
            return NotImplemented
        mine, theirs = self.content(), other.content()
        return (
            (self.layout, mine.metadata) == (other.layout, theirs.metadata)
            and mine.arrays.keys() == theirs.arrays.keys()
            and all(np.array_equal(mine.arrays[name], theirs.arrays[name]) for name in mine.arrays)
        )

    # They change, so they are no keys of dictionaries.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        form = f"mode {self.mode!r}{', bias' * self.bias}" if self.form.is_plain else self.form
        counts = (
            counted(self.n_sequences, "sequence"),
            counted(self.n_rows, "predicted position"),
            counted(self.n_features, "feature"),
            counted(self.n_outputs, "output"),
        )
        return f"{type(self).__name__}({', '.join(counts)}, {form})"

    def describe(self) -> Description:
        words = form_in_words(self.layout)
        data = data_in_words(self.n_sequences, self.n_dims, self.mode, words)
        names = ("n_sequences", "n_rows", "n_features", "n_outputs", "total_weight", "max_length")
        return Description(
            "Statistics of a data set", f"Sums of {data}",
            facts={name: getattr(self, name) for name in names},
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
        """The content and the form as named arrays and plain metadata."""
        record = self.content()
        return replace(record, metadata=record.metadata | form_fields(self.layout))

    def content(self) -> Record:
        """The same without the form, which may hold functions that no file can."""
        metadata = {key: getattr(self, key) for key in SHAPE | ADDED | LARGEST | UNITS}
        if self.n_context_dims is None:
            del metadata["max_context_length"]
        metadata |= {key: getattr(self, key).tolist() for key in SIZES}
        return Record(self.kind, self._arrays() | self._magnitudes.arrays(), metadata)

    @classmethod
    def from_record(cls, record: Record) -> Self:
        """The inverse of ``to_record``; the arrays are copied."""
        held, arrays = record.metadata, record.arrays
        layout, largest = checked_layout(held)
        # Sizes are held against the arrays before anything of these sizes is made.
        required, optional = Magnitudes.stored(layout)
        required |= cls._stored(layout, held["n_outputs"], largest)
        fields.entries(required, optional)(arrays, "arrays")
        made = cls(
            layout.n_dims, held["n_outputs"],
            form=layout.form, n_context_dims=layout.n_context_dims,
        )  # fmt: skip
        for key in ADDED | LARGEST | UNITS:
            setattr(made, key, held.get(key, 0))
        made._restore(arrays)
        made._magnitudes.restore(arrays, made.scaled_feature_powers())
        known = (made.coordinate_sizes, made.output_sizes)
        estimates = made._estimated_sizes() if layout.is_plain else known
        for name, estimate in zip(SIZES, estimates, strict=True):
            setattr(made, name, stored_sizes(held, name, estimate))
        return made

    def _count(self, other: Rows | Self) -> None:
        for key in ADDED:
            setattr(self, key, getattr(self, key) + getattr(other, key))
        for key in LARGEST:
            setattr(self, key, max(getattr(self, key), getattr(other, key)))

    def _join_units(self, other: Rows | Self) -> None:
        """Go over to the powers of two for the data of both, if their sums fit together."""
        coordinates = np.maximum(self.coordinate_sizes, other.coordinate_sizes)
        outputs = np.maximum(self.output_sizes, other.output_sizes)
        if self.n_rows:
            # Rows alone were checked; in other units than its own, a shard of small tokens and
            # small weights may vanish.
            compared = np.append(coordinates, 1.0) if self.layout.has_constant else coordinates
            scaling.require_comparable(compared, outputs)
            heaviest = max(each.total_weight / max(each.n_positive, 1) for each in (self, other))
            scaling.require_weighable(heaviest, compared, outputs)
        token = scaling.token_exponent(coordinates)
        target = scaling.exponent_for(float(outputs.max(initial=0.0)))
        # Sums of zero tokens may hold the constants of skip and intercept.
        tokens = (self.token_exponent or 0) - (token or 0)
        targets = (self.target_exponent or 0) - (target or 0)
        if tokens or targets:
            # Exact, but for what underflows.
            self._rescale(tokens, targets)
            self._magnitudes.rescale(tokens)
        self.token_exponent, self.target_exponent = token, target
        self.coordinate_sizes, self.output_sizes = coordinates, outputs

    def _estimated_sizes(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Root mean squares of coordinates and outputs, for files that lack their sizes."""
        weight = self.total_weight or 1.0
        features, targets = self.scaled_feature_powers() / weight, self._target_powers() / weight
        # (G_jj x_l)^2 has the fourth power of a token coordinate in it and the square of a query's.
        largest = float(features.max(initial=0.0)) ** (1 / 6) or 1.0
        squares = self.layout.pairs.position.diagonal()
        of_tokens = features.reshape(-1, self.layout.n_queries)[squares].max(axis=1)
        tokens = (of_tokens / largest**2) ** (1 / 4)
        return (
            np.ldexp(tokens, self.token_exponent or 0),
            np.ldexp(np.sqrt(targets), self.target_exponent or 0),
        )

    @abstractmethod
    def _accumulate(self, rows: Rows) -> None:
        """Add the rows, which are read at this object's powers of two."""

    @abstractmethod
    def _absorb(self, other: Self) -> None:
        """Add statistics at the same powers of two."""

    @abstractmethod
    def scaled_feature_powers(self) -> NDArray[np.float64]:
        """sum psi^2 (p,) of the scaled tokens."""

    @abstractmethod
    def _target_powers(self) -> NDArray[np.float64]:
        """sum y^2 (e,) of the scaled targets."""

    @abstractmethod
    def _rescale(self, tokens: int, targets: int) -> None:
        """Multiply the tokens seen so far by 2**tokens and the targets by 2**targets."""

    @abstractmethod
    def _begin(self) -> None:
        """Sums over no rows."""

    @property
    @abstractmethod
    def _numbers(self) -> int:
        """How many numbers the sums take."""

    @classmethod
    @abstractmethod
    def _stored(cls, layout: Layout, n_outputs: int, largest: float) -> dict[str, fields.Check]:
        """The checks of the arrays in a file; no sum of squares can exceed ``largest``."""

    @abstractmethod
    def _arrays(self) -> dict[str, NDArray[np.float64]]:
        """The sums by name."""

    @abstractmethod
    def _restore(self, arrays: dict[str, NDArray[np.float64]]) -> None:
        """Take copies of the sums of another object."""
