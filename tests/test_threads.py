"""Results from any thread, on any number of threads, are the same bits."""

from __future__ import annotations

import copy
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import joblib
import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV
from threadpoolctl import ThreadpoolController, threadpool_limits

import polyattn as pa
from polyattn.form import Form
from polyattn.numerics.parallel import (
    MOST_GROUPS,
    computed_once,
    deal,
    map_pieces,
    n_workers,
    single_threaded_blas,
)
from polyattn.stats.rows import Rows

SECONDS = 60.0


def numbers():
    """How many threads each BLAS library may use now."""
    return [
        lib.num_threads for lib in ThreadpoolController().select(user_api="blas").lib_controllers
    ]


def in_thread(function, *arguments):
    """What a function returns in a thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *arguments).result(timeout=SECONDS)


def together(functions):
    """What functions return that begin at the same time, each in a thread of its own."""
    start = threading.Barrier(len(functions))

    def begin(function):
        start.wait(SECONDS)
        return function()

    with ThreadPoolExecutor(len(functions)) as pool:
        return list(pool.map(begin, functions, timeout=SECONDS))


@pytest.fixture(autouse=True)
def two_threads():
    """BLAS may use two threads, whatever the environment says, and must end as it began."""
    with threadpool_limits(2, user_api="blas"):
        before = numbers()
        yield
        assert numbers() == before


# The limit ----------------------------------------------------------------------------------


def limited():
    with single_threaded_blas():
        return numbers()


def test_the_limit_holds_in_a_new_thread_after_the_main_one_used_it():
    assert set(limited()) == {1}
    assert set(in_thread(limited)) == {1}
    assert set(numbers()) == {2}


def test_the_limit_holds_in_threads_within_a_limit_of_the_caller():
    with threadpool_limits(2):
        assert set(in_thread(limited)) == {1}
        assert set(numbers()) == {2}


def test_the_last_thread_to_leave_restores_what_was():
    inside, leave = threading.Event(), threading.Event()

    def stay():
        with single_threaded_blas():
            inside.set()
            leave.wait(SECONDS)

    first = threading.Thread(target=stay)
    first.start()
    inside.wait(SECONDS)
    with single_threaded_blas():
        leave.set()
        first.join(SECONDS)
        assert set(numbers()) == {1}
        assert n_workers() == 2
    assert set(numbers()) == {2}


def test_a_number_set_within_the_block_is_limited_again_and_comes_back():
    with single_threaded_blas():
        inner = threadpool_limits(3, user_api="blas")
        assert set(limited()) == {1}
        assert n_workers() == 3
    assert set(numbers()) == {3}
    inner.restore_original_limits()
    threadpool_limits(2, user_api="blas")


@pytest.mark.parametrize("allowed", [1, 2, 3])
def test_as_many_workers_as_the_caller_allows(allowed):
    with threadpool_limits(allowed, user_api="blas"):
        assert n_workers() == allowed
        assert in_thread(n_workers) == allowed
        with single_threaded_blas():
            assert n_workers() == allowed


def test_pieces_within_pieces():
    """A worker that waited for other workers would wait for ever."""

    def inner(i):
        return sum(map_pieces(lambda j: 10 * i + j, range(4)))

    assert in_thread(map_pieces, inner, range(8)) == [40 * i + 6 for i in range(8)]
    assert map_pieces(lambda _: n_workers(), range(4)) == [1, 1, 1, 1]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_no_piece_runs_on_after_an_error(error):
    other, running = threading.Event(), []

    def work(i):
        if i == 0:
            other.wait(SECONDS)
            raise error
        running.append(i)
        other.set()
        for _ in range(20):
            np.ones((100, 100)) @ np.ones((100, 100))
        running.remove(i)

    with pytest.raises(error):
        map_pieces(work, range(6))
    assert running == []
    assert map_pieces(lambda i: i, range(3)) == [0, 1, 2]


def test_groups_do_not_depend_on_workers():
    assert deal(range(3)) == [[0], [1], [2]]
    groups = deal(range(100))
    assert len(groups) == MOST_GROUPS
    assert sorted(piece for group in groups for piece in group) == list(range(100))


FORKED = """
import os, sys, threading
from threadpoolctl import threadpool_info, threadpool_limits
from polyattn.numerics.parallel import map_pieces, single_threaded_blas
import numpy as np
threadpool_limits(2, user_api="blas")
map_pieces(abs, [1, 2])
numbers = lambda: {lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"}
with single_threaded_blas():
    child = os.fork()
    if child == 0:
        right = numbers() == {2} and map_pieces(abs, [-1, -2, -3]) == [1, 2, 3]
        with single_threaded_blas():
            right = right and numbers() == {1}
if child == 0:
    os._exit(0 if right and numbers() == {2} else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(sys, "getdlopenflags"), reason="fork is for Unix")
def test_a_forked_process_begins_anew():
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED], check=True, timeout=SECONDS)


# Bits ---------------------------------------------------------------------------------------


def planted(n_sequences, n_dims):
    """Data that two heads compute exactly."""
    task = pa.data.planted(n_sequences, 4, n_dims, n_heads=2, mode="last", random_state=0)
    return task.X, task.Y


RNG = np.random.default_rng(0)
TALL = RNG.standard_normal((900, 4, 8)), RNG.standard_normal((900, 2))
WIDE = RNG.standard_normal((300, 3, 12)), RNG.standard_normal((300, 2))
SMALL = RNG.standard_normal((200, 4, 2)), RNG.standard_normal((200, 2))
FEW = planted(300, 6)
PLANTED = planted(20_000, 3)
SOFTMAX = pa.data.planted_softmax(60, 4, 3, n_heads=2, random_state=0)


def of_fit(data, **options):
    result = pa.fit(*data, **options)
    return result.coef, result.risk, result.predict(data[0][:50])


def of_heads(data):
    heads = pa.fit(*data).heads
    return heads.attn, heads.value


def of_sums(d, mode):
    X = np.random.default_rng(d).standard_normal((1500, 3, d))
    Y = X[:, -1, :2] if mode == "last" else X[..., :2]
    sums = pa.Moments(d, 2, mode).update(X, Y)
    return sums.gram, sums.cross


def of_triangle():
    return (pa.TriangularFactor(8, 2).update(*TALL).scaled_factor(),)


def of_certificate():
    found = pa.certify(TALL[0])
    return found.lambda_min, found.lambda_max, found.bound(TALL[0][:20], 0.1)


def of_softmax():
    found = pa.learn_softmax(SOFTMAX.X, SOFTMAX.Y, n_heads=2)
    return found.layer.attn, found.layer.value


def of_layer(make, mode):
    attn, value = np.random.default_rng(0).standard_normal((2, 12, 12, 12))
    return (make(attn, value, mode)(WIDE[0]),)


CASES = {
    "primal": lambda: of_fit(TALL, solver="primal"),
    "dual": lambda: of_fit(WIDE, solver="dual"),
    "direct": lambda: of_fit(TALL, solver="direct"),
    "iterative": lambda: of_fit(TALL, solver="iterative", ridge=1e3),
    "exact": lambda: of_fit(PLANTED),
    "left out": lambda: of_fit(TALL, ridge="loo"),
    "two heads": lambda: of_fit(SMALL, n_heads=2),
    "heads": lambda: of_heads(FEW),
    "linear layer": lambda: of_layer(pa.LinearAttention, "causal"),
    "softmax layer": lambda: of_layer(pa.SoftmaxAttention, "last"),
    "explicit sums": lambda: of_sums(9, "last"),
    "paired sums": lambda: of_sums(12, "last"),
    "sums of all tokens": lambda: of_sums(6, "full"),
    "triangular factor": of_triangle,
    "certificate": of_certificate,
    "softmax": of_softmax,
}


def bits(case):
    return b"".join(np.asarray(part, dtype=np.float64).tobytes() for part in CASES[case]())


@pytest.fixture(scope="module")
def expected():
    """The bits of every case on two threads, called from the main one."""
    with threadpool_limits(2, user_api="blas"):
        return {case: bits(case) for case in CASES}


@pytest.mark.parametrize("case", CASES)
def test_the_number_of_threads_and_the_thread_change_no_bit(case, expected):
    assert in_thread(bits, case) == expected[case]
    for threads in (1, 3):
        with threadpool_limits(threads, user_api="blas"):
            assert bits(case) == expected[case]


def test_the_cases_differ(expected):
    assert len(set(expected.values())) == len(CASES)


def test_the_exact_solver_was_one_of_them():
    assert pa.fit(*PLANTED).solver == "exact"


@pytest.mark.parametrize("case", ["primal", "dual", "direct", "heads", "paired sums"])
def test_four_threads_at_once_get_the_same_bits(case, expected):
    assert set(together([lambda: bits(case)] * 4)) == {expected[case]}


def test_different_calls_at_once_do_not_disturb_each_other(expected):
    found = together([lambda case=case: bits(case) for case in CASES])
    assert dict(zip(CASES, found, strict=True)) == expected


@pytest.mark.parametrize("backend", ["threading", pytest.param("loky", marks=pytest.mark.slow)])
def test_searches_of_scikit_learn(backend):
    def search(n_jobs):
        model = pa.LinearAttentionRegressor()
        return GridSearchCV(model, {"ridge": [0.1, 1.0]}, cv=2, n_jobs=n_jobs).fit(*TALL)

    alone = search(None)
    with joblib.parallel_config(backend):
        beside = search(2)
    np.testing.assert_array_equal(
        alone.cv_results_["mean_test_score"], beside.cv_results_["mean_test_score"]
    )
    np.testing.assert_array_equal(alone.best_estimator_.coef_, beside.best_estimator_.coef_)


# What threads share -------------------------------------------------------------------------


def test_one_result_has_one_set_of_heads():
    result = pa.fit(*FEW)
    first, *others = together([lambda: result.heads] * 4)
    assert all(other is first for other in others)
    layers = together([lambda: result.layer] * 4)
    assert all(layer is result.layer for layer in layers)


@dataclass
class Slow:
    fails: int = 0
    calls: int = 0

    @computed_once
    def value(self):
        """A value."""
        self.calls += 1
        threading.Event().wait(0.05)
        if self.calls <= self.fails:
            raise ValueError("not yet")
        return object()

    @computed_once
    def other(self):
        return self.value, self.value


def test_values_are_computed_once():
    slow = Slow()
    assert len(set(map(id, together([lambda: slow.value] * 4)))) == 1
    assert slow.calls == 1
    assert slow.other == (slow.value, slow.value)
    assert Slow.value.__doc__ == "A value."


def test_a_value_that_failed_is_computed_by_the_next():
    slow = Slow(fails=1)
    with pytest.raises(ValueError, match="not yet"):
        _ = slow.value
    assert slow.value is slow.value
    assert slow.calls == 2


def test_results_can_be_copied():
    result = pa.fit(*FEW)
    np.testing.assert_array_equal(copy.deepcopy(result).heads.attn, result.heads.attn)
    assert copy.deepcopy(result).heads is not result.heads


def test_rows_kept_by_two_threads_are_kept_once(monkeypatch):
    rows = Rows.build(*SMALL, Form("last"))
    read, both = Rows.read_together, threading.Barrier(2)

    def read_at_once(self):
        both.wait(SECONDS)
        return read(self)

    monkeypatch.setattr(Rows, "read_together", read_at_once)
    together([lambda: list(rows.groups())] * 2)
    [kept] = rows._kept
    assert sum(block.stop - block.first for block in kept) == rows.n_rows
