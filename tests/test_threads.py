"""The same bits on any number of threads, and from any thread."""

import json
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

import polyattn as pa

SECONDS = 120.0


def numbers():
    """How many threads each BLAS library may use now."""
    found = ThreadpoolController().select(user_api="blas")
    return [each.num_threads for each in found.lib_controllers]


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


RNG = np.random.default_rng(0)
TALL = RNG.standard_normal((700, 4, 7)), RNG.standard_normal((700, 2))
WIDE = RNG.standard_normal((200, 3, 12)), RNG.standard_normal((200, 2))
SMALL = RNG.standard_normal((200, 4, 2)), RNG.standard_normal((200, 2))
LONG = RNG.standard_normal((1000, 3, 12))
CHUNKS = pa.scan(*TALL, chunk_bytes=30_000)
CLASSES = TALL[0][:, :, :4], RNG.integers(0, 3, 700)
P, MEMORY = pa.programs, pa.programs.associative_memory(3, 3)
HEADS = RNG.standard_normal((2, 12, 12, 12))
SOFTMAX = pa.data.planted_softmax(40, 4, 2, n_heads=1, random_state=0)


def planted(n_sequences, n_dims):
    task = pa.data.planted(n_sequences, 4, n_dims, n_heads=2, mode="last", random_state=0)
    return task.X, task.Y


def sums(n_dims, mode):
    X = LONG[..., :n_dims]
    found = pa.Moments(n_dims, n_dims, mode).update(X, X[:, -1] if mode == "last" else X)
    return np.hstack([found.gram, found.cross])


FEW, MANY = planted(200, 5), planted(12_000, 3)

#: Results, and arrays.
CASES = {
    "primal": lambda: pa.fit(*TALL, solver="primal"),
    "direct": lambda: pa.fit(*TALL, solver="direct"),
    "dual": lambda: pa.fit(*WIDE, solver="dual"),
    "iterative": lambda: pa.fit(*TALL, solver="iterative", ridge=1e3),
    "exact": lambda: pa.fit(*MANY),
    "left out": lambda: pa.fit(*TALL, ridge="loo"),
    "log-loss": lambda: pa.fit(*CLASSES, loss="logistic", ridge=1.0),
    "two heads": lambda: pa.fit(*SMALL, n_heads=2),
    "heads": lambda: pa.fit(*FEW).layer,
    "predictions": lambda: pa.fit(*TALL, solver="primal").predict(TALL[0][:50]),
    "linear layer": lambda: pa.LinearAttention(*HEADS, "causal")(WIDE[0]),
    "softmax layer": lambda: pa.SoftmaxAttention(*HEADS, "last")(WIDE[0]),
    "explicit sums": lambda: sums(9, "last"),
    "paired sums": lambda: sums(12, "last"),
    "sums of all tokens": lambda: sums(6, "full"),
    "triangular factor": lambda: pa.fit(statistics=pa.TriangularFactor(7, 2).update(*TALL)),
    "chunks": lambda: pa.fit(CHUNKS),
    "chunks, left out": lambda: pa.fit(CHUNKS, ridge="loo"),
    "chunks, by iteration": lambda: pa.fit(CHUNKS, solver="iterative", ridge=1e2),
    "certificate": lambda: pa.certify(TALL[0]),
    "bound": lambda: np.array(pa.certify(TALL[0]).bound(TALL[0][:20], 0.1)),
    "verified": lambda: np.array(pa.verify(pa.certify(TALL[0]), TALL[0])),
    "audit": lambda: pa.audit(pa.data.random_layer(7, 2, mode="last", random_state=0), *TALL),
    "program": lambda: P.learn(MEMORY.schema, P.traces(MEMORY, 40), "coefficients"),
    "softmax": lambda: pa.learn_softmax(SOFTMAX.X, SOFTMAX.Y, n_heads=1).layer,
}


def bits(case):
    """All numbers of an answer: JSON has those of float64 to the last bit."""
    found = CASES[case]()
    return found.tobytes() if isinstance(found, np.ndarray) else json.dumps(found.to_full_dict())


@pytest.fixture(scope="module")
def expected():
    """The bits of every case on two threads, called from the main one."""
    with threadpool_limits(2, user_api="blas"):
        return {case: bits(case) for case in CASES}


def test_the_number_of_threads_and_the_thread_change_no_bit(expected):
    for case in CASES:
        for threads in (1, 3):
            with threadpool_limits(threads, user_api="blas"):
                found = together([lambda case=case: bits(case)])
                assert found == [expected[case]], (case, threads)
    assert pa.fit(*MANY).solver == "exact"


def test_calls_at_once_do_not_disturb_each_other(expected):
    found = together([lambda case=case: bits(case) for case in CASES])
    assert dict(zip(CASES, found, strict=True)) == expected
    for case in ("primal", "dual", "heads", "paired sums"):
        assert set(together([lambda case=case: bits(case)] * 3)) == {expected[case]}


def test_an_error_in_one_call_leaves_threads_as_they_were(expected):
    """A map that fails is code of the user, called in the middle of a computation."""

    def failing(_):
        raise KeyboardInterrupt

    before = numbers()
    with pytest.raises(KeyboardInterrupt):
        pa.fit(*TALL, form=pa.Form(key=failing))
    assert numbers() == before
    assert bits("primal") == expected["primal"]


@pytest.mark.skipif(not hasattr(sys, "getdlopenflags"), reason="fork is for Unix")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_begins_anew(expected):
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # a lock that is never released would be waited for without end
        try:
            os._exit(0 if bits("explicit sums") == expected["explicit sums"] else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
