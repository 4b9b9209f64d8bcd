"""``pa.solve.plan``: what every solver would take, and which is taken."""

import numpy as np
import pytest

import polyattn as pa
from polyattn.errors import InvalidInput

SOLVERS = ("primal", "direct", "dual", "iterative")
RNG = np.random.default_rng(0)

PLANS = {
    # rows, width, outputs -> solver; none needs more than 2 GB
    "tall": (10_000, 8, 8, "primal"),
    "just tall": (288, 8, 1, "primal"),
    "one row short": (287, 8, 1, "direct"),
    "few rows, very wide": (1000, 64, 1, "dual"),
    "few rows, features that would take long": (1024, 16, 1, "dual"),
    "fewer rows than features, both many": (30_000, 64, 1, "iterative"),
    "tall and wide": (100_000, 32, 1, "iterative"),
    "tall, with features few enough for exact sums": (1_000_000, 16, 1, "primal"),
    "one row": (1, 1, 1, "primal"),
}


def test_the_plan_chooses_by_size():
    chosen = {name: pa.solve.plan(*sizes).solver for name, (*sizes, _) in PLANS.items()}
    assert chosen == {name: solver for name, (*_, solver) in PLANS.items()}


def test_every_solver_is_estimated_and_the_cheapest_taken_by_fit_too():
    for n_rows, n_dims in ((3000, 16), (200, 3), (40, 3), (300, 20)):
        made = pa.solve.plan(n_rows, n_dims)
        assert {each.solver for each in made.others} == set(SOLVERS)
        chosen = next(each for each in made.others if each.solver == made.solver)
        assert (made.seconds, made.bytes) == (chosen.seconds, chosen.bytes)
        assert made.seconds == pytest.approx(sum(made.steps.values()))
        cheaper = [each for each in made.others if each.is_fit and each.seconds < made.seconds]
        # The iteration knows no rank; features in memory that take no time are most accurate.
        assert {each.solver for each in cheaper} <= {"iterative"} or made.solver == "direct"
        if n_rows < 1000:
            X, Y = RNG.standard_normal((n_rows, 2, n_dims)), RNG.standard_normal((n_rows, 1))
            assert pa.fit(X, Y, try_exact=False).solver == made.solver
    for solver in SOLVERS:
        assert pa.solve.plan(10, 3, 1, solver).solver == solver
        assert pa.fit(X[:10], Y[:10], solver=solver).solver == solver


def test_memory_is_what_each_way_has_to_hold():
    made = {each.solver: each for each in pa.solve.plan(50_000, 24, 3).others}
    p = 24 * 24 * 25 // 2
    assert 8 * p * p < made["primal"].bytes < 8 * 8 * p * p
    assert 8 * 50_000**2 <= made["dual"].bytes < 8 * 8 * 50_000**2
    assert 8 * p * p < made["direct"].bytes < 8 * 50_000 * p
    # Descents hold coefficients, gradient, step, direction and product; workers half of the sums.
    descents = pa.solve.plan(10**9, 24, 100, "iterative")
    assert 5 * 8 * 100 * p <= descents.bytes < 15 * 8 * 100 * p
    shared = pa.solve.plan(10**9, 24, 1, "primal", n_workers=32)
    assert 8 * p * p // 2 <= shared.worker_bytes < 8 * p * p
    assert ("32 workers" in str(shared), "worker" in str(descents)) == (True, False)
    # What fits nowhere is refused; what does not fit, but another does, is estimated.
    with pytest.raises(InvalidInput, match="do not fit"):
        pa.solve.plan(10**6, 20_000)
    made = {each.solver: each for each in pa.solve.plan(10**9, 24).others}
    assert not made["dual"].is_fit


def test_tokens_and_workers_count_where_they_are_known():
    without, few, many = (pa.solve.plan(10**9, 16, n_tokens=n) for n in (None, 10, 1000))
    shared = pa.solve.plan(10**9, 16, n_tokens=10, n_workers=32)
    for step in ("reading", "summaries"):
        assert without.steps[step] == 0.0
        assert many.steps[step] == pytest.approx(100 * few.steps[step])
        assert shared.steps[step] == pytest.approx(few.steps[step] / 32)
    assert shared.steps["solution"] == few.steps["solution"]
    assert few.steps["exchange"] == 0.0 < shared.steps["exchange"]
    # Passes of an iteration read again what does not fit.
    kept, long = (pa.solve.plan(n, 32, 1, "iterative", n_tokens=1000) for n in (10**4, 10**10))
    assert kept.steps["rereading"] == 0.0 < long.steps["rereading"]
    # In mode full rows share their sums; a bias is a coordinate.
    plans = [pa.solve.plan(100_000, 24, form=pa.Form(mode=mode)) for mode in ("causal", "full")]
    assert [made.solver for made in plans] == ["iterative", "primal"]
    wider, other = pa.solve.plan(1000, 4, bias=True), pa.solve.plan(1000, 5)
    assert (wider.bytes, wider.seconds) == (other.bytes, other.seconds)


def test_work_is_counted_in_products():
    """Those of docs/derivations/iteration.md, up to the speed of each kind."""

    def steps(solver, *size):
        return {each.solver: each.steps for each in pa.solve.plan(*size).others}[solver]

    m, r, p = 64 * 65 // 2, 64, 64**2 * 65 // 2
    for solver, sizes, products in (
        ("primal", [(10**6, 16), (10**6, 64)], [(16**2 * 17 // 2) ** 3, p**3]),
        ("dual", [(n, 64) for n in (2000, 9000)], [n**2 * m / 2 + n**3 / 6 for n in (2000, 9000)]),
    ):
        few, many = (steps(solver, *size)["solution"] for size in sizes)
        assert many / few == pytest.approx(products[1] / products[0])
    # A pass takes 2 N p for each output, and 2 p (m + r) for its change of coordinates.
    one, two = (steps("iterative", 10**7, 64, n_outputs) for n_outputs in (1, 2))
    more = {step: two[step] - one[step] for step in one}
    assert more["solution"] / more["sums"] == pytest.approx((m + r) / 10**7)


def test_misuse_is_named():
    for wrong in ({"n_rows": 0}, {"n_rows": 10.5}, {"n_tokens": 0}, {"n_workers": 0}):
        with pytest.raises(InvalidInput, match=next(iter(wrong))):
            pa.solve.plan(**{"n_rows": 10, "n_dims": 3} | wrong)
