"""The optimum that audits compare with, which must not need the solvers."""

import numpy as np
import pytest

import polyattn as pa
from audit_tasks import NOISE, ragged, task
from planted import KINDS, problem, relative_error
from polyattn.certify import minimiser
from polyattn.certify.minimiser import excess_risk, minimise
from polyattn.errors import InvalidInput, OutOfRange
from polyattn.form import Form
from polyattn.sequences import MODES
from polyattn.stats.rows import Rows


@pytest.mark.parametrize(
    ("mode", "noise"), [("last", 0.0), ("last", NOISE), ("causal", NOISE), ("full", NOISE)]
)
@pytest.mark.parametrize("kind", KINDS)
def test_the_minimiser_is_the_planted_one(kind, mode, noise, monkeypatch):
    known = problem(kind, mode, noise=noise)
    rows = Rows.build(known.X, known.Y, Form(mode))
    monkeypatch.setattr(minimiser, "FACTORED_NUMBERS", 0)
    for found, squared in [
        (minimise(rows), False),
        (minimise(pa.TriangularFactor.of(rows)), False),
        (minimise(pa.Moments.of(rows)), True),
        (minimiser._from_kernel(rows), True),
    ]:
        assert found.rank == known.rank
        assert relative_error(found.coef, known.coef) < known.tolerance(squared)
        assert abs(found.risk - known.risk) <= found.rounding


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_it_agrees_with_fit(mode, bias):
    X, Y, _ = task(mode, bias=bias)
    weights = np.random.default_rng(1).uniform(0, 2, len(X)).round()
    for sample_weight in (None, weights):
        found = minimise(Rows.build(X, Y, Form(mode, bias=bias), sample_weight))
        fitted = pa.fit(X, Y, mode, bias=bias, sample_weight=sample_weight)
        assert relative_error(found.coef, fitted.coef) < 1e-8
        assert abs(found.risk - fitted.risk) <= found.rounding


@pytest.mark.parametrize("mode", MODES)
def test_it_agrees_with_fit_on_ragged_sequences(mode):
    X, Y = ragged(mode)
    fitted = pa.fit(X, Y, mode)
    assert relative_error(minimise(Rows.build(X, Y, Form(mode))).coef, fitted.coef) < 1e-8


def test_coordinates_of_different_units_keep_their_rank():
    X, Y, _ = task()
    scaled = X * [1e5, 1.0, 1e-5]
    found = minimise(Rows.build(scaled, Y, Form("causal")))
    assert found.rank == 18
    assert found.risk == pytest.approx(pa.fit(X, Y, "causal").risk, rel=1e-9)


def test_extreme_scales_come_back_in_their_units():
    X, Y, _ = task()
    plain = minimise(Rows.build(X, Y, Form("causal")))
    rows = Rows.build(np.ldexp(X, 60), np.ldexp(Y, -70), Form("causal"))
    for source in (rows, pa.Moments.of(rows)):
        found = minimise(source)
        assert relative_error(np.ldexp(found.coef, 70 + 180), plain.coef) < 1e-12
        assert found.risk == pytest.approx(np.ldexp(plain.risk, -140), rel=1e-9)
    with pytest.raises(OutOfRange, match="divide targets"):
        minimise(Rows.build(X, np.ldexp(Y, 600), Form("causal")))


def test_wide_tokens_go_through_the_kernel(monkeypatch):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((40, 4, 64)), rng.standard_normal((40, 1))
    monkeypatch.setattr(pa.TriangularFactor, "of", None)
    found = minimise(Rows.build(X, Y, Form("last")))
    assert found.rank == 40
    assert relative_error(found.coef, pa.fit(X, Y, solver="dual").coef) < 1e-8


def test_a_doubtful_kernel_gives_way_to_the_factor():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((12, 2, 4))
    X[1] = X[0] + 1e-6 * X[1]
    Y = pa.data.random_layer(4, 1, mode="last")(X)
    found = minimise(Rows.build(X, Y, Form("last")))
    assert found.rank == 12
    assert relative_error(found.coef, pa.fit(X, Y, solver="direct").coef) < 1e-8


def test_what_does_not_fit_is_refused_before_any_work(monkeypatch):
    monkeypatch.setattr(minimiser, "MOST_COLUMNS", 16)
    X, Y, _ = task()
    with pytest.raises(InvalidInput, match=r"600 predicted positions with 18 features"):
        minimise(Rows.build(X, Y, Form("causal")))


@pytest.mark.parametrize("kind", [pa.Moments, pa.TriangularFactor])
def test_the_excess_is_the_difference_of_risks(kind):
    X, Y, layer = task()
    statistics = kind(3, 2, "causal").update(X, Y)
    best, shrunk = pa.fit(X, Y, "causal"), pa.fit(X, Y, "causal", ridge=10.0)
    assert excess_risk(best.coef, statistics) < 1e-24
    assert excess_risk(shrunk.coef, statistics) == pytest.approx(shrunk.risk - best.risk, rel=1e-9)
    risk = np.mean(np.sum((layer(X) - Y) ** 2, axis=-1))
    assert excess_risk(layer.coef, statistics) == pytest.approx(risk - best.risk, rel=1e-9)


@pytest.mark.parametrize("kind", [pa.Moments, pa.TriangularFactor])
def test_errors_outside_the_span_of_the_features_are_no_rounding(kind):
    """Tokens in a plane: most of the targets is out of reach, and that is known exactly."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4, 2)) @ rng.standard_normal((2, 3))
    found = minimise(kind(3, 1).update(X, rng.standard_normal((60, 1))))
    assert found.rank == 6
    assert found.rounding < 1e-11 * found.risk


@pytest.mark.parametrize("kind", [pa.Moments, pa.TriangularFactor])
@pytest.mark.parametrize("scale", [2.0**-60, 2.0**60])
def test_the_excess_risk_does_not_depend_on_the_units_of_tokens(kind, scale):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((60, 4, 2)), rng.standard_normal((60, 2))
    coef = rng.standard_normal((2, 3, 2))
    expected = excess_risk(coef, kind(2, 2).update(X, Y))
    found = excess_risk(coef / scale**3, kind(2, 2).update(scale * X, Y))
    assert found == pytest.approx(expected, rel=1e-12)
    zeros = kind(2, 2).update(0 * X, Y)
    assert excess_risk(coef, zeros) == 0.0


def test_sizes_up_to_the_limit_are_minimised(monkeypatch):
    rng = np.random.default_rng(0)
    rows = Rows.build(rng.standard_normal((60, 4, 2)), rng.standard_normal((60, 1)), Form("last"))
    monkeypatch.setattr(minimiser, "MOST_COLUMNS", 6)
    assert minimise(rows).rank == 6
    monkeypatch.setattr(minimiser, "MOST_COLUMNS", 5)
    with pytest.raises(pa.errors.InvalidInput):
        minimise(rows)
