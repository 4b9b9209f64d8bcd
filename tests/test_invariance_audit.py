"""Audits: the least risk is the rational one, and figures and words change as theory says."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st

import polyattn as pa
from exact_cases import Case, draw
from exact_judge import Judge
from exact_least_squares import nearest
from invariances import few_and_many, hold, numbers_of_cases, seeds
from polyattn.certify.minimiser import minimise
from polyattn.form import Form
from polyattn.stats.rows import Rows

#: Solvers whose fits an audit calls optimal.
ACCURATE = ("auto", "primal", "dual", "direct", "factor")

powers = st.integers(-30, 30)


def unpenalised(number: int) -> Case:
    """A case without a ridge, of a clear rank."""
    case = replace(draw(number), ridge=0.0)
    while Judge(case).condition > 1e4:
        case = replace(draw(case.number + 1), ridge=0.0)
    return case


def audit(layer, case: Case) -> pa.Audit:
    return pa.audit(layer, case.X, case.targets, sample_weight=case.weights)


def check_minimiser(number: int) -> None:
    case = unpenalised(number)
    rows = Rows.build(case.X, case.targets, Form(case.mode, bias=case.bias), case.weights)
    found = minimise(rows)
    risk = nearest(case.exact.risk)
    assert found.rank == case.exact.rank, case.number
    assert abs(found.risk - risk) <= found.rounding, (case.number, found.risk, risk)
    size = float(np.sum(case.row_weights[:, None] * case.rows**2) / np.sum(case.row_weights))
    assert found.rounding <= 1e-6 * size, case.number


@few_and_many
def test_the_least_risk_is_the_rational_one(examples):
    hold(check_minimiser, examples, number=numbers_of_cases)


@pytest.mark.parametrize("number", [853, 1703, 2056, 2083, 2192, 3340])
def test_dependent_coordinates_leave_no_doubt_about_the_risk(number):
    """Rounding in few columns was taken for a small but independent one."""
    check_minimiser(number)


def check_optimal(number: int) -> None:
    case = unpenalised(number)
    for solver in ACCURATE:
        found = audit(case.fit(solver), case)
        assert found.consistent, (case.number, solver, str(found))
        assert "optimal up to rounding" in found.sentence, (case.number, solver, str(found))


@few_and_many
def test_fits_are_optimal_up_to_rounding(examples):
    hold(check_optimal, examples, number=numbers_of_cases)


def some_layer(case: Case, rng: np.random.Generator) -> pa.LinearAttention:
    """A layer that is not the optimum, with outputs of the size of the targets."""
    width, n_outputs = case.X[0].shape[1] + case.bias, case.rows.shape[1]
    attn, value = rng.standard_normal((2, width, width)), rng.standard_normal((2, width, n_outputs))
    size = max(float(np.abs(x).max()) for x in case.X) or 1.0
    return pa.LinearAttention(
        attn / size**2, value / size * np.abs(case.rows).max(), case.mode, case.bias
    )


def words(found: pa.Audit) -> tuple:
    """What an audit says without its figures."""
    text = found.sentence
    return (
        "optimal up to rounding" in text, "could be better" in text, found.consistent,
        found.certificate.verdict,
    )  # fmt: skip


def check_scaled(number: int, tokens: int, targets: int, seed: int) -> None:
    case = next(c for c in map(unpenalised, range(number, number + 100)) if not c.bias)
    layer = some_layer(case, np.random.default_rng(seed))
    changed = replace(
        case, X=[np.ldexp(x, tokens) for x in case.X], rows=np.ldexp(case.rows, targets)
    )
    scaled = pa.LinearAttention(
        np.ldexp(layer.attn, -2 * tokens), np.ldexp(layer.value, targets - tokens), layer.mode
    )
    one, other = audit(layer, case), audit(scaled, changed)
    assert words(one) == words(other), case.number
    rounding = one.rounding + np.ldexp(other.rounding, -2 * targets)
    for name in ("risk", "optimal_risk", "gap"):
        first, second = getattr(one, name), float(np.ldexp(getattr(other, name), -2 * targets))
        assert abs(first - second) <= rounding, (case.number, name)
    distance = float(np.ldexp(other.distance, 3 * tokens - targets))
    assert one.distance == pytest.approx(distance, rel=1e-6), case.number


@few_and_many
def test_figures_have_the_units_of_the_data(examples):
    hold(check_scaled, examples, number=numbers_of_cases, tokens=powers, targets=powers, seed=seeds)


def test_a_layer_that_is_not_optimal_is_seen():
    """Negative control."""
    case = unpenalised(0)
    found = audit(some_layer(case, np.random.default_rng(0)), case)
    assert "could be better" in found.sentence
    assert found.gap > found.rounding
