"""SequenceScaler: coordinates of mean zero and deviation one over all tokens, for scikit-learn."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from polyattn.errors import InvalidInput, OutOfRange, require_flag
from polyattn.estimators.transformers import SequenceTransformer
from polyattn.numerics.coordinate_sums import CoordinateSums
from polyattn.sequences import SequenceBatch, Sequences, checked_before
from polyattn.sources.of_chunks import each_chunk
from polyattn.sources.source import ChunkData, Source, require_alone
from polyattn.sources.views import OtherTokens
from polyattn.targets import as_weights

Array = NDArray[np.float64]


class SequenceScaler(SequenceTransformer):
    """Every coordinate with mean zero and standard deviation one, over all tokens of all sequences.

    A position in the sequence has no mean of its own: tokens are scaled alike wherever they stand.
    A coordinate that is constant, up to rounding, is not divided by anything.

    Parameters
    ----------
    with_mean : bool
        Subtract the mean.
    with_std : bool
        Divide by the standard deviation (that of the tokens themselves, divided by their number).
    unit_norm : bool
        Afterwards divide each token by its norm; tokens that are zero stay.
    layout : "tokens_first" | "channels_first"
        The axes of arrays: (n_sequences, n_tokens, n_dims), or (n_sequences, n_channels, n_time).

    Attributes
    ----------
    mean_, scale_ : arrays (d,), what is subtracted, and what is divided by (1 where constant)
    n_features_in_ : int, coordinates of a token
    feature_names_in_ : array of str, only of sequences with names: what coordinates are called
    n_sequences_seen_, n_tokens_seen_ : int, of positive weight

    X is an array (n_sequences, n_tokens, n_dims), a list of arrays (n_i, n_dims), a SequenceBatch
    or a source (``polyattn.scan``); what comes back is of the same kind, in float64.  The view of a
    source scales its chunks when they are read, and leaves targets and context as they are.

    ``partial_fit`` adds tokens: the result is that of ``fit`` on all of them up to rounding.
    Numbers may be of any size (1e±300); NaN is refused (see ``SequenceImputer``).

    Cost: two looks at each number to fit, one to transform; memory of the result.

    >>> import numpy as np, polyattn as pa
    >>> X = np.array([[[1.0, 5.0], [3.0, 5.0]], [[5.0, 5.0], [7.0, 5.0]]])
    >>> scaler = pa.SequenceScaler().fit(X)
    >>> scaler.mean_.tolist(), scaler.scale_.round(3).tolist()
    ([4.0, 5.0], [2.236, 1.0])
    """

    def __init__(
        self,
        with_mean: bool = True,
        with_std: bool = True,
        unit_norm: bool = False,
        layout: str = "tokens_first",
    ) -> None:
        self.with_mean = with_mean
        self.with_std = with_std
        self.unit_norm = unit_norm
        self.layout = layout

    def fit(
        self,
        X: Sequences | Source,
        y: Any = None,  # noqa: ARG002 - scikit-learn gives it
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Mean and deviation of X; ``sample_weight`` has one weight per sequence."""
        return self._learn(X, sample_weight, None, 0)

    def partial_fit(
        self,
        X: Sequences | Source,
        y: Any = None,  # noqa: ARG002 - scikit-learn gives it
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Add more sequences to those of all calls so far."""
        if not self.__sklearn_is_fitted__():
            return self._learn(X, sample_weight, None, 0)
        return self._learn(X, sample_weight, self._sums, self.n_sequences_seen_)

    def transform(self, X: Sequences | Source) -> Any:
        """X scaled, in its own kind."""
        change = self._standardisation()
        if isinstance(X, Source):
            self._require_names(X)
            _require_dims(X, self.n_features_in_)
            return OtherTokens(X, change.batch, X.n_dims, f"scaled by {change.digest}")
        batch = self._batch(X, self.n_features_in_)
        return self._as_given(X, change.tokens(batch), batch)

    def inverse_transform(self, X: Sequences) -> Any:
        """What ``transform`` made X of, up to rounding; norms of tokens cannot be given back."""
        change = self._standardisation()
        if change.unit_norm:
            raise InvalidInput(
                "with unit_norm=True the norms of tokens are gone; inverse_transform needs "
                "unit_norm=False."
            )
        if isinstance(X, Source):
            raise InvalidInput("inverse_transform takes arrays, lists and batches, not a source.")
        batch = self._batch(X, self.n_features_in_)
        return self._as_given(X, change.inverse(batch), batch)

    def arrays(self) -> dict[str, NDArray]:
        """Mean and scale."""
        return {"mean": self.mean_, "scale": self.scale_}

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_sums")

    def _learned_facts(self) -> dict[str, Any]:
        seen = {"n_sequences": self.n_sequences_seen_, "n_tokens": self.n_tokens_seen_}
        constant = int(np.count_nonzero(self._sums.is_constant))
        return super()._learned_facts() | seen | {"constant_coordinates": constant}

    def _learn(
        self,
        X: Sequences | Source,
        sample_weight: ArrayLike | None,
        sums: CoordinateSums | None,
        n_sequences: int,
    ) -> Self:
        for name in ("with_mean", "with_std", "unit_norm"):
            require_flag(name, getattr(self, name))
        n_dims, is_first = None if sums is None else len(sums.mean), sums is None
        if isinstance(X, Source):
            if not is_first:
                self._require_names(X)
            require_alone(sample_weight=sample_weight)
            _require_dims(X, n_dims)
            found = each_chunk(X, _sums_of_chunk)
        else:
            batch = self._batch(X, n_dims)
            found = [_sums_of(batch, as_weights(sample_weight, batch))]
        for own, count in found:
            sums = own if sums is None else sums.merged(own)
            n_sequences += count
        if sums is None:
            raise InvalidInput("sample_weight is zero everywhere; at least one must be positive.")
        if is_first:
            self._remember_names(X)
        return self._remember(sums, n_sequences)

    def _remember(self, sums: CoordinateSums, n_sequences: int) -> Self:
        """The attributes that follow from sums over so many sequences."""
        self._sums = sums
        self.mean_ = sums.mean
        # A deviation below the smallest number of float64 is none.
        self.scale_ = np.where(sums.is_constant | (sums.std == 0.0), 1.0, sums.std)
        self.n_features_in_ = len(sums.mean)
        self.n_tokens_seen_, self.n_sequences_seen_ = sums.n_tokens, n_sequences
        return self

    def _standardisation(self) -> Standardisation:
        check_is_fitted(self)
        return Standardisation(
            self.mean_.copy() if require_flag("with_mean", self.with_mean) else None,
            self.scale_.copy() if require_flag("with_std", self.with_std) else None,
            require_flag("unit_norm", self.unit_norm),
        )


@dataclass(frozen=True, eq=False)
class Standardisation:
    """A change of tokens: less the mean, by the scale, by their norm."""

    mean: Array | None
    scale: Array | None
    unit_norm: bool

    @property
    def digest(self) -> str:
        """Equal for equal changes only."""
        parts = [b"-" if each is None else each.tobytes() for each in (self.mean, self.scale)]
        content = b"|".join([*parts, str(self.unit_norm).encode()])
        return hashlib.sha256(content).hexdigest()[:32]

    def batch(self, batch: SequenceBatch) -> SequenceBatch:
        """The same sequences with changed tokens."""
        return checked_before(self.tokens(batch), batch.offsets, batch.coordinate_names)

    def tokens(self, batch: SequenceBatch) -> Array:
        """The changed tokens of a batch, (n_tokens, d)."""
        values = np.asarray(batch.values[:]).astype(np.float64)
        with np.errstate(over="ignore"):
            changed = values if self.mean is None else values - self.mean
            if self.scale is not None and not np.isfinite(changed).all():
                # Differences beyond float64 can still be small beside the scale.
                quarter = values / 4 - (0.0 if self.mean is None else self.mean / 4)
                changed = quarter / (self.scale / 4)
            elif self.scale is not None:
                changed = changed / self.scale
        _require_in_range(changed, batch, "scaled")
        return with_unit_norm(changed) if self.unit_norm else changed

    def inverse(self, batch: SequenceBatch) -> Array:
        """The tokens that become those of a batch."""
        values = np.asarray(batch.values[:]).astype(np.float64)
        with np.errstate(over="ignore"):
            values = values if self.scale is None else values * self.scale
            values = values if self.mean is None else values + self.mean
        _require_in_range(values, batch, "scaled back")
        return values


def with_unit_norm(tokens: Array) -> Array:
    """Tokens (n, d) divided by their norms; those that are zero stay."""
    largest = np.abs(tokens).max(axis=1)
    # A power of two for each token, so that no square leaves float64.
    scaled = np.ldexp(tokens, -np.frexp(largest)[1][:, None])
    norms = np.sqrt(np.einsum("td,td->t", scaled, scaled))
    return np.asarray(scaled / np.where(norms > 0, norms, 1.0)[:, None])


def _sums_of(batch: SequenceBatch, weights: Array | None) -> tuple[CoordinateSums | None, int]:
    """Of the tokens of a batch, and how many of its sequences count."""
    if weights is None:
        return CoordinateSums.of(batch.values), len(batch)
    of_tokens = np.repeat(weights, batch.lengths)
    return CoordinateSums.of(batch.values, of_tokens), int(np.count_nonzero(weights))


def _sums_of_chunk(data: ChunkData) -> tuple[CoordinateSums | None, int]:
    return _sums_of(data.batch, as_weights(data.weights, data.batch))


def _require_dims(source: Source, n_dims: int | None) -> None:
    if n_dims is not None and source.n_dims != n_dims:
        raise InvalidInput(
            f"X must have tokens of {n_dims} coordinates; the source has {source.n_dims}."
        )


def _require_in_range(tokens: Array, batch: SequenceBatch, what: str) -> None:
    finite = np.isfinite(tokens)
    if not finite.all():
        row, coordinate = (int(i) for i in np.argwhere(~finite)[0])
        raise OutOfRange(
            f"X {what} leaves the range of float64 at {batch.place((row, coordinate))}: it is "
            f"{batch.values[row : row + 1][0, coordinate]:g} there, far beyond the sequences of "
            "fit. Look at it, or fit on sequences like these."
        )
