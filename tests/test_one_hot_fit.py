"""Fits of token ids by counts of symbols find the optimum that dense tokens have."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

import polyattn as pa
from exact_least_squares import matrix, numbers, rational
from polyattn.errors import FileFormatError, InvalidInput, InvalidType, OutOfRange
from polyattn.features.symbol_counts import DENSE_SYMBOLS, query_groups, refusal
from polyattn.model import symbol_table
from polyattn.sequences import SequenceBatch
from polyattn.solve import symbol_groups
from polyattn.solve.symbol_groups import solve_group

FORMS = {
    "last": pa.Form(),
    "causal": pa.Form(mode="causal"),
    "full": pa.Form(mode="full"),
    "others": pa.Form(mode="full", include_query=False),
    "mean of others": pa.Form(mode="full", include_query=False, mean=True),
    "in context": pa.Form(include_query=False, mean=True),
    "window": pa.Form(mode="causal", window=2),
    "window of others": pa.Form(mode="causal", window=3, include_query=False, mean=True),
    "decay": pa.Form(mode="causal", decay=0.5),
    "decay of the last": pa.Form(decay=0.25, include_query=False),
}


def ids_of(n_symbols, lengths, seed=0):
    rng = np.random.default_rng(seed)
    return SequenceBatch.from_ids([rng.integers(n_symbols, size=n) for n in lengths], n_symbols)


def targets_of(batch, mode, n_outputs=2, seed=1):
    rng = np.random.default_rng(seed)
    if mode == "last":
        return rng.standard_normal((len(batch), n_outputs))
    return [rng.standard_normal((n, n_outputs)) for n in batch.lengths]


def flat(outputs):
    return np.concatenate(outputs) if isinstance(outputs, list) else outputs


def both(batch, Y, form, ridge=0.0, weights=None):
    sparse = pa.fit(batch, Y, form=form, ridge=ridge, solver="one_hot", sample_weight=weights)
    dense = pa.fit(list(batch), Y, form=form, ridge=ridge, sample_weight=weights)
    return sparse, dense


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_the_optimum_is_that_of_dense_tokens(name, ridge):
    form, rng = FORMS[name], np.random.default_rng(3)
    for n_symbols, n_sequences in ((3, 40), (6, 5), (1, 4), (2, 1)):
        batch = ids_of(n_symbols, rng.integers(1, 7, size=n_sequences), seed=n_symbols)
        Y = targets_of(batch, form.mode)
        for weights in (None, rng.integers(0, 3, size=n_sequences) + np.eye(n_sequences)[0]):
            sparse, dense = both(batch, Y, form, ridge, weights)
            np.testing.assert_allclose(sparse.coef, dense.coef, atol=1e-9)
            assert sparse.risk == pytest.approx(dense.risk, abs=1e-12)
            if ridge or dense.rank:
                assert (sparse.outcome.name, sparse.rank) == (dense.outcome.name, dense.rank)
            outputs = flat(sparse.predict(batch))
            np.testing.assert_allclose(outputs, flat(dense.predict(batch)), atol=1e-9)
            np.testing.assert_allclose(outputs, flat(sparse.predict(list(batch))), atol=1e-12)
            np.testing.assert_allclose(outputs, flat(sparse.layer(batch)), atol=1e-9)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_ids_have_the_optimum_of_dense_tokens(data):
    n_symbols = data.draw(st.integers(1, 4))
    symbol = st.integers(0, n_symbols - 1)
    ids = data.draw(st.lists(st.lists(symbol, min_size=1, max_size=4), min_size=1, max_size=9))
    mode = data.draw(st.sampled_from(["last", "causal", "full"]))
    ridge = data.draw(st.sampled_from([0.0, 1e-3, 2.0]))
    batch = SequenceBatch.from_ids(ids, n_symbols)
    sparse, dense = both(batch, targets_of(batch, mode, 1), pa.Form(mode=mode), ridge)
    np.testing.assert_allclose(sparse.coef, dense.coef, atol=1e-8)
    assert (sparse.outcome.name, sparse.rank) == (dense.outcome.name, dense.rank)
    assert sparse.n_occurring == sparse.table.n_pairs <= n_symbols**2


@pytest.mark.parametrize("mode", ["last", "causal", "full"])
def test_a_planted_table_comes_back(mode):
    d, rng = 12, np.random.default_rng(0)
    theta = rng.standard_normal((d, d, 2))  # [asked, seen]
    ids = rng.integers(d, size=(600 if mode == "last" else 150, 6))
    seen = {
        "last": lambda s: [theta[s[-1], s].sum(0)],
        "causal": lambda s: [theta[s[t], s[: t + 1]].sum(0) for t in range(len(s))],
        "full": lambda s: [theta[s[t], s].sum(0) for t in range(len(s))],
    }[mode]
    Y = np.array([seen(s) for s in ids])
    Y = Y[:, 0] if mode == "last" else Y
    batch = SequenceBatch.from_ids(ids, d)
    found = pa.fit(batch, Y, mode, solver="one_hot")
    assert found.rank == found.n_occurring == d * d
    for output, learned in enumerate(found.table.matrices()):
        np.testing.assert_allclose(learned.toarray(), theta[:, :, output], atol=1e-9)
    assert found.risk < 1e-20
    assert "determine the coefficients of all these" in found.sentence
    # A negative control: other targets are not those of a table.
    assert pa.fit(batch, Y + rng.standard_normal(Y.shape), mode, solver="one_hot").risk > 0.1


def test_symbols_that_never_occur_have_coefficient_zero():
    batch = SequenceBatch.from_ids([[0, 2], [2, 0, 2]], 4)
    found = pa.fit(batch, [1.0, 2.0], solver="one_hot")
    assert found.n_occurring == 2
    assert set(found.table.queries) == {2}
    assert "2 of 16 pairs of symbols" in found.sentence
    assert np.array_equal(found.predict(SequenceBatch.from_ids([[1, 3]], 4)), [[0.0]])
    assert np.array_equal(found.predict(SequenceBatch.from_ids([[1, 2]], 4)), found.predict(
        SequenceBatch.from_ids([[3, 2]], 4)
    ))  # fmt: skip


def test_many_symbols_stay_sparse_and_few_do_not():
    few, many = ids_of(DENSE_SYMBOLS, [5] * 9), ids_of(DENSE_SYMBOLS + 1, [5] * 9)
    assert type(pa.fit(few, np.ones(9))) is pa.FitResult
    assert type(pa.fit(many, np.ones(9))) is pa.OneHotFit
    assert type(pa.fit(many, np.ones(9), bias=True)) is pa.FitResult
    assert type(pa.fit(many, np.ones(9), solver="dual")) is pa.FitResult


def test_wide_symbols_in_little_memory():
    rng = np.random.default_rng(0)
    batch = SequenceBatch.from_ids(rng.integers(5000, size=(300, 6)), 5000)
    found = pa.fit(batch, rng.standard_normal((300, 2)), ridge=0.1)
    assert found.n_features == 5000**2 * 5001 // 2
    with pytest.raises(InvalidInput, match="too many to be made dense"):
        _ = found.coef
    with pytest.raises(InvalidInput, match="heads of this layer would be"):
        _ = pa.fit(batch, rng.standard_normal((300, 6))).layer
    for refused in ({"n_heads": 1}, {"ridge": "loo"}, {"bias": True}, {"loss": "logistic"}):
        with pytest.raises(InvalidInput, match="too many"):
            pa.fit(batch, np.arange(300) % 2, **refused)
    assert found.predict(batch).shape == (300, 2)


def test_heads_are_no_more_than_symbols_or_outputs():
    batch = ids_of(3, [4] * 30)
    for n_outputs in (1, 3, 5):
        Y = targets_of(batch, "last", n_outputs)
        found = pa.fit(batch, Y, solver="one_hot")
        assert found.layer.n_heads == min(3, n_outputs)
        np.testing.assert_allclose(found.layer(batch), found.predict(batch), atol=1e-12)


@pytest.mark.parametrize("size", [1e-150, 1e150])
def test_targets_and_weights_of_any_size(size):
    batch = ids_of(4, [3] * 30)
    Y = targets_of(batch, "last")
    usual = pa.fit(batch, Y, solver="one_hot", ridge=0.5)
    large = pa.fit(batch, size * Y, solver="one_hot", ridge=0.5)
    np.testing.assert_allclose(large.table.values / size, usual.table.values, rtol=1e-12)
    np.testing.assert_allclose(large.predict(batch) / size, usual.predict(batch), rtol=1e-9)
    weighted = pa.fit(batch, Y, solver="one_hot", ridge=0.5 * size, sample_weight=np.full(30, size))
    np.testing.assert_allclose(weighted.table.values, usual.table.values, rtol=1e-12)
    assert weighted.risk == pytest.approx(usual.risk)


@pytest.mark.parametrize("ridge", [0.0, 1e-200, 1e300])
@pytest.mark.parametrize("weights", [(1e150, 1e-200, 1.0), (5e-324, 1.0, 1.0)])
def test_weights_that_vanish_beside_others_still_count_in_their_group(weights, ridge):
    batch = SequenceBatch.from_ids([[0, 1], [2, 3], [1, 0]], 4)
    Y = np.array([1.0, 2.0, 3.0])
    found = pa.fit(batch, Y, solver="one_hot", sample_weight=weights, ridge=ridge)
    # Alone, a row of two ones has the output 2 w y / (2 w + ridge).
    shares = [1 / (1 + ridge / 2 / weight) for weight in weights]
    np.testing.assert_allclose(found.predict(batch)[:, 0], shares * Y, rtol=1e-9, atol=1e-140)
    assert found.rank == (3 if ridge == 0 else None)


def test_groups_are_solved_alike_by_every_method(monkeypatch):
    rng = np.random.default_rng(0)
    for rows, k in ((40, 12), (12, 40), (20, 20)):
        counts = csr_array(rng.integers(0, 3, size=(rows, k)).astype(float))
        Y, weights = rng.standard_normal((rows, 2)), rng.uniform(0.5, 2.0, rows)
        for ridge in (0.0, 0.1):
            root = np.sqrt(weights)[:, None]
            if ridge:
                matrix = root * counts.toarray()
                gram = matrix.T @ matrix + ridge * np.eye(k)
                wanted = np.linalg.solve(gram, matrix.T @ (root * Y))
            else:
                wanted = np.linalg.lstsq(root * counts.toarray(), root * Y)[0]
            usual = solve_group(counts, Y, weights, ridge)
            with monkeypatch.context() as patched:
                patched.setattr(symbol_groups, "LEAST_RCOND", 2.0)
                by_root = solve_group(counts, Y, weights, ridge)
                patched.setattr(symbol_groups, "LARGEST_SIDE", 0)
                iterated = solve_group(counts, Y, weights, ridge)
            for found in (usual, by_root, iterated):
                np.testing.assert_allclose(found.theta, wanted, atol=1e-7)
            assert usual.rank == by_root.rank == (None if ridge else min(rows, k))
            assert iterated.rank is None
            assert iterated.is_reached


def test_tall_groups_are_factored_in_parts(monkeypatch):
    rng = np.random.default_rng(0)
    counts = csr_array(rng.integers(0, 2, size=(90, 5)).astype(float))
    Y = rng.standard_normal((90, 1))
    whole = solve_group(counts, Y, None, 0.0)
    monkeypatch.setattr(symbol_groups, "LEAST_RCOND", 2.0)
    monkeypatch.setattr(symbol_groups, "FACTORED_ROWS", 7)
    np.testing.assert_allclose(solve_group(counts, Y, None, 0.0).theta, whole.theta, atol=1e-12)


def test_an_iteration_that_stops_is_not_called_found(monkeypatch):
    batch = ids_of(4, [5] * 60)
    monkeypatch.setattr(symbol_groups, "LARGEST_SIDE", 0)
    found = pa.fit(batch, targets_of(batch, "last"), solver="one_hot")
    assert found.outcome.name == "iterative"
    assert not found.outcome.ok
    monkeypatch.setattr(symbol_groups, "MOST_PASSES", 1)
    found = pa.fit(batch, targets_of(batch, "last"), solver="one_hot", ridge=0.1)
    assert "approached" in found.sentence
    assert not found.outcome.ok


@pytest.mark.parametrize(
    ("ridge", "is_found"), [(1e-3, True), (1e-8, True), (1e-14, False), (1e-20, False)]
)
@pytest.mark.parametrize("weight", [1.0, 2.0**-40])
def test_a_ridge_that_rounding_hides_is_named(ridge, is_found, weight):
    """Symbols 1 and 2 come together, 3 and 4 in a fixed sum: the ridge alone divides between them.

    The truth is computed in rational numbers.
    """
    rng = np.random.default_rng(0)
    sequences = [
        np.repeat([1, 2, 3, 4, 5, 0], [one, one, two, 7 - two, three, 1])
        for one, two, three in rng.integers([0, 1, 0], [4, 6, 3], (60, 3))
    ]
    Y = rng.standard_normal((60, 1))
    batch, weights = SequenceBatch.from_ids(sequences, 6), np.full(60, weight)
    found = pa.fit(batch, Y, ridge=weight * ridge, sample_weight=weights, solver="one_hot")
    counts = matrix(np.array([np.bincount(each, minlength=6) for each in sequences], float))
    gram = counts.transpose() * counts
    for symbol in range(6):
        gram[symbol, symbol] += rational(ridge)
    truth = numbers(gram.solve(counts.transpose() * matrix(Y)))[:, 0]
    error = np.linalg.norm(found.table.matrices()[0].toarray()[0] - truth) / np.linalg.norm(truth)
    assert found.outcome.ok == is_found
    assert ("ridge is so small" in found.outcome.sentence) == (not is_found)
    assert (error < 1e-4) == is_found


def test_counts_do_not_depend_on_how_many_are_made_together(monkeypatch):
    batch = ids_of(5, [1, 7, 3, 6] * 5)
    whole = [group for groups in query_groups(batch, FORMS["causal"]) for group in groups]
    monkeypatch.setattr("polyattn.features.symbol_counts.ENTRIES", 10)
    parts = [group for groups in query_groups(batch, FORMS["causal"]) for group in groups]
    assert len(parts) == len(whole) == 5
    for one, two in zip(whole, parts, strict=True):
        assert one.query == two.query
        assert np.array_equal(one.rows, two.rows)
        assert np.array_equal(one.counts.toarray(), two.counts.toarray())


@pytest.mark.parametrize(
    "form",
    [
        pa.Form(bias=True), pa.Form(skip=True), pa.Form(intercept=True), pa.Form(lags=2),
        pa.Form(decay=[0.5, 0.9]), pa.Form(key=[0]), pa.Form(value=np.eye(3)),
    ],
)  # fmt: skip
def test_other_forms_are_refused(form):
    assert refusal(form)
    batch = ids_of(3, [4] * 9)
    with pytest.raises(InvalidInput, match="Another solver takes the ids as dense tokens"):
        pa.fit(batch, np.ones(9), form=form, solver="one_hot")


def test_what_counts_do_not_know_is_refused():
    batch = ids_of(3, [4] * 9)
    with pytest.raises(InvalidInput, match="needs token ids"):
        pa.fit(list(batch), np.ones(9), solver="one_hot")
    with pytest.raises(InvalidInput, match="zero everywhere"):
        pa.fit(batch, np.ones(9), solver="one_hot", sample_weight=np.zeros(9))
    with pytest.raises(InvalidInput, match="know no context"):
        pa.fit(batch, np.ones(9), solver="one_hot", context=batch)
    found = pa.fit(batch, np.ones(9), solver="one_hot")
    with pytest.raises(InvalidInput, match="about one-hot tokens; got another as sequence 0, tok"):
        found.predict([np.array([[0.0, 1.0, 0.0], [0.0, 2.0, 0.0]])])
    with pytest.raises(InvalidInput, match="tokens of 3 coordinates"):
        found.predict(ids_of(4, [2]))
    with pytest.raises(InvalidInput, match="no context"):
        found.predict(batch, batch)
    with pytest.raises(InvalidInput, match="Y"):
        pa.fit(batch, np.full(9, np.nan), solver="one_hot")
    with pytest.raises(OutOfRange):
        pa.fit(batch, np.repeat([[1e-300, 1e300]], 9, axis=0), solver="one_hot")
    with pytest.raises(InvalidType):
        pa.save(symbol_table, "somewhere.safetensors")


def test_files_hold_the_table(tmp_path):
    batch = ids_of(4, [3, 5] * 9)
    form = pa.Form(mode="causal", decay=0.5)
    found = pa.fit(batch, targets_of(batch, "causal"), form=form, solver="one_hot")
    pa.save(found, tmp_path / "fit.safetensors")
    same = pa.load(tmp_path / "fit.safetensors")
    assert type(same) is pa.OneHotFit
    assert same.to_dict() == found.to_dict()
    assert np.array_equal(flat(same.predict(batch)), flat(found.predict(batch)))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("borders", lambda a: a[::-1].copy()),
        ("borders", lambda a: a + 1),
        ("borders", lambda a: np.append(a[:-1], 2**60)),
        ("queries", lambda a: a[::-1].copy()),
        ("queries", lambda a: a + 3),
        ("symbols", lambda a: a[::-1].copy()),
        ("symbols", lambda a: a - 1),
        ("values", lambda a: a[:-1]),
        ("values", lambda a: a[:, :0]),
        ("values", lambda a: a * np.nan),
    ],
)
def test_damaged_tables_are_refused(name, change):
    batch = ids_of(4, [3] * 30)
    record = pa.fit(batch, targets_of(batch, "last"), solver="one_hot").to_record()
    record.arrays[name] = change(record.arrays[name])
    with pytest.raises(FileFormatError):
        pa.OneHotFit.from_record(record)


def test_pages_show_predictions(tmp_path):
    batch = ids_of(30, [4] * 20)
    Y = targets_of(batch, "last")
    found = pa.fit(batch, Y)
    found.report(tmp_path / "page.html", batch, Y)
    assert "pairs of symbols" in (tmp_path / "page.html").read_text()
    found.report(tmp_path / "page.html")
    assert "OneHotFit(30 symbols -> 2" in repr(found)
    assert found.to_dict()["n_occurring"] == found.n_occurring


@pytest.mark.parametrize("name", FORMS)
def test_heads_see_ids_as_they_see_dense_tokens(name):
    form, d, rng = FORMS[name], DENSE_SYMBOLS + 3, np.random.default_rng(0)
    layer = pa.LinearAttention(
        rng.standard_normal((2, d, d)), 1e200 * rng.standard_normal((2, d, 3)), form=form
    )
    batch = ids_of(d, [1, 5, 3, 8] * 3)
    np.testing.assert_allclose(flat(layer(batch)), flat(layer(list(batch))), rtol=1e-9)


def test_layers_of_other_forms_take_ids_as_dense_tokens():
    d, rng = DENSE_SYMBOLS + 1, np.random.default_rng(0)
    form = pa.Form(mode="causal", skip=True)
    skip = rng.standard_normal((d, 2))
    layer = pa.LinearAttention(
        rng.standard_normal((1, d, d)), rng.standard_normal((1, d, 2)), form=form, skip=skip
    )
    batch = ids_of(d, [4, 2])
    np.testing.assert_allclose(flat(layer(batch)), flat(layer(list(batch))), atol=1e-9)


def test_audits_take_fits_of_ids(tmp_path):
    batch = ids_of(DENSE_SYMBOLS + 1, [4] * 80)
    Y = targets_of(batch, "last")
    best = pa.audit(pa.fit(batch, Y), batch, Y)
    assert best.outcome.ok
    assert best.risk == pytest.approx(best.optimal_risk, abs=1e-12)
    worse = pa.audit(pa.fit(batch, Y, ridge=30.0), batch, Y)
    assert worse.gap > 1e-3
    pa.save(worse, tmp_path / "audit.safetensors")
    same = pa.load(tmp_path / "audit.safetensors")
    assert same.to_dict() == worse.to_dict()
    assert pa.verify(same.certificate, batch)
    wide = ids_of(200, [4] * 9)
    with pytest.raises(InvalidInput, match="an audit needs ids as dense tokens"):
        pa.audit(pa.fit(wide, np.ones(9)), wide, np.ones(9))


def test_estimators_take_ids():
    batch = ids_of(200, [4] * 30)
    Y = targets_of(batch, "last")
    model = pa.LinearAttentionRegressor(ridge=0.1).fit(batch, Y)
    assert isinstance(model.result_, pa.OneHotFit)
    np.testing.assert_allclose(model.predict(batch), pa.fit(batch, Y, ridge=0.1).predict(batch))
    with pytest.raises(InvalidInput, match="certify"):
        _ = model.certificate_
