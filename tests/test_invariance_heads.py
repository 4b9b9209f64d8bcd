"""The layer of a fit computes what the fit predicts, whatever the sizes of coordinates.

``result.layer`` is written with few heads; what that loses is judged in outputs, on the data.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import strategies as st

import polyattn as pa
from exact_cases import draw
from invariances import few_and_many, hold, numbers_of_cases
from planted import EPS
from polyattn.model.compare import coefficient_distance

#: A fit states that its heads lose no more than this of the outputs.
MOST_LOST = 1e-5


def rows_of(outputs) -> np.ndarray:
    return np.concatenate([np.atleast_2d(x) for x in outputs])


def discrepancy(result: pa.FitResult, X) -> float:
    """max |layer(X) - predict(X)| beside the largest output, less what rounding leaves."""
    predicted = rows_of(result.predict(X))
    difference = np.abs(rows_of(result.layer(X)) - predicted)
    unsigned = replace(result, coef=np.abs(result.coef)).predict([np.abs(x) for x in X])
    rounding = 1e3 * EPS * float(rows_of(unsigned).max())
    largest = float(np.abs(predicted).max())
    return max(0.0, float(difference.max()) - rounding) / (largest or 1.0)


def check_layer(number: int, n_heads, most_dims: int = 3) -> None:
    case = next(
        c for c in map(draw, range(number, number + 100))
        if c.X[0].shape[1] + c.bias <= most_dims
    )  # fmt: skip
    result = pa.fit(
        case.X, case.targets, case.mode, case.ridge, n_heads, bias=case.bias,
        sample_weight=case.weights,
    )  # fmt: skip
    lost = discrepancy(result, case.X)
    if n_heads is None:
        assert result.heads.lost <= MOST_LOST, case.number
        assert lost <= max(10 * result.heads.lost, 1e-9), (case.number, lost, result.heads.lost)
    else:
        # Limited heads are the fit: prediction and layer are one function.
        assert lost <= 1e-9, (case.number, lost)


@few_and_many
@pytest.mark.parametrize("n_heads", [None, 1])
def test_the_layer_computes_what_the_fit_predicts(examples, n_heads):
    most_dims = 2 if examples < 10 else 3  # wider tokens: longer searches, and fewer
    check = partial(check_layer, n_heads=n_heads, most_dims=most_dims)
    hold(check, min(examples, 40), number=numbers_of_cases)


@pytest.mark.parametrize("size", [1e-5, 1e-3, 1e3, 1e5])
def test_a_coordinate_in_other_units_does_not_spoil_the_layer(size):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((100, 5, 3)), rng.standard_normal((100, 1))
    X[..., 2] *= size
    result = pa.fit(X, Y)
    assert result.outcome.name == "unique"
    assert discrepancy(result, X) <= 1e-9
    assert discrepancy(result, X) <= max(10 * result.heads.lost, 1e-12)


@pytest.mark.parametrize("size", [1e-4, 1e4])
def test_limited_heads_fit_the_data_in_any_units(size):
    """The best layer with one head fits as well when one coordinate is in other units."""
    rng = np.random.default_rng(0)
    truth = pa.data.random_layer(2, n_heads=1, n_outputs=2, mode="last", random_state=1)
    X = rng.standard_normal((100, 5, 2))
    Y = truth(X) + 0.1 * rng.standard_normal((100, 2))
    plain = pa.fit(X, Y, n_heads=1)
    X[..., 1] *= size
    other = pa.fit(X, Y, n_heads=1)
    assert other.risk <= plain.risk * 1.01
    loss = float(np.mean(np.sum((Y - other.layer(X)) ** 2, axis=1)))
    assert loss == pytest.approx(other.risk, rel=1e-6)


def check_heads_scale_with_the_tokens(power, seed) -> None:
    """As many heads for tokens of any size, and the same function."""
    rng = np.random.default_rng(seed)
    truth = pa.data.random_layer(2, n_heads=2, mode="last", random_state=seed)
    X = rng.standard_normal((40, 4, 2))
    Y = truth(X)
    one, other = pa.fit(X, Y), pa.fit(np.ldexp(X, power), Y)
    assert one.layer.n_heads == other.layer.n_heads
    scaled = pa.LinearAttention(
        np.ldexp(other.layer.attn, 2 * power), np.ldexp(other.layer.value, power)
    )
    assert pa.same_function(one.layer, scaled, 1e-8)
    assert coefficient_distance(one.layer, scaled) <= 1e-8 * np.linalg.norm(one.coef)


@few_and_many
def test_heads_scale_with_the_tokens(examples):
    hold(
        check_heads_scale_with_the_tokens,
        examples,
        power=st.integers(-60, 60),
        seed=st.integers(0, 1000),
    )


def test_the_discrepancy_sees_a_wrong_layer():
    """Negative control: heads that lose a millionth are noticed."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((60, 4, 2)), rng.standard_normal((60, 1))
    result = pa.fit(X, Y)
    assert discrepancy(result, X) < 1e-9
    wrong = replace(result, coef=result.coef * (1 + 1e-6))
    vars(wrong)["layer"] = result.layer
    assert discrepancy(wrong, X) > 1e-7
