"""The same bits on any number of threads, from any thread, and from data in parts."""

import copy
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV
from threadpoolctl import ThreadpoolController, threadpool_limits

import oracle
import polyattn as pa
from polyattn.errors import FileFormatError, InvalidInput

SECONDS = 120.0


def numbers():
    """How many threads each BLAS library may use now."""
    found = ThreadpoolController().select(user_api="blas").lib_controllers
    return [each.num_threads for each in found]


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


# ------------------------------------------------------------------ threads

RNG = np.random.default_rng(0)
TALL = RNG.standard_normal((700, 4, 7)), RNG.standard_normal((700, 2))
WIDE = RNG.standard_normal((200, 3, 12)), RNG.standard_normal((200, 2))
SMALL = RNG.standard_normal((200, 4, 2)), RNG.standard_normal((200, 2))
CLASSES = TALL[0][:, :, :4], RNG.integers(0, 3, 700)


def planted(n_sequences, n_dims):
    """Data that two heads compute exactly."""
    task = pa.data.planted(n_sequences, 4, n_dims, n_heads=2, mode="last", random_state=0)
    return task.X, task.Y


FEW, MANY = planted(200, 5), planted(12_000, 3)
SOFTMAX = pa.data.planted_softmax(40, 4, 2, n_heads=1, random_state=0)


def of_fit(data, **options):
    result = pa.fit(*data, **options)
    return result.coef, result.risk, result.predict(data[0][:50])


def of_heads(heads):
    return heads.attn, heads.value


def of_sums(d, mode):
    X = np.random.default_rng(d).standard_normal((1000, 3, d))
    sums = pa.Moments(d, 2, mode).update(X, X[:, -1, :2] if mode == "last" else X[..., :2])
    return sums.gram, sums.cross


def of_triangle():
    return of_solution(pa.fit(statistics=pa.TriangularFactor(7, 2).update(*TALL)))


def of_solution(result):
    return result.coef, result.risk


def of_certificate():
    found = pa.certify(TALL[0])
    return found.lambda_min, found.lambda_max, found.bound(TALL[0][:20], 0.1)


def of_layer(make, mode):
    attn, value = np.random.default_rng(0).standard_normal((2, 12, 12, 12))
    return (make(attn, value, mode)(WIDE[0]),)


CASES = {
    **{name: lambda name=name: of_fit(TALL, solver=name) for name in ("primal", "direct")},
    "dual": lambda: of_fit(WIDE, solver="dual"),
    "iterative": lambda: of_fit(TALL, solver="iterative", ridge=1e3),
    "exact": lambda: of_fit(MANY),
    "left out": lambda: of_fit(TALL, ridge="loo"),
    "log-loss": lambda: of_fit(CLASSES, loss="logistic", ridge=1.0),
    "two heads": lambda: of_fit(SMALL, n_heads=2),
    "heads": lambda: of_heads(pa.fit(*FEW).heads),
    "linear layer": lambda: of_layer(pa.LinearAttention, "causal"),
    "softmax layer": lambda: of_layer(pa.SoftmaxAttention, "last"),
    "explicit sums": lambda: of_sums(9, "last"),
    "paired sums": lambda: of_sums(12, "last"),
    "sums of all tokens": lambda: of_sums(6, "full"),
    "triangular factor": of_triangle,
    "certificate": of_certificate,
    "softmax": lambda: of_heads(pa.learn_softmax(SOFTMAX.X, SOFTMAX.Y, n_heads=1).layer),
}


def bits(case):
    return b"".join(np.asarray(part, dtype=np.float64).tobytes() for part in CASES[case]())


@pytest.fixture(scope="module")
def expected():
    """The bits of every case on two threads, called from the main one."""
    with threadpool_limits(2, user_api="blas"):
        return {case: bits(case) for case in CASES}


def test_the_number_of_threads_and_the_thread_change_no_bit(expected):
    assert len(set(expected.values())) == len(CASES)
    for case in CASES:
        for threads in (1, 3):
            with threadpool_limits(threads, user_api="blas"):
                assert in_thread(bits, case) == expected[case], (case, threads)
    assert pa.fit(*MANY).solver == "exact"


def test_calls_at_once_do_not_disturb_each_other(expected):
    found = together([lambda case=case: bits(case) for case in CASES])
    assert dict(zip(CASES, found, strict=True)) == expected
    for case in ("primal", "dual", "heads", "paired sums"):
        assert set(together([lambda case=case: bits(case)] * 3)) == {expected[case]}


def test_one_result_has_one_set_of_heads_and_copies_their_own():
    result = pa.fit(*FEW)
    first, *others = together([lambda: result.heads] * 4)
    assert all(other is first for other in others)
    layers = together([lambda: result.layer] * 4)
    assert all(layer is result.layer for layer in layers)
    copied = copy.deepcopy(result)
    np.testing.assert_array_equal(copied.heads.attn, first.attn)
    assert copied.heads is not first


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


@pytest.mark.parametrize("backend", ["threading", pytest.param("loky", marks=pytest.mark.slow)])
def test_searches_of_scikit_learn(backend):
    def search(n_jobs):
        model = pa.LinearAttentionRegressor()
        return GridSearchCV(model, {"ridge": [0.1, 1.0]}, cv=2, n_jobs=n_jobs).fit(*TALL)

    alone = search(None)
    with joblib.parallel_config(backend):
        beside = search(2)
    for name in ("mean_test_score", "std_test_score"):
        np.testing.assert_array_equal(alone.cv_results_[name], beside.cv_results_[name])
    np.testing.assert_array_equal(alone.best_estimator_.coef_, beside.best_estimator_.coef_)


# ------------------------------------------------------------------ data in parts

FORMS = {
    "last": {}, "causal": {"mode": "causal", "bias": True, "decay": (0.5, 1.0)},
    "full": {"mode": "full", "skip": True}, "context": {"mode": "full", "context": 2},
}  # fmt: skip


def in_parts(name, n_sequences=90):
    """Ragged sequences of the form, and what ``fit`` takes besides."""
    form, context_dims = oracle.split_context({**oracle.DEFAULTS, **FORMS[name]})
    rng = np.random.default_rng(0)
    X = [rng.standard_normal((n, 3)) for n in rng.integers(1, 6, n_sequences)]
    Y = [rng.standard_normal((1 if form["mode"] == "last" else len(x), 2)) for x in X]
    context = oracle.contexts_for(X, form, context_dims)
    return pa.Form(**form), X, np.concatenate(Y) if form["mode"] == "last" else Y, context


@pytest.mark.parametrize("name", FORMS)
def test_sources_say_what_arrays_say_on_any_number_of_threads(name):
    form, X, Y, context = in_parts(name)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, len(X))
    ways = [{"solver": solver} for solver in ("primal", "iterative", "direct")]
    ways += [{"ridge": 3.0}, {"ridge": "gcv"}, {"ridge": "loo"}]
    for options in ways:
        whole = pa.fit(X, Y, form=form, context=context, sample_weight=weights, **options)
        found = []
        for threads in (1, 2):
            with threadpool_limits(threads, user_api="blas"):
                source = pa.scan(X, Y, weights, context, chunk_bytes=600)
                found.append(pa.fit(source, form=form, **options))
        np.testing.assert_array_equal(found[0].coef, found[1].coef)
        assert oracle.relative_error(found[0].coef, whole.coef) < 1e-7, options
        assert found[0].risk == pytest.approx(whole.risk, rel=1e-9)
        assert found[0].outcome.name == whole.outcome.name
        assert (found[0].rank, found[0].form) == (whole.rank, whole.form)
        if "ridge" in options and isinstance(options["ridge"], str):
            paths = found[0].ridge_path, whole.ridge_path
            np.testing.assert_allclose(paths[0].ridges, paths[1].ridges, rtol=1e-9)
            np.testing.assert_allclose(paths[0].errors, paths[1].errors, rtol=1e-6)
    one, other = whole.predict(X, context), found[0].predict(source)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
    if name == "last":
        classes = np.arange(len(X)) % 3
        options = {"loss": "logistic", "ridge": 1.0}
        parts = pa.fit(pa.scan(X, classes, chunk_bytes=600), **options)
        assert oracle.relative_error(parts.coef, pa.fit(X, classes, **options).coef) < 1e-8


def test_sequences_that_decide_their_own_fit_are_left_out_of_parts_too():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((240, 3, 2)), rng.standard_normal((240, 3, 1))
    X[[7, 100, 239]] *= 30.0
    for mode, targets in (("last", Y[:, -1]), ("causal", Y)):
        paths = [
            pa.fit(*data, mode=mode, ridge="loo").ridge_path
            for data in ((X, targets), (pa.scan(X, targets, chunk_bytes=500),))
        ]
        np.testing.assert_allclose(paths[1].ridges, paths[0].ridges, rtol=1e-12)
        np.testing.assert_allclose(paths[1].errors, paths[0].errors, rtol=1e-8)


def test_sources_mix_types_and_certify_like_arrays():
    rng = np.random.default_rng(0)
    pairs = [
        (
            [rng.integers(-4, 5, (3, 2)).astype(kind) for _ in range(20)],
            rng.standard_normal((20, 1)),
        )
        for kind in (np.int32, np.float32, np.float64)
    ]
    X = [x.astype(float) for part, _ in pairs for x in part]
    Y = np.concatenate([y for _, y in pairs])
    source = pa.scan(lambda: iter(pairs))
    np.testing.assert_allclose(pa.fit(source).coef, pa.fit(X, Y).coef, rtol=1e-9, atol=1e-12)
    with pytest.raises(InvalidInput, match="9007199254740993"):
        pa.fit(pa.scan([np.full((1, 2), 2**53 + 1), np.full((1, 2), 0.5)], np.ones((2, 1))))
    assert pa.certify(pa.scan(X, chunk_bytes=200)).verdict == pa.certify(X).verdict


def test_a_file_that_changes_between_passes_is_refused(tmp_path):
    rng = np.random.default_rng(0)
    for k in range(4):
        np.savez(tmp_path / f"{k}.npz", X=rng.standard_normal((30, 3, 2)), Y=np.ones((30, 1)))
    source = pa.scan(str(tmp_path / "*.npz"))
    pa.fit(source)
    np.savez(tmp_path / "2.npz", X=rng.standard_normal((31, 3, 2)), Y=np.ones((31, 1)))
    for solver in ("primal", "iterative"):
        with pytest.raises(FileFormatError, match="changed"):
            pa.fit(source, solver=solver)
