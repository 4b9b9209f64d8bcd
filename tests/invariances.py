"""Changes of a least-squares problem whose effect on the answer is known.

Each takes a case and gives the changed case and the way back: what an answer to the changed case
says of the original one.  So the answer to any change of a problem is judged by the exact optimum
of the problem itself.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from exact_cases import Case, draw
from exact_judge import Answer

#: Of a property the fast suite sees a few examples, the slow one many.
few_and_many = pytest.mark.parametrize(
    "examples", [6, pytest.param(150, marks=pytest.mark.slow)], ids=["few", "many"]
)

numbers_of_cases = st.integers(0, 1_000_000)
seeds = st.integers(0, 2**32 - 1)
factors = st.floats(-12, 12).map(lambda digits: float(10.0**digits))
signed_factors = st.tuples(factors, st.sampled_from([-1.0, 1.0])).map(
    lambda pair: pair[0] * pair[1]
)

Back = Callable[[Answer], Answer]


def hold(check: Callable[..., None], examples: int, **drawn: st.SearchStrategy) -> None:
    """Check a property for so many drawn examples.

    Cases are numbered, so there is nothing to shrink, and nothing to remember.
    """

    @settings(
        max_examples=examples, deadline=None, database=None,
        suppress_health_check=list(HealthCheck), phases=(Phase.explicit, Phase.generate),
    )  # fmt: skip
    @given(**drawn)
    def holds(**values) -> None:
        check(**values)

    holds()


@dataclass(frozen=True)
class Change:
    """A change of a case, and which cases it is about."""

    name: str
    make: Callable[[Case, float, np.random.Generator], tuple[Case, Back]]
    applies: Callable[[Case], bool] = lambda _: True

    def case(self, number: int) -> Case:
        """The first case from this number on that the change is about."""
        return next(c for c in map(draw, range(number, number + 1000)) if self.applies(c))


def _same(answer: Answer) -> Answer:
    return answer


def _rows_of(case: Case, order: NDArray) -> NDArray:
    """Where the rows of the sequences, taken in this order, stand in the given order."""
    if case.mode == "last":
        return order
    starts = np.concatenate([[0], np.cumsum([len(x) for x in case.X])])
    return np.concatenate([np.arange(starts[i], starts[i + 1]) for i in order])


def _with_tokens(case: Case, change: Callable[[NDArray], NDArray], **more) -> Case:
    changed = {"X": [change(x) for x in case.X], "fresh": [change(x) for x in case.fresh]}
    return replace(case, **changed, **more)


def scale_tokens(case: Case, factor: float, _: np.random.Generator) -> tuple[Case, Back]:
    """Features are cubic, moments of sixth degree."""
    changed = _with_tokens(case, lambda x: x * factor, ridge=case.ridge * factor**6)
    return changed, lambda answer: replace(answer, coef=answer.coef * factor**3)


def scale_targets(case: Case, factor: float, _: np.random.Generator) -> tuple[Case, Back]:
    changed = replace(case, rows=case.rows * factor)
    return changed, lambda answer: replace(
        answer,
        outputs=answer.outputs / factor, fresh=answer.fresh / factor, coef=answer.coef / factor,
        risk=answer.risk / factor**2,
    )  # fmt: skip


def scale_weights(case: Case, factor: float, _: np.random.Generator) -> tuple[Case, Back]:
    weights = np.ones(len(case.X)) if case.weights is None else case.weights
    size = abs(factor)
    return replace(case, weights=weights * size, ridge=case.ridge * size), _same


def scale_one_coordinate(case: Case, factor: float, rng: np.random.Generator) -> tuple[Case, Back]:
    """Without a penalty the optimum does not know units; by up to four digits here."""
    scale = np.ones(case.X[0].shape[1])
    scale[rng.integers(len(scale))] = np.cbrt(factor)
    return _with_tokens(case, lambda x: x * scale, units=True), _without_coef


def rotate(case: Case, _: float, rng: np.random.Generator) -> tuple[Case, Back]:
    """The norm of T does not change under rotations, with a reflection or without."""
    n_dims = case.X[0].shape[1]
    rotation = np.linalg.qr(rng.standard_normal((n_dims, n_dims)))[0]
    return _with_tokens(case, lambda x: x @ rotation), _without_coef


def permute_coordinates(case: Case, _: float, rng: np.random.Generator) -> tuple[Case, Back]:
    order = rng.permutation(case.X[0].shape[1])
    return _with_tokens(case, lambda x: x[:, order]), _without_coef


def append_zero_coordinate(case: Case, _: float, __: np.random.Generator) -> tuple[Case, Back]:
    """The minimiser of least norm has no coefficient for what is always zero."""

    def longer(x: NDArray) -> NDArray:
        return np.pad(x, ((0, 0), (0, 1)))

    return _with_tokens(case, longer), lambda a: replace(_without_coef(a), rank=a.rank)


def permute_sequences(case: Case, _: float, rng: np.random.Generator) -> tuple[Case, Back]:
    order = rng.permutation(len(case.X))
    rows = _rows_of(case, order)
    weights = None if case.weights is None else case.weights[order]
    changed = replace(case, X=[case.X[i] for i in order], rows=case.rows[rows], weights=weights)

    def back(answer: Answer) -> Answer:
        outputs = np.empty_like(answer.outputs)
        outputs[rows] = answer.outputs
        return replace(answer, outputs=outputs)

    return changed, back


def reorder_earlier_tokens(case: Case, _: float, rng: np.random.Generator) -> tuple[Case, Back]:
    """A layer that predicts the last token sees the others only as a set."""

    def shuffled(x: NDArray) -> NDArray:
        return np.concatenate([rng.permutation(x[:-1]), x[-1:]])

    return _with_tokens(case, shuffled), _same


def double_sequences(case: Case, _: float, __: np.random.Generator) -> tuple[Case, Back]:
    """Every sequence twice, with half of the weight."""
    weights = np.ones(len(case.X)) if case.weights is None else case.weights
    changed = replace(
        case, X=case.X * 2, rows=np.concatenate([case.rows] * 2),
        weights=np.concatenate([weights, weights]) / 2,
    )  # fmt: skip
    return changed, lambda answer: replace(answer, outputs=answer.outputs[: len(case.rows)])


def repeat_for_weight_two(case: Case, _: float, rng: np.random.Generator) -> tuple[Case, Back]:
    """A sequence of weight 2 w is that sequence twice."""
    weights = np.ones(len(case.X)) if case.weights is None else case.weights
    i = int(rng.integers(len(case.X)))
    halved = weights.copy()
    halved[i] /= 2
    own = _rows_of(case, np.array([i]))
    changed = replace(
        case, X=[*case.X, case.X[i]], rows=np.concatenate([case.rows, case.rows[own]]),
        weights=np.append(halved, halved[i]),
    )  # fmt: skip
    return changed, lambda answer: replace(answer, outputs=answer.outputs[: len(case.rows)])


def add_rows_of_weight_zero(case: Case, _: float, rng: np.random.Generator) -> tuple[Case, Back]:
    weights = np.ones(len(case.X)) if case.weights is None else case.weights
    i = int(rng.integers(len(case.X)))
    own = _rows_of(case, np.array([i]))
    other = rng.standard_normal(case.rows[own].shape) * np.abs(case.rows).max()
    changed = replace(
        case, X=[*case.X, case.X[i][::-1]], rows=np.concatenate([case.rows, other]),
        weights=np.append(weights, 0.0),
    )  # fmt: skip
    return changed, lambda answer: replace(answer, outputs=answer.outputs[: len(case.rows)])


def _without_coef(answer: Answer) -> Answer:
    return replace(answer, coef=None)


def _is_unpenalised_and_unique(case: Case) -> bool:
    return case.ridge == 0 and case.exact.rank == case.exact.psi.ncols()


CHANGES = (
    Change("tokens x c", scale_tokens, lambda case: not case.bias),
    Change("targets x c", scale_targets),
    Change("weights x c", scale_weights),
    Change("one coordinate x c", scale_one_coordinate, _is_unpenalised_and_unique),
    Change("rotation", rotate, lambda case: not case.units),
    Change("coordinates permuted", permute_coordinates),
    Change("a zero coordinate", append_zero_coordinate),
    Change("sequences permuted", permute_sequences),
    Change("earlier tokens permuted", reorder_earlier_tokens, lambda case: case.mode == "last"),
    Change("sequences doubled", double_sequences),
    Change("repeated for weight two", repeat_for_weight_two),
    Change("rows of weight zero", add_rows_of_weight_zero),
)


def parts_of(case: Case, cuts: list[int]) -> Iterator[tuple]:
    """Consecutive parts of a case as (X, targets, weights), none of them empty."""
    borders = [0, *sorted({cut % len(case.X) for cut in cuts} - {0}), len(case.X)]
    for first, stop in pairwise(borders):
        weights = None if case.weights is None else case.weights[first:stop]
        yield case.X[first:stop], case.targets[first:stop], weights


def in_parts(case: Case, make: type, cuts: list[int], merged: bool):
    """Statistics of the case from consecutive parts: by updates, or by adding statistics."""
    new = partial(make, case.X[0].shape[1], case.rows.shape[1], case.mode, case.bias)
    total = new()
    for part in parts_of(case, cuts):
        total = total + new().update(*part) if merged else total.update(*part)
    return total
