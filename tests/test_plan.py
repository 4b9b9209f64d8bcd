"""The plan: which solver is taken, by size, memory or name."""

import os

import numpy as np
import pytest

import planted
import polyattn as pa
from polyattn.errors import InvalidInput
from polyattn.form.layout import Layout
from polyattn.quoting import readable_seconds
from polyattn.reference import erm
from polyattn.solve import costs, plan, planning, solvers, solving
from polyattn.stats.rows import Rows

GIB = 1 << 30

PLANS = {
    # rows, width, outputs, memory limit -> solver, a word of the reason
    "tall": (10_000, 8, 8, 12 * GIB, "primal", "p x p"),
    "just tall": (288, 8, 1, 12 * GIB, "primal", "288 rows for 288 features"),
    "one row short": (287, 8, 1, 12 * GIB, "direct", "287 rows for 288 features"),
    "few rows": (100, 16, 16, 12 * GIB, "direct", "few enough to hold"),
    "many rows, wide": (8192, 64, 64, 12 * GIB, "dual", "N x N"),
    "few rows, very wide": (1000, 64, 1, 12 * GIB, "dual", "N x N"),
    "few rows, features that would take long": (1024, 16, 1, 12 * GIB, "dual", "N x N"),
    "tall, no memory for p x p": (20_000, 32, 1, 4 * GIB, "iterative", "dual would take about"),
    "fewer rows than features, both many": (30_000, 64, 1, 12 * GIB, "iterative", "dual would"),
    "neither fits": (1_000_000, 32, 1, 4 * GIB, "iterative", "fit into"),
    "tall and wide": (100_000, 32, 1, 32 * GIB, "iterative", "primal would take about"),
    "tall and wide, many outputs": (100_000, 32, 32, 32 * GIB, "primal", "p x p"),
    "tall and wide, just tall": (20_000, 32, 1, 32 * GIB, "primal", "p x p"),
    "tall and nearly wide": (100_000, 19, 1, 32 * GIB, "primal", "p x p"),
    "a kernel that would take longer": (40_000, 32, 1, 16 * GIB, "iterative", "times as long"),
    "one row": (1, 1, 1, GIB, "primal", "1 row for 1 feature"),
}


@pytest.mark.parametrize("name", PLANS)
def test_the_plan_chooses_by_size_and_says_why(monkeypatch, name):
    n_rows, width, n_outputs, limit, solver, reason = PLANS[name]
    monkeypatch.setattr(planning, "memory_limit", lambda: limit)
    chosen = plan(n_rows, width, n_outputs)
    assert chosen.solver == solver
    assert reason in chosen.reason
    assert str(chosen).startswith(f"{solver}: ")
    assert 0 < chosen.bytes <= limit
    assert "about" in str(chosen)


def test_the_plan_refuses_what_fits_nowhere(monkeypatch):
    monkeypatch.setattr(planning, "memory_limit", lambda: GIB)
    with pytest.raises(InvalidInput, match=r"do not fit into 1 GB.*(reduce|one by one)"):
        plan(10**6, 256, 64)


@pytest.mark.parametrize("solver", solvers.SOLVERS)
def test_a_named_solver_is_kept(solver):
    chosen = plan(10, 3, 1, solver)
    assert (chosen.solver, chosen.reason) == (solver, "asked for by name")
    task = planted.problem("wide")
    assert pa.fit(task.X, task.Y, solver=solver).solver == solver


def test_the_plan_refuses_an_unknown_solver():
    with pytest.raises(ValueError, match=r"solver.*'primal'.*'magic'"):
        plan(10, 3, 1, "magic")


@pytest.mark.parametrize(
    ("limit", "solver"), [(GIB, "primal"), (8_000, "dual"), (6_000, "iterative"), (1_000, None)]
)
def test_fit_follows_the_plan(monkeypatch, limit, solver):
    """Less and less memory, the same optimum, and at the end a refusal."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((20, 4, 3)), rng.standard_normal((20, 2))  # 18 features
    monkeypatch.setattr(planning, "memory_limit", lambda: limit)
    if solver is None:
        with pytest.raises(InvalidInput, match="do not fit"):
            pa.fit(X, Y)
        return
    result = pa.fit(X, Y)
    assert result.solver == solver
    assert planted.relative_error(result.coef, erm.fit(list(X), Y, "last")) < 1e-8


def test_in_mode_full_rows_share_their_sums_and_moments_stay():
    plans = [plan(100_000, 32, form=pa.Form(mode=mode)).solver for mode in ("causal", "full")]
    assert plans[0] == "iterative"
    assert plans[1] != "iterative" or plan(100_000, 32).bytes > planning.memory_limit()


def test_an_iteration_that_stalls_is_given_up_for_sums(monkeypatch):
    task = planted.problem("tall", noise=1.0)
    monkeypatch.setattr(planning, "ITERATED_FEATURES", 1)
    monkeypatch.setattr(planning, "MUCH_FASTER", 0.0)
    assert pa.fit(task.X, task.Y).solver == "iterative"
    monkeypatch.setattr(solving, "PATIENCE", 0.1)
    assert pa.fit(task.X, task.Y).solver == "primal"


def test_a_norm_out_of_reach_is_left_to_sums(monkeypatch):
    """Features of very different size of which some depend on others: no iteration is enough."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((60, 4, 3)) * [1.0, 1.0, 1e-5], rng.standard_normal((60, 1))
    X[..., 1] = X[..., 0]
    monkeypatch.setattr(planning, "ITERATED_FEATURES", 1)
    monkeypatch.setattr(planning, "MUCH_FASTER", 0.0)
    assert pa.fit(X, Y).solver == "primal"
    assert "own metric" in str(pa.fit(X, Y, solver="iterative").outcome)


def test_sums_that_are_needed_are_made(monkeypatch):
    """A limited number of heads is weighed by the moments."""
    task = planted.problem("tall", noise=1.0)
    monkeypatch.setattr(planning, "ITERATED_FEATURES", 1)
    monkeypatch.setattr(planning, "MUCH_FASTER", 0.0)
    assert pa.fit(task.X, task.Y).solver == "iterative"
    assert pa.fit(task.X, task.Y, n_heads=1).solver == "primal"


def test_passes_grow_as_rows_come_near_the_features():
    passes = [costs.expected_passes(n_rows, 1000) for n_rows in (1e9, 4000, 2000, 1001)]
    assert passes[:2] == pytest.approx([30.0, 90.0], rel=1e-2)
    assert passes == sorted(passes)
    assert costs.expected_passes(1000, 1000) == float("inf")


def test_the_memory_limit_is_half_of_the_machine(monkeypatch):
    assert planning.memory_limit() > 1 << 28

    def unknown(_):
        raise OSError

    monkeypatch.setattr(os, "sysconf", unknown)
    assert planning.memory_limit() == 4 * GIB


@pytest.mark.parametrize("sizes", [(0, 3), (-5, 3), (10.5, 3), (10, 0), (10, 3, 0)])
def test_sizes_are_checked(sizes):
    with pytest.raises(InvalidInput, match="must be an integer of at least 1"):
        plan(*sizes)


def test_every_solver_is_estimated_and_the_cheapest_taken():
    made = plan(3000, 16)
    assert [each.solver for each in made.others] == list(solvers.SOLVERS)
    chosen = next(each for each in made.others if each.solver == made.solver)
    assert (made.seconds, made.bytes) == (chosen.seconds, chosen.bytes)
    assert made.seconds == sum(made.steps.values())
    assert made.seconds == min(each.seconds for each in made.others if each.solver != "iterative")
    assert str(chosen) in str(made)


def test_what_does_not_fit_is_estimated_all_the_same(monkeypatch):
    monkeypatch.setattr(planning, "memory_limit", lambda: GIB)
    made = plan(100_000, 32)
    fits = {each.solver: each.is_fit for each in made.others}
    assert fits == {"primal": False, "direct": False, "dual": False, "iterative": True}
    assert all(0 < each.seconds < float("inf") for each in made.others)


@pytest.mark.parametrize("n_rows", [1, 2, 6, 7, 100, 10**12])
def test_estimates_are_numbers_at_any_size(n_rows):
    for each in plan(n_rows, 2, n_tokens=3, n_workers=5).others:
        assert 0.0 < each.seconds < float("inf")
        assert min(each.steps.values()) >= 0.0


def test_tokens_count_where_they_are_known():
    without, few, many = (plan(1000, 4, n_tokens=n) for n in (None, 10, 1000))
    assert without.steps["reading"] == without.steps["summaries"] == 0.0
    assert many.steps["reading"] == pytest.approx(100 * few.steps["reading"])
    assert many.steps["sums"] == few.steps["sums"] == without.steps["sums"]
    # In other modes each token is a row.
    causal = plan(1000, 4, n_tokens=10, form=pa.Form(mode="causal"))
    assert causal.steps["reading"] == pytest.approx(few.steps["reading"] / 10)


def test_workers_share_all_but_the_solution():
    alone, shared = (plan(10**9, 16, n_tokens=100, n_workers=n) for n in (1, 32))
    for name in ("reading", "summaries", "sums"):
        assert shared.steps[name] == pytest.approx(alone.steps[name] / 32)
    assert shared.steps["solution"] == alone.steps["solution"]
    assert alone.steps["exchange"] == 0.0 < shared.steps["exchange"]
    assert (alone.worker_bytes, shared.n_workers) == (0, 32)
    # Each holds two partial sums of p^2 / 4 numbers, and outputs.
    assert shared.worker_bytes == pytest.approx(8 * 2 * 2176**2 / 4, rel=0.01)
    assert "32 workers" in str(shared)


@pytest.mark.parametrize(("n_workers", "busy"), [(2, 2), (48, 32), (63, 32), (64, 64), (1000, 64)])
def test_workers_take_whole_stretches(n_workers, busy):
    """There are 64 of them: of 48 workers some have two, of 1000 most have none."""
    alone, shared = (plan(10**9, 16, n_tokens=100, n_workers=n) for n in (1, n_workers))
    assert shared.steps["sums"] == pytest.approx(alone.steps["sums"] / busy)


def test_workers_keep_their_part_of_the_summaries():
    alone, shared = (plan(10**6, 32, solver="iterative", n_workers=n) for n in (1, 4))
    assert shared.worker_bytes < 0.5 * alone.bytes


def test_passes_read_again_what_does_not_fit(monkeypatch):
    """From a file, or from the tokens where these are fewer; the more workers, the less."""
    kept = plan(10**6, 32, solver="iterative", n_tokens=1000)
    assert kept.steps["rereading"] == 0.0
    monkeypatch.setattr(planning, "kept_numbers", lambda: 10**6)
    long, short, unknown = (
        plan(10**6, 32, solver="iterative", n_tokens=n) for n in (1000, 1, None)
    )
    passes = costs.expected_passes(10**6, 16896)
    summaries = costs.READ_BYTE * 8 * 10**6 * (528 + 32 + 1)
    assert long.steps["rereading"] == pytest.approx(passes * summaries)
    assert unknown.steps["rereading"] == long.steps["rereading"]
    tokens = short.steps["reading"] + short.steps["summaries"]
    assert short.steps["rereading"] == pytest.approx(passes * tokens)
    assert tokens < summaries
    shared = plan(10**6, 32, solver="iterative", n_tokens=1000, n_workers=8)
    assert shared.steps["rereading"] == pytest.approx(passes * summaries / 8)
    assert long.seconds > kept.seconds + long.steps["rereading"] / 2
    # Sums are made in one pass.
    assert plan(10**6, 16, solver="primal", n_tokens=10).steps["rereading"] == 0.0


def test_the_plan_of_rows_counts_their_tokens():
    rng = np.random.default_rng(0)
    X = [rng.standard_normal((n, 3)) for n in (2, 5, 3)]
    rows = Rows.build(X, np.ones(3), pa.Form())
    made = planning.plan_of(rows)
    assert made.steps["reading"] == pytest.approx(costs.READ_BYTE * 8 * 10 * 3)
    size = planning.size_of(Layout.plain(3), 3, 1)
    assert (size.n, size.p, size.m, size.r, size.e) == (3, 18, 6, 3, 1)


@pytest.mark.parametrize("argument", ["n_tokens", "n_workers"])
def test_counts_of_the_plan_are_checked(argument):
    with pytest.raises(InvalidInput, match=f"{argument} must be an integer of at least 1"):
        plan(10, 3, **{argument: 0})


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(1e-9, "less than 1 ms"), (0.0123, "12 ms"), (1.26, "1.3 s"), (119, "120 s"),
     (300, "5 minutes"), (7300, "2 hours"), (1e6, "280 hours")],
)  # fmt: skip
def test_times_are_told_in_units_that_suit(seconds, words):
    assert readable_seconds(seconds) == words


def test_few_rows_take_a_kernel_and_lose_nothing(monkeypatch):
    """What auto takes beyond small data agrees with the singular values of the features."""
    monkeypatch.setattr(planning, "UNNOTICED_SECONDS", 0.0)
    rng = np.random.default_rng(0)
    mixing = np.linalg.qr(rng.standard_normal((6, 6)))[0] * np.geomspace(1, 0.03, 6)
    X, Y = rng.standard_normal((80, 5, 6)) @ mixing, rng.standard_normal((80, 2))
    cases = {"correlated": (X, 80), "one sequence twice": (X.copy(), 79), "zeros": (X.copy(), 78)}
    cases["one sequence twice"][0][1] = X[0]
    cases["zeros"][0][:2] = 0.0
    for name, (tokens, rank) in cases.items():
        found, exact = pa.fit(tokens, Y), pa.fit(tokens, Y, solver="direct")
        assert (found.solver, found.rank, exact.rank) == ("dual", rank, rank), name
        assert found.outcome.name == exact.outcome.name == "minimum_norm"
        assert planted.relative_error(found.coef, exact.coef) < 1e-11, name
        assert found.risk == pytest.approx(exact.risk, rel=1e-9, abs=1e-20)


def test_a_kernel_that_meets_small_rows_at_the_cost_of_large_ones_is_given_up():
    """All rows could be met, by coefficients of 1e18: large rows would be off by more than y."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((60, 4, 6)), rng.standard_normal((60, 1))
    X *= np.geomspace(1, 1e-6, 60)[:, None, None]
    found, exact = (pa.fit(X, Y, solver=solver) for solver in ("dual", "direct"))
    assert found.rank == exact.rank < 60
    assert found.risk == pytest.approx(exact.risk, rel=1e-9)
