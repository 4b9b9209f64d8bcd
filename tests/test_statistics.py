"""Moments and TriangularFactor: sums over positions that merge and count nothing twice."""

import itertools
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import polyattn as pa
from oracle import contexts_for, design, forms, plain_design, predicted, sequences, split_context
from polyattn.errors import FileFormatError, InvalidInput, PolyattnError
from test_ridge import split

KINDS = (pa.Moments, pa.TriangularFactor)
both_kinds = pytest.mark.parametrize("kind", KINDS)
RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((9, 3, 2)), RNG.standard_normal((9, 1))


@given(
    fields=forms(), X=sequences(), n_outputs=st.integers(0, 2), weighted=st.booleans(),
    size=st.sampled_from([1e-30, 1.0, 1e20]), seed=st.integers(0, 99),
)  # fmt: skip
def test_statistics_are_sums_over_the_predicted_positions(
    fields, X, n_outputs, weighted, size, seed
):
    form, width = split_context(fields)
    mode, rng = form["mode"], np.random.default_rng(seed)
    size = size if isinstance(form["query"], tuple | None.__class__) else 1.0
    context = contexts_for(X, form, width)
    psi = design(X, form, context)
    weights = rng.uniform(0.1, 3, len(X)) if weighted else np.ones(len(X))
    w = np.repeat(weights, [len(predicted(len(x), mode)) for x in X])[:, None]
    rows = rng.standard_normal((len(psi), n_outputs)) / size
    given_Y = split(X, rows, mode) if n_outputs else None
    given_w = weights if weighted else None
    made = [
        kind(3, n_outputs, form=pa.Form(**form), n_context_dims=width).update(
            X, given_Y, given_w, context
        )
        for kind in KINDS
    ]
    gram, cross = psi.T @ (w * psi), psi.T @ (w * rows)
    for found, expected in (
        (made[0].gram, gram), (made[0].cross, cross), (made[0].target_gram, rows.T @ (w * rows)),
        (made[0].second_moment, gram / w.sum()),
        (made[0].spectrum(), np.linalg.eigvalsh(gram / w.sum())),
    ):  # fmt: skip
        # What cancels is rounded as its terms are.
        largest = np.abs(psi).max() * np.abs(rows).max(initial=1.0)
        terms = max(np.abs(expected).max(initial=0.0), largest)
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-11 * terms)
    assert made[0].n_rows == made[1].n_rows == len(psi)
    assert made[0].n_sequences == made[1].n_sequences == len(X)
    for each in made:
        assert each.total_weight == pytest.approx(w.sum())


@pytest.mark.parametrize(
    ("mode", "n_sequences", "n_dims"), [("last", 9000, 3), ("full", 1500, 13), ("causal", 1500, 13)]
)
def test_sums_of_many_rows_are_exact_for_integers(mode, n_sequences, n_dims):
    """Blocks, tiles and groups of rows end anywhere; every number here is an integer below 2^53."""
    rng = np.random.default_rng(1)
    X = rng.integers(-2, 3, (n_sequences, 3, n_dims)).astype(float)
    Y = rng.integers(-9, 9, (n_sequences, 2) if mode == "last" else (n_sequences, 3, 2))
    psi = plain_design(X, mode)
    made = pa.Moments(n_dims, 2, mode).update(X, Y)
    np.testing.assert_array_equal(made.gram, psi.T @ psi)
    np.testing.assert_array_equal(made.cross, psi.T @ Y.reshape(-1, 2))
    np.testing.assert_array_equal(made.target_gram, Y.reshape(-1, 2).T @ Y.reshape(-1, 2))


@both_kinds
@given(
    fields=forms(), X=sequences(max_sequences=8), cuts=st.lists(st.integers(0, 8), max_size=3),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_parts_in_any_order_and_any_batches_are_the_whole(kind, fields, X, cuts, seed):
    """With weights of which some are zero; of integers, so that sums are exact."""
    form, width = split_context(fields)
    form = {key: value for key, value in form.items() if key not in ("decay", "mean")}
    rng, mode, context = np.random.default_rng(seed), form["mode"], contexts_for(X, form, width)
    n_rows = sum(len(predicted(len(x), mode)) for x in X)
    Y = split(X, rng.integers(-3, 4, (n_rows, 1)).astype(float), mode)
    weights = rng.integers(0, 3, len(X)).astype(float)
    X, Z = ([np.rint(4 * x) for x in each or ()] for each in (X, context))

    def part(first, stop, made=None):
        made = made or kind(3, 1, form=pa.Form(**form), n_context_dims=width)
        if first < stop:
            own = None if width is None else Z[first:stop]
            made.update(X[first:stop], Y[first:stop], weights[first:stop], own)
        return made

    whole, batches = part(0, len(X)), part(0, 0)
    pieces = list(itertools.pairwise(sorted({0, len(X), *(cut % (len(X) + 1) for cut in cuts)})))
    for first, stop in pieces:
        assert part(first, stop, batches) is batches
    merged = sum(part(*pieces[i]) for i in rng.permutation(len(pieces)))
    assert part(0, 0) + whole + part(0, 0) == whole
    for found in (batches, merged):
        for name in ("n_rows", "n_sequences", "total_weight"):
            assert getattr(found, name) == getattr(whole, name)
        if kind is pa.Moments:
            for name in ("gram", "cross", "target_gram"):
                wanted = getattr(whole, name)
                atol = 1e-13 * max(1.0, np.abs(wanted).max())
                np.testing.assert_allclose(getattr(found, name), wanted, rtol=0, atol=atol)
        elif weights.any():
            ours, wanted = (pa.fit(statistics=each, ridge=1.0) for each in (found, whole))
            np.testing.assert_allclose(ours.coef, wanted.coef, atol=1e-8)


@both_kinds
def test_operands_copies_and_what_was_read_stay_as_they_are(kind):
    a, b = kind(2, 1).update(X, Y), kind(2, 1).update(1e100 * X, Y)
    before = a.copy(), b.copy()
    seen = [a.gram, a.cross, a.target_gram] if kind is pa.Moments else []
    kept = [each.copy() for each in seen]
    (a + b).update(X, Y)
    a.copy().update(X, Y)
    assert (a, b) == before
    a.update(X, Y)
    assert a != before[0]
    for mine, theirs in zip(seen, kept, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@both_kinds
def test_equal_sums_are_equal_and_others_are_not(kind):
    one, named = kind(2, 1).update(X, Y), kind(2, 1).update(X, Y, chunk="named")
    assert one == kind(2, 1).update(X, Y) == sum([one])
    assert sum([one]) is not one
    for other in (
        kind(2, 1).update(X, 2 * Y), kind(2, 1).update(2 * X, Y), kind(2).update(X), named, "sums",
        kind(2, 1, bias=True).update(X, Y), kind(2, 1).update(X, Y, np.full(9, 2.0)),
        KINDS[kind is pa.Moments](2, 1).update(X, Y),
    ):  # fmt: skip
        assert one != other
    assert pa.certify(statistics=one).digest == pa.certify(statistics=named).digest


@both_kinds
def test_what_no_sums_can_be_is_refused(kind, tmp_path):
    for word, one, other in (
        ("n_dims", (2, 1), (3, 1)), ("n_outputs", (2, 1), (2, 2)),
        ("mode", (2, 1, "last"), (2, 1, "full")), ("bias", (2, 1, "last", True), (2, 1)),
    ):  # fmt: skip
        with pytest.raises(InvalidInput, match=word):
            kind(*one) + kind(*other)
    for mine, theirs in ((kind(2), KINDS[kind is pa.Moments](2)), (1, kind(2))):
        with pytest.raises(TypeError):
            mine + theirs
    kind(2, 1).save(tmp_path / "sums")
    with pytest.raises(FileFormatError, match="sums"):
        KINDS[kind is pa.Moments].load(tmp_path / "sums")
    # Sizes are checked before memory is taken.
    for arguments, word in (
        ((0,), "n_dims"), ((2, -1), "n_outputs"), ((2, 1, "first"), "mode"), ((5000,), "TB")
    ):  # fmt: skip
        with pytest.raises(InvalidInput, match=word):
            kind(*arguments)
    # Sums of inputs take no targets and make no fit.
    sums = kind(2, mode="causal").update(X)
    assert (sums.n_outputs, sums.n_rows) == (0, 27)
    for call in (lambda: sums.update(X, X), lambda: pa.fit(statistics=sums)):
        with pytest.raises(InvalidInput, match=r"targets|n_outputs"):
            call()


ONE = np.ones((2, 3, 2))
REFUSED_UPDATES = (
    ((ONE[..., :1], np.ones(2)), {}, "2 coordinates"), ((ONE, np.ones((2, 3))), {}, "1 output"),
    ((ONE, np.ones((2, 3, 1))), {}, "mode"), ((ONE,), {}, "Y"),
    ((ONE * np.nan, np.ones(2)), {}, "X"), ((ONE, np.ones(2), [-1.0, 1.0]), {}, "sample_weight"),
    ((ONE * [1e-60, 1e60], np.ones(2)), {}, "float64|sizes"),
    ((2 * X, Y), {"chunk": "monday"}, "'monday'"), ((X, Y), {"chunk": ""}, "chunk"),
    ((X, Y), {"checkpoint": "x"}, "checkpoint"),
    *(((X, Y), {"forget": f}, "forget") for f in (0.0, 1.5, np.nan)),
)  # fmt: skip


@both_kinds
def test_a_refused_update_changes_nothing(kind):
    for (arguments, named, word), more in itertools.product(REFUSED_UPDATES, ({}, {"forget": 0.5})):
        sums = kind(2, 1).update(X, Y, chunk="monday")
        before = sums.copy()
        with pytest.raises(PolyattnError, match=word):
            sums.update(*arguments, **(more | named))
        assert sums == before


@both_kinds
@given(
    steps=st.lists(
        st.lists(st.sampled_from("abcdef"), min_size=1, max_size=3, unique=True), max_size=4
    ),
    reload=st.booleans(),
)  # fmt: skip
def test_a_chunk_counts_once_however_sums_come_together(kind, steps, reload, tmp_path_factory):
    """Against a set of names: a merge is refused where and only where something would be twice."""
    data = {name: (i + 1.0) * ONE for i, name in enumerate("abcdef")}
    sums, known = kind(2), set()
    for names in steps:
        part = kind(2)
        for name in names:
            part.update(data[name], chunk=name)
        if reload:
            path = tmp_path_factory.mktemp("sums") / "part"
            part.save(path)
            part = pa.load(path)
        again = [name for name in names if name in known]
        if again:
            before = sums.copy()
            with pytest.raises(InvalidInput, match="already counted"):
                sums + part
            with pytest.raises(InvalidInput, match="already counted"):
                sums.update(data[again[0]], chunk=again[0])
            assert sums == before
        else:
            sums = sums + part
            known |= set(names)
    assert sums.n_sequences == 2 * len(known)


def few_dyadic(rng):
    """Five sequences twice over, of exact numbers: of their 6 features 5 are seen."""
    return np.repeat(rng.integers(-(2**20), 2**20, (5, 3, 2)) * 2.0**-20, 2, axis=0)


def test_what_is_left_of_a_sum_is_the_rest_and_proves_no_more():
    """Noise of what was taken out makes singular sums look definite; certificates know of it."""
    rng = np.random.default_rng(0)

    def sums(chunk, X):
        return pa.Moments(2, 1).update(X, rng.standard_normal(len(X)), chunk=chunk)

    for scale in (3.0, 4.0, 3.0, 4.0):
        large = sums("b", scale * rng.standard_normal((40, 3, 2)))
        open_one, good = sums("a", few_dyadic(rng)), sums("a", rng.standard_normal((40, 3, 2)))
        left = (open_one + large) - large
        np.testing.assert_allclose(left.gram, open_one.gram, atol=1e-8)
        assert left.subtracted_weight == 2 * large.total_weight  # it was added, and taken out
        assert pa.certify(statistics=left).verdict == "undecided"
        assert pa.fit(statistics=left).rank == 5
        assert pa.certify(statistics=(good + large) - large).identifiable
        assert (good - good).n_rows == 0
        huge = sums("c", 30.0 * rng.standard_normal((40, 3, 2)))
        for one, other, word in (
            (good, large, "'b'"), (left, large, "'b'"), (good + huge, huge, "share")
        ):  # fmt: skip
            with pytest.raises(InvalidInput, match=word):
                one - other


def test_without_chunks_of_no_weight_the_spread_of_the_targets_is_known():
    idle = pa.Moments(2, 1).update(X, Y, np.zeros(9), chunk="b")
    whole = pa.Moments(2, 1).update(X, Y, chunk="a")
    assert pa.fit(statistics=(whole + idle) - idle).r2 == pa.fit(statistics=whole).r2 < 1


@both_kinds
def test_forgetting_is_a_weight(kind, tmp_path):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((3, 20, 3, 2)), rng.standard_normal((3, 20, 1))
    sums = kind(2, 1).update(pa.scan(X[0], Y[0]), forget=0.5)
    sums.update(X[1], Y[1], forget=0.25)
    sums.save(tmp_path / "sums")
    sums = pa.load(tmp_path / "sums").update(pa.scan(X[2], Y[2]), forget=0.125)
    weights = np.repeat([0.25 * 0.125, 0.125, 1.0], 20)
    expected = pa.fit(X.reshape(60, 3, 2), Y.reshape(60, 1), sample_weight=weights)
    found = pa.fit(statistics=sums)
    np.testing.assert_allclose(found.coef, expected.coef, rtol=1e-9)
    assert found.risk == pytest.approx(expected.risk)
    assert sums.total_weight == weights.sum()
    large = kind(2, 1).update(X[0], Y[0], np.full(20, 1e100))
    large.save(tmp_path / "large")
    assert pa.load(tmp_path / "large") == large
    # There is nothing to be forgotten in new sums.
    assert kind(2).update(X[0], forget=0.5) == kind(2).update(X[0])


@both_kinds
def test_forgotten_sums_prove_nothing_that_data_do_not(kind):
    """Nor do sequences that are added again and again."""
    rng = np.random.default_rng(0)
    X = few_dyadic(rng)
    sums = kind(2)
    for _ in range(30):
        sums.update(X, forget=0.9)
    assert pa.certify(statistics=sums).verdict != "identifiable"
    good = kind(2).update(rng.standard_normal((30, 3, 2)))
    good.update(rng.standard_normal((9, 3, 2)), forget=0.7)
    assert pa.certify(statistics=good).identifiable


def pairs(count=6, factor=1.0):
    rng = np.random.default_rng(3)
    return [
        (factor * rng.standard_normal((4, 3, 2)), rng.standard_normal(4), rng.uniform(1, 2, 4))
        for _ in range(count)
    ]


# A clock by which half a minute, after which the file is written, passes with every ten parts.  A
# process is forked for each attempt, and kills itself where it reads part ``stop``.
CHILD = """
import itertools, os, signal, time
time.monotonic = itertools.count(0.0, 3.0).__next__
import dask, numpy as np, polyattn as pa
stop, read = -1, []
def part(i):
    if i == stop:
        os.kill(os.getpid(), signal.SIGKILL)
    read.append(i)
    rng = np.random.default_rng(i)
    return 2.0 ** rng.integers(-9, 9) * rng.standard_normal((3, 4, 2)), rng.standard_normal(3)
source = pa.scan([dask.delayed(part)(i, dask_key_name=f"part-{i}") for i in range(90)])
for kind in (pa.Moments, pa.TriangularFactor):
    whole, path = kind(2, 1).update(source), kind.__name__ + ".safetensors"
    for stop in (2, 41, 66, 89):
        process = os.fork()
        if process == 0:
            kind(2, 1).update(source, checkpoint=path)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL
    for stop, most in ((-1, 15), (-1, 1)):
        read.clear()
        print(kind(2, 1).update(source, checkpoint=path) == whole, len(read) <= most)
print(sorted(os.listdir()))
"""


def test_killed_anywhere_the_same_call_goes_on_and_ends_in_the_same_bits(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", CHILD], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    *lines, files = done.stdout.splitlines()
    assert lines == ["True True"] * 4
    assert files == str(["Moments.safetensors", "TriangularFactor.safetensors"])


def test_a_checkpoint_holds_the_sum_over_the_source_alone(tmp_path):
    """It fits whatever it is added to, and a finished one is recognised by fit and certify."""
    source, path = pa.scan(pairs()), tmp_path / "state"
    alone = pa.Moments(2, 1).update(source, checkpoint=path)
    expected = pa.Moments(2, 1).update(X, Y) + alone
    assert pa.Moments(2, 1).update(X, Y).update(source, checkpoint=path) == expected
    plain, bare = pa.fit(source), pa.scan(lambda: [x for x, *_ in pairs()])
    for _ in range(2):
        found = pa.fit(source, checkpoint=tmp_path / "fit")
        np.testing.assert_array_equal(found.coef, plain.coef)
        made = pa.certify(bare, checkpoint=tmp_path / "certify")
        assert made.lambda_min == pa.certify(bare).lambda_min
    for call, word in (
        (lambda: pa.fit(X, Y, checkpoint=path), "checkpoint"),
        (lambda: pa.certify(X, checkpoint=path), "checkpoint"),
        (lambda: pa.fit(source, solver="dual", checkpoint=path), "solver"),
        (lambda: pa.fit(source, ridge="loo", checkpoint=path), "ridge"),
    ):
        with pytest.raises(InvalidInput, match=word):
            call()


UNFIT = (
    (pa.TriangularFactor(2, 1), pairs(), "moments"),
    (pa.Moments(2, 1, bias=True), pairs(), "bias"),
    (pa.Moments(2, 1), pairs(4), "data|chunks"),
    (pa.Moments(2, 1), pairs(7), "chunks"),
    (pa.Moments(2, 1), pairs(factor=2.0), "item 0"),
    (pa.Moments(2, 1), pairs()[::-1], "item 0"),
    (pa.Moments(2, 1), [pair[:2] for pair in pairs()], "item 0"),
    (pa.Moments(2, 1, form=pa.Form(key=np.exp)), pairs(), "function"),
)


def test_a_checkpoint_of_something_else_is_refused_and_kept(tmp_path):
    path, source = tmp_path / "state", pa.scan(pairs())
    pa.Moments(2, 1).update(source, checkpoint=path)
    good = path.read_bytes()
    for sums, data, word in UNFIT:
        with pytest.raises(InvalidInput, match=word):
            sums.copy().update(pa.scan(data), checkpoint=path)
        assert path.read_bytes() == good
    with pytest.raises(FileFormatError, match="checkpoint"):
        pa.load(path)
    pa.Moments(2, 1).save(path)
    sums = path.read_bytes()
    for content in (good[:-9], good[:-1] + bytes([good[-1] ^ 1]), b"", b"notes", sums):
        path.write_bytes(content)
        with pytest.raises(FileFormatError, match="state"):
            pa.Moments(2, 1).update(source, checkpoint=path)
        assert path.read_bytes() == content
    for other in ("state.npz", "none/state", "."):
        with pytest.raises(InvalidInput, match=r"checkpoint|exist|folder"):
            pa.Moments(2, 1).update(source, checkpoint=tmp_path / other)
    assert [*tmp_path.iterdir()] == [path]
