"""Every call that takes sequences gives the same for a source of them."""

import numpy as np
import pytest

import polyattn as pa
from form_cases import CASES
from polyattn.errors import InvalidInput
from polyattn.fitting import from_source
from polyattn.sources import opened as opening


def data(mode, ragged=True, weighted=False, count=60, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = [
        rng.standard_normal((n, d)) for n in (rng.integers(1, 9, count) if ragged else [5] * count)
    ]
    Y = (
        rng.standard_normal((count, 2))
        if mode == "last"
        else [rng.standard_normal((len(x), 2)) for x in X]
    )
    return X, Y, rng.random(count) if weighted else None


def assert_same_outputs(found, wanted):
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-12)


OPTIONS = (
    {}, {"ridge": 0.1}, {"ridge": "loo"}, {"ridge": "gcv"}, {"solver": "dual"},
    {"solver": "direct"}, {"solver": "iterative"}, {"n_heads": 1},
)  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(("mode", "ragged", "weighted"), [
    ("last", True, True), ("causal", False, True), ("full", True, False),
])  # fmt: skip
def test_fit(mode, ragged, weighted, options):
    X, Y, weights = data(mode, ragged, weighted)
    wanted = pa.fit(X, Y, mode, sample_weight=weights, **options)
    source = pa.scan(X, Y, weights, chunk_bytes=800)
    assert len(source.chunks) > 5
    found = pa.fit(source, mode=mode, **options)
    # A search for few heads ends where its risk is flat: moments of arrays end as far away.
    rtol = 1e-6 if "n_heads" in options else 1e-9
    np.testing.assert_allclose(found.coef, wanted.coef, rtol=rtol, atol=rtol / 100)
    assert found.risk == pytest.approx(wanted.risk, rel=1e-10)
    assert found.outcome.name == wanted.outcome.name
    assert_same_outputs(found.predict(source), found.predict(X))
    if not options and mode == "last":  # few heads are searched for only once
        assert_same_outputs(found.layer(source), found.layer(X))


@pytest.mark.parametrize("condition", [1.0, 1e2, 1e4, 1e8])
@pytest.mark.parametrize("noise", [1.0, 1e-6, 0.0])
def test_sums_alone_are_taken_only_where_they_are_as_good(condition, noise, monkeypatch):
    rng = np.random.default_rng(1)
    d, turn = 3, np.linalg.qr(rng.standard_normal((3, 3)))[0]
    X = rng.standard_normal((300, 6, d)) * np.geomspace(1, condition ** (-1 / 3), d) @ turn
    layer = pa.LinearAttention(rng.standard_normal((2, d, d)), rng.standard_normal((2, d, 2)))
    Y = layer(X)
    Y = Y + noise * np.std(Y) * rng.standard_normal(Y.shape)
    passes = []
    real = from_source.Rows.build

    def build(X, *given, **options):
        passes.append(X)
        return real(X, *given, **options)

    monkeypatch.setattr(from_source.Rows, "build", build)
    source, wanted = pa.scan(X, Y, chunk_bytes=5000), pa.fit(X, Y)
    passes.clear()
    found = pa.fit(source)
    scale = np.abs(wanted.coef).max()
    np.testing.assert_allclose(found.coef, wanted.coef, rtol=0, atol=1e-10 * scale)
    assert found.risk == pytest.approx(wanted.risk, rel=1e-9, abs=1e-25 * float(np.mean(Y**2)))
    assert found.outcome.name == wanted.outcome.name
    # Whether the rows were opened after the sums.
    assert (source in passes) == (wanted.condition > from_source.SAFE_CONDITION or noise < 1e-4)


def test_fit_reads_the_source_once_where_sums_suffice(monkeypatch):
    X, Y, _ = data("last", count=200)
    source = pa.scan(X, Y, chunk_bytes=2000)

    def refused(*_):
        raise AssertionError("opened")

    monkeypatch.setattr(opening, "read_chunk", refused)
    assert pa.fit(source).solver == "primal"
    with pytest.raises(AssertionError, match="opened"):  # the control: it would be noticed
        pa.fit(source, ridge="loo")


@pytest.mark.parametrize("case", CASES[::11], ids=str)
def test_certificates_of_all_forms(case):
    X, context = case.batch, case.context
    source = pa.scan(X, None, None, context, chunk_bytes=100)
    wanted = pa.certify(X, form=case.form, context=context)
    found = pa.certify(source, form=case.form)
    for name in ("verdict", "digest", "method", "rank", "n_rows", "n_sequences"):
        assert getattr(found, name) == getattr(wanted, name), name
    assert pa.verify(found, source)
    assert pa.verify(wanted, source)


@pytest.mark.parametrize("case", CASES[1::17], ids=str)
def test_fits_of_all_forms(case):
    rng = np.random.default_rng(3)
    n_rows = case.batch.n_rows(case.form.mode)
    Y = rng.standard_normal((n_rows, 1))
    if case.form.mode != "last":
        Y = pa.SequenceBatch(Y, case.batch.offsets)
    form, context = case.form, case.context
    wanted = pa.fit(case.batch, Y, form=form, context=context, ridge=0.1)
    source = pa.scan(case.batch, Y, None, context, chunk_bytes=100)
    found = pa.fit(source, form=form, ridge=0.1)
    np.testing.assert_allclose(found.coef, wanted.coef, rtol=1e-8, atol=1e-10)
    assert_same_outputs(found.predict(source), found.predict(case.batch, context))


@pytest.mark.parametrize("kind", ["integers", "large", "decimals", "dependent", "few"])
def test_verdicts_on_every_kind_of_numbers(kind):
    rng = np.random.default_rng(0)
    X = rng.integers(-5, 6, (60, 4, 2))
    if kind == "large":
        X = X * 2**54 + 1
    elif kind == "decimals":
        X = X / 10
    elif kind == "dependent":
        X = rng.standard_normal((60, 4, 1)) * np.array([1.0, 0.1])
    elif kind == "few":
        X = X[:3]
    source = pa.scan(X, chunk_bytes=200)
    for mode in ("last", "causal"):
        wanted, found = pa.certify(X, mode), pa.certify(source, mode)
        for name in ("verdict", "digest", "method", "rank"):
            assert getattr(found, name) == getattr(wanted, name), name
        assert pa.verify(found, source)
        assert pa.verify(found, X)
    assert not pa.verify(found, pa.scan(X + 1, chunk_bytes=200))


@pytest.mark.parametrize("mode", ["last", "causal"])
@pytest.mark.parametrize("weighted", [False, True])
def test_audit(mode, weighted):
    X, Y, weights = data(mode, weighted=weighted)
    if weighted:
        weights[::7] = 0.0
    layer = pa.fit(X, Y, mode, ridge=1.0)
    source = pa.scan(X, Y, weights, chunk_bytes=800)
    for domain in ("real", pa.domains.Real(lengths=(1, 8))):
        wanted = pa.audit(layer, X, Y, sample_weight=weights, domain=domain)
        found = pa.audit(layer, source, domain=domain)
        for name in ("risk", "optimal_risk", "gap", "distance"):
            assert getattr(found, name) == pytest.approx(getattr(wanted, name), rel=1e-9), name
        assert found.certificate.verdict == wanted.certificate.verdict


@pytest.mark.parametrize("mode", ["last", "causal"])
def test_regressor(mode):
    X, Y, weights = data(mode, weighted=True)
    source = pa.scan(X, Y, weights, chunk_bytes=800)
    wanted = pa.LinearAttentionRegressor(mode=mode).fit(X, Y, weights)
    for found in (
        pa.LinearAttentionRegressor(mode=mode).fit(source),
        pa.LinearAttentionRegressor(mode=mode).partial_fit(source),
        pa.LinearAttentionRegressor(mode=mode, solver="direct").partial_fit(source),
    ):
        np.testing.assert_allclose(found.coef_, wanted.coef_, rtol=1e-9, atol=1e-11)
        assert found.score(source) == pytest.approx(wanted.score(X, Y, weights), rel=1e-10)
        assert_same_outputs(found.predict(source), wanted.predict(X))
        assert found.certificate_.verdict == wanted.certificate_.verdict
    bounds = found.predict(source, return_bound=True)[1]
    assert_same_outputs(bounds, found.predict(X, return_bound=True)[1])


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize(("mode", "n_classes"), [("last", 3), ("causal", 2)])
def test_classifier(loss, mode, n_classes):
    X, _, weights = data(mode, weighted=True, d=2)
    rng = np.random.default_rng(5)
    labels = [rng.integers(0, n_classes, 1 if mode == "last" else len(x)) * 10 for x in X]
    y = np.concatenate(labels) if mode == "last" else labels
    source = pa.scan(X, y, weights, chunk_bytes=500)
    wanted = pa.LinearAttentionClassifier(mode=mode, loss=loss).fit(X, y, weights)
    found = pa.LinearAttentionClassifier(mode=mode, loss=loss).fit(source)
    np.testing.assert_array_equal(found.classes_, wanted.classes_)
    np.testing.assert_allclose(found.coef_, wanted.coef_, rtol=1e-8, atol=1e-10)
    assert found.score(source) == pytest.approx(wanted.score(X, y, weights))
    assert_same_outputs(found.predict(source), wanted.predict(X))


def test_checkpoints(tmp_path):
    X, Y, _ = data("last", count=200)
    source = pa.scan(X, Y, chunk_bytes=2000)
    first = pa.fit(source, checkpoint=tmp_path / "fit.safetensors")
    again = pa.fit(source, checkpoint=tmp_path / "fit.safetensors")
    np.testing.assert_array_equal(first.coef, again.coef)
    assert (tmp_path / "fit.safetensors").exists()
    made = pa.certify(source, checkpoint=tmp_path / "made.safetensors")
    assert made.lambda_min == pa.certify(source).lambda_min
    assert (tmp_path / "made.safetensors").exists()
    ones = pa.scan(np.ones((4, 3, 2)))
    for call, words in (
        (lambda: pa.fit(X, Y, checkpoint="c"), "polyattn.scan"),
        (lambda: pa.certify(X, checkpoint="c"), "polyattn.scan"),
        (lambda: pa.fit(source, solver="dual", checkpoint="c"), "solver='dual'"),
        (lambda: pa.fit(source, ridge="loo", checkpoint="c"), "ridge='loo'"),
        (lambda: pa.certify(ones, domain="boolean", checkpoint="c"), "those of the domain"),
    ):
        with pytest.raises(InvalidInput, match=words):
            call()


def test_what_is_refused_beside_a_source():
    X, Y, weights = data("last", weighted=True)
    source, bare = pa.scan(X, Y, weights), pa.scan(X)
    layer, regressor = pa.fit(X, Y), pa.LinearAttentionRegressor()
    certificate = pa.certify(X)
    fitted = pa.LinearAttentionRegressor().fit(X, Y)
    classifier = pa.LinearAttentionClassifier(ridge=1.0).fit(X, np.arange(len(X)) % 2)
    for call, words in (
        (lambda: pa.fit(source, Y), "leave out Y"),
        (lambda: pa.fit(source, sample_weight=weights), "leave out sample_weight"),
        (lambda: pa.fit(bare), "no targets"),
        (lambda: pa.fit(source, mode="causal"), "mode"),
        (lambda: pa.certify(source), "holds weights"),
        (lambda: pa.certify(bare, context=X), "leave out context"),
        (lambda: pa.certify(bare, statistics=layer.statistics), "not both"),
        (lambda: pa.verify(certificate, bare, context=X), "leave out context"),
        (lambda: pa.audit(layer, source, Y), "leave out Y"),
        (lambda: pa.audit(layer, bare), "source with both"),
        (lambda: pa.audit(layer, X), "source with both"),
        (lambda: layer.predict(bare, context=X), "leave out context"),
        (lambda: pa.learning_curve(source, None), "at random"),
        (lambda: pa.SoftmaxAttentionRegressor().fit(source, Y), "arrays in memory"),
        (lambda: regressor.fit(X), "requires y to be passed"),
        (lambda: regressor.partial_fit(X), "requires y to be passed"),
        (lambda: regressor.fit(bare), "no targets"),
        (lambda: regressor.partial_fit(bare), "no targets"),
        (lambda: fitted.score(bare), "no targets"),
        (lambda: classifier.score(bare), "no targets"),
        (lambda: layer.predict(pa.scan([x[:, :2] for x in X])), "3 coordinates"),
    ):
        with pytest.raises(InvalidInput, match=words):
            call()
