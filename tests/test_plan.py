"""The plan: which solver is taken, by size, memory or name."""

import os

import numpy as np
import pytest

import planted
import polyattn as pa
from polyattn.errors import InvalidInput
from polyattn.reference import erm
from polyattn.solve import plan, solvers

GIB = 1 << 30

PLANS = {
    # rows, width, outputs, memory limit -> solver, a word of the reason
    "tall": (10_000, 8, 8, 12 * GIB, "primal", "p x p"),
    "just tall": (288, 8, 1, 12 * GIB, "primal", "288 rows for 288 features"),
    "one row short": (287, 8, 1, 12 * GIB, "direct", "287 rows for 288 features"),
    "few rows": (100, 16, 16, 12 * GIB, "direct", "few enough to hold"),
    "many rows, wide": (8192, 64, 64, 12 * GIB, "dual", "N x N"),
    "few rows, very wide": (1000, 64, 1, 12 * GIB, "dual", "N x N"),
    "tall, no memory for p x p": (20_000, 32, 1, 4 * GIB, "dual", "N x N"),
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
    monkeypatch.setattr(solvers, "memory_limit", lambda: limit)
    chosen = plan(n_rows, width, n_outputs)
    assert chosen.solver == solver
    assert reason in chosen.reason
    assert str(chosen).startswith(f"{solver}: ")
    assert 0 < chosen.bytes <= limit
    assert "about" in str(chosen)


def test_the_plan_refuses_what_fits_nowhere(monkeypatch):
    monkeypatch.setattr(solvers, "memory_limit", lambda: GIB)
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
    monkeypatch.setattr(solvers, "memory_limit", lambda: limit)
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
    assert plans[1] != "iterative" or plan(100_000, 32).bytes > solvers.memory_limit()


def test_an_iteration_that_stalls_is_given_up_for_sums(monkeypatch):
    task = planted.problem("tall", noise=1.0)
    monkeypatch.setattr(solvers, "ITERATED_FEATURES", 1)
    monkeypatch.setattr(solvers, "MUCH_FASTER", 0.0)
    assert pa.fit(task.X, task.Y).solver == "iterative"
    monkeypatch.setattr(solvers, "PATIENCE", 0.1)
    assert pa.fit(task.X, task.Y).solver == "primal"


def test_a_norm_out_of_reach_is_left_to_sums(monkeypatch):
    """Features of very different size of which some depend on others: no iteration is enough."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((60, 4, 3)) * [1.0, 1.0, 1e-5], rng.standard_normal((60, 1))
    X[..., 1] = X[..., 0]
    monkeypatch.setattr(solvers, "ITERATED_FEATURES", 1)
    monkeypatch.setattr(solvers, "MUCH_FASTER", 0.0)
    assert pa.fit(X, Y).solver == "primal"
    assert "own metric" in str(pa.fit(X, Y, solver="iterative").outcome)


def test_sums_that_are_needed_are_made(monkeypatch):
    """A limited number of heads is weighed by the moments."""
    task = planted.problem("tall", noise=1.0)
    monkeypatch.setattr(solvers, "ITERATED_FEATURES", 1)
    monkeypatch.setattr(solvers, "MUCH_FASTER", 0.0)
    assert pa.fit(task.X, task.Y).solver == "iterative"
    assert pa.fit(task.X, task.Y, n_heads=1).solver == "primal"


def test_passes_grow_as_rows_come_near_the_features():
    passes = [solvers.expected_passes(n_rows, 1000) for n_rows in (1e9, 4000, 2000, 1001)]
    assert passes[:2] == pytest.approx([30.0, 90.0], rel=1e-2)
    assert passes == sorted(passes)
    assert solvers.expected_passes(1000, 1000) == float("inf")


def test_the_memory_limit_is_half_of_the_machine(monkeypatch):
    assert solvers.memory_limit() > 1 << 28

    def unknown(_):
        raise OSError

    monkeypatch.setattr(os, "sysconf", unknown)
    assert solvers.memory_limit() == 4 * GIB


@pytest.mark.parametrize("sizes", [(0, 3), (-5, 3), (10.5, 3), (10, 0), (10, 3, 0)])
def test_sizes_are_checked(sizes):
    with pytest.raises(InvalidInput, match="must be an integer of at least 1"):
        plan(*sizes)
