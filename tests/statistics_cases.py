"""Small data of any mode for statistics, and what is compared of two of them."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.typing import NDArray

import polyattn as pa
from planted import EPS
from polyattn.reference import erm, layer
from polyattn.sequences import MODES

KINDS = (pa.Moments, pa.TriangularFactor)


@dataclass(frozen=True)
class Data:
    """Ragged sequences with one block of target rows each, and how they are to be read."""

    X: list[NDArray]
    Y: list[NDArray]
    weights: NDArray | None
    mode: str
    bias: bool
    d: int
    e: int

    @property
    def targets(self):
        """The targets in the form that the mode wants."""
        if self.e == 0:
            return None
        return np.concatenate(self.Y) if self.mode == "last" else self.Y

    def part(self, start: int, stop: int) -> "Data":
        """Sequences start..stop."""
        weights = None if self.weights is None else self.weights[start:stop]
        return replace(self, X=self.X[start:stop], Y=self.Y[start:stop], weights=weights)

    def into(self, make):
        """The statistics of the data, by one update."""
        stats = make(self.d, self.e, self.mode, self.bias)
        return stats.update(self.X, self.targets, self.weights) if self.X else stats

    def reference(self):
        """psi (rows, p), targets (rows, e) and weights (rows,) by the reference."""
        tokens = [layer.with_constant(x) if self.bias else x for x in self.X]
        weights = np.ones(len(self.X)) if self.weights is None else self.weights
        return (
            erm.design(tokens, self.mode),
            np.concatenate(self.Y),
            np.repeat(weights, [len(y) for y in self.Y]),
        )


def make_data(lengths, d, e, mode, seed=0, weighted=False, bias=False) -> Data:
    """Gaussian data, and weights of any size."""
    rng = np.random.default_rng(seed)
    X = [rng.standard_normal((length, d)) for length in lengths]
    Y = [rng.standard_normal((1 if mode == "last" else length, e)) for length in lengths]
    weights = rng.uniform(0.1, 3, len(X)) if weighted else None
    return Data(X, Y, weights, mode, bias, d, e)


@st.composite
def random_data(draw):
    """Small random data of any mode, with or without weights, constant and targets."""
    return make_data(
        draw(st.lists(st.integers(1, 6), min_size=1, max_size=9)),
        d=draw(st.integers(1, 3)),
        e=draw(st.integers(0, 2)),
        mode=draw(st.sampled_from(MODES)),
        seed=draw(st.integers(0, 2**32)),
        weighted=draw(st.booleans()),
        bias=draw(st.booleans()),
    )


def contents(stats):
    """Copies of the arrays, and the plain metadata."""
    record = stats.to_record()
    return {name: array.copy() for name, array in record.arrays.items()}, record.metadata


def assert_close(found, expected, least=0.0):
    """Equal up to the rounding of a few hundred additions, relative to the largest entry.

    Sums that cancel keep the rounding of their terms, which are of size ``least`` or more.
    """
    size = float(np.max(np.abs(expected), initial=least))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1000 * EPS * size)


def assert_counts(stats, data):
    """The counts beside the sums."""
    _, targets, weights = data.reference()
    assert (stats.n_rows, stats.n_sequences) == (len(targets), len(data.X))
    assert stats.max_length == max(map(len, data.X))
    assert stats.total_weight == pytest.approx(weights.sum())


def assert_same(found, expected):
    """The same statistics up to rounding; factors are compared by their squares."""
    for key, value in contents(expected)[1].items():
        assert contents(found)[1][key] == (
            pytest.approx(value) if isinstance(value, float) else value
        ), key
    if isinstance(expected, pa.Moments):
        for name, array in contents(expected)[0].items():
            # The explicit Gram keeps its lower triangle only.
            assert_close(np.tril(contents(found)[0][name]), np.tril(array), least=1.0)
        return
    one, other = (contents(stats)[0]["factor"] for stats in (found, expected))
    assert_close(one.T @ one, other.T @ other)


def sums_of(kind, form, X, context=None, weights=None):
    """Sums of three shards, merged."""
    width = None if context is None else np.asarray(context[0]).shape[1]
    parts = []
    for first in range(3):
        some = slice(first, None, 3)
        attended = None if context is None else context[some]
        own = None if weights is None else weights[some]
        empty = kind(np.asarray(X[0]).shape[1], form=form, n_context_dims=width)
        parts.append(empty.update(X[some], None, own, attended))
    return sum(parts)
