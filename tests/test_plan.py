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
    "few rows": (100, 16, 16, "direct"),
    "many rows, wide": (8192, 64, 64, "dual"),
    "few rows, very wide": (1000, 64, 1, "dual"),
    "few rows, features that would take long": (1024, 16, 1, "dual"),
    "fewer rows than features, both many": (30_000, 64, 1, "iterative"),
    "tall and wide": (100_000, 32, 1, "iterative"),
    "tall and nearly wide": (100_000, 19, 1, "primal"),
    "one row": (1, 1, 1, "primal"),
}


def features(n_dims):
    return n_dims * n_dims * (n_dims + 1) // 2


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
    p = features(24)
    assert 8 * p * p < made["primal"].bytes < 8 * 8 * p * p
    assert 8 * 50_000**2 <= made["dual"].bytes < 8 * 8 * 50_000**2
    assert 8 * p * p < made["direct"].bytes < 8 * 50_000 * p
    assert made["iterative"].bytes < made["primal"].bytes * 10
    # What fits nowhere is refused; what does not fit, but another does, is estimated.
    with pytest.raises(InvalidInput, match="do not fit"):
        pa.solve.plan(10**6, 20_000)
    made = {each.solver: each for each in pa.solve.plan(10**9, 24).others}
    assert not made["dual"].is_fit
    wide = {each.solver: each for each in pa.solve.plan(1000, 64).others}
    assert wide["direct"].bytes >= 8 * 1000 * features(64)
    # Estimates are numbers at any size.
    for n_rows in (1, 2, 7, 10**12):
        for each in pa.solve.plan(n_rows, 2, n_tokens=3, n_workers=5).others:
            assert 0.0 < each.seconds < np.inf
            assert min(each.steps.values()) >= 0.0


def test_tokens_count_where_they_are_known():
    without, few, many = (pa.solve.plan(1000, 4, n_tokens=n) for n in (None, 10, 1000))
    assert without.steps["reading"] == without.steps["summaries"] == 0.0
    assert many.steps["reading"] == pytest.approx(100 * few.steps["reading"])
    assert many.steps["summaries"] == pytest.approx(100 * few.steps["summaries"])
    assert many.steps["sums"] == few.steps["sums"] == without.steps["sums"]
    # In other modes each token is a row; in mode full rows share their sums.
    causal = pa.solve.plan(1000, 4, n_tokens=10, form=pa.Form(mode="causal"))
    assert causal.steps["reading"] == pytest.approx(few.steps["reading"] / 10)
    plans = [pa.solve.plan(100_000, 24, form=pa.Form(mode=mode)) for mode in ("causal", "full")]
    assert [made.solver for made in plans] == ["iterative", "primal"]
    # A bias is a coordinate, and a context has its own.
    wider, other = pa.solve.plan(1000, 4, bias=True), pa.solve.plan(1000, 5)
    assert (wider.bytes, wider.seconds) == (other.bytes, other.seconds)
    assert pa.solve.plan(1000, 4, form=pa.Form(), n_context_dims=2).seconds < wider.seconds


def test_workers_share_all_but_the_solution():
    alone, shared = (pa.solve.plan(10**9, 16, n_tokens=100, n_workers=n) for n in (1, 32))
    for name in ("reading", "summaries", "sums"):
        assert shared.steps[name] == pytest.approx(alone.steps[name] / 32)
    assert shared.steps["solution"] == alone.steps["solution"]
    assert alone.steps["exchange"] == 0.0 < shared.steps["exchange"]
    assert (alone.worker_bytes, shared.n_workers) == (0, 32)
    # Each holds two partial sums of p^2 / 4 numbers, and outputs.
    assert shared.worker_bytes == pytest.approx(8 * 2 * features(16) ** 2 / 4, rel=0.01)
    # There are 64 stretches: of 48 workers some have two, of 1000 most have none.
    for n_workers, busy in ((48, 32), (1000, 64)):
        made = pa.solve.plan(10**9, 16, n_tokens=100, n_workers=n_workers)
        assert made.steps["sums"] == pytest.approx(alone.steps["sums"] / busy)
    # Workers keep their part of the summaries.
    alone, shared = (pa.solve.plan(10**5, 32, 1, "iterative", n_workers=n) for n in (1, 4))
    assert shared.worker_bytes < 0.5 * alone.bytes


def test_passes_read_again_what_does_not_fit():
    kept, long, longer = (
        pa.solve.plan(n, 32, 1, "iterative", n_tokens=1000) for n in (10**4, 10**10, 2 * 10**10)
    )
    assert kept.steps["rereading"] == 0.0 < long.steps["rereading"]
    assert longer.steps["rereading"] == pytest.approx(2 * long.steps["rereading"], rel=0.01)
    shared = pa.solve.plan(10**10, 32, 1, "iterative", n_tokens=1000, n_workers=8)
    assert shared.steps["rereading"] == pytest.approx(long.steps["rereading"] / 8)
    # Sums are made in one pass.
    assert pa.solve.plan(10**10, 16, 1, "primal", n_tokens=10).steps["rereading"] == 0.0


def test_misuse_is_named():
    for wrong in (
        {"n_rows": 0}, {"n_rows": 10.5}, {"n_dims": 0}, {"n_outputs": 0}, {"n_tokens": 0},
        {"n_workers": 0}, {"solver": "magic"},
    ):  # fmt: skip
        with pytest.raises(InvalidInput, match=next(iter(wrong))):
            pa.solve.plan(**{"n_rows": 10, "n_dims": 3} | wrong)
