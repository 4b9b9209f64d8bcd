"""The estimators: least squares and log-loss of the features, streams, labels, certificates."""

import copy
import io

import joblib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import accuracy_score, r2_score

import oracle
import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType, PolyattnError

REGRESSOR, CLASSIFIER = pa.LinearAttentionRegressor, pa.LinearAttentionClassifier
SOLVERS = ("primal", "dual", "direct", "iterative")
MODES = oracle.MODES


def optimum(X, rows, form, ridge, weights, Z):
    """Outputs of the minimiser, one row per predicted position; one weight per such row."""
    psi, n_queries = oracle.design(X, form, Z), len(oracle.summaries(X[0], form, Z and Z[0])[0][1])
    sizes = oracle.squared_sizes(form, (X if Z is None else Z)[0].shape[1], n_queries)
    return psi @ oracle.least_squares(psi, rows, sizes, ridge, weights)


def stacked(outputs):
    return np.concatenate(outputs) if isinstance(outputs, list) else np.asarray(outputs)


def noisy(mode="last", n_sequences=60, n_outputs=2, seed=0):
    """Tokens (N, 4, 3) and the outputs of a planted layer with some noise."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_sequences, 4, 3))
    Y = pa.data.random_layer(3, n_outputs, 2, mode, random_state=1)(X)
    return X, Y + 0.1 * rng.standard_normal(Y.shape)


@given(
    fields=oracle.forms(), seed=st.integers(0, 99), n_outputs=st.integers(1, 2),
    weighted=st.booleans(), ridge=st.sampled_from([0.03, 2.0]), cut=st.integers(1, 11),
    solver=st.sampled_from(["auto", *SOLVERS]), ragged=st.booleans(),
)  # fmt: skip
def test_a_regressor_is_least_squares_in_every_form_at_once_and_in_parts(
    fields, seed, n_outputs, weighted, ridge, cut, solver, ragged
):
    fields, n_context_dims = oracle.split_context(fields)
    form, rng = pa.Form(**fields), np.random.default_rng(seed)
    X = [rng.standard_normal((1 + i % 4 if ragged else 3, 3)) for i in range(12)]
    Z = oracle.contexts_for(X, fields, n_context_dims)
    counts = [len(oracle.predicted(len(x), fields["mode"])) for x in X]
    rows = rng.standard_normal((sum(counts), n_outputs))
    Y = rows if fields["mode"] == "last" else np.split(rows, np.cumsum(counts)[:-1])
    weights = rng.integers(0, 4, 12) + (np.arange(12) == 0) if weighted else np.ones(12)
    of_rows = np.repeat(weights, counts)
    expected = optimum(X, rows, fields, ridge, of_rows, Z)
    used = [i for i in range(12) if weights[i]]
    used_Z = None if Z is None else [Z[i] for i in used]
    verdicts = {pa.certify([X[i] for i in used], form=form, context=used_Z).verdict}
    if verdicts == {"not_identifiable"}:  # sums do not always tell what data refute
        verdicts |= {"undecided"}
    whole = REGRESSOR(form=form, ridge=ridge, solver=solver)
    whole.fit(X, Y, weights if weighted else None, context=Z)
    models = [whole]
    if solver in ("auto", "primal", "direct"):
        models.append(clone(whole))
        for some in (slice(0, cut), slice(cut, None)):
            models[1].partial_fit(X[some], Y[some], weights[some], context=Z and Z[some])
    for model in models:
        found = stacked(model.predict(X, context=Z))
        assert np.linalg.norm(found - expected) <= 1e-7 * np.linalg.norm(expected) + 1e-9
        score = r2_score(rows, expected, sample_weight=of_rows)
        assert model.score(X, Y, weights, context=Z) == pytest.approx(score, abs=1e-6)
        assert model.result_.form == form
        assert model.certificate_.verdict in verdicts


OPTIONS = [
    {"ridge": "loo"}, {"ridge": "gcv", "ridge_grid": [3.0, 30.0]}, {"ridge": 0.3, "bias": True},
    {"n_heads": 1, "head_rank": 1, "random_state": 3}, {"mode": "causal", "solver": "direct"},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_parameters_are_those_of_fit(options):
    X, Y = noisy(options.get("mode", "last"))
    weights = np.random.default_rng(1).random(60)
    model, expected = REGRESSOR(**options), pa.fit(X, Y, sample_weight=weights, **options)
    models = [clone(model).fit(X, Y, weights)]
    if "loo" not in options.values():
        parts = model.partial_fit(X[:50], Y[:50], weights[:50])
        models.append(parts.partial_fit(X[50:], Y[50:], weights[50:]))
    for each in models:
        np.testing.assert_allclose(each.coef_, expected.coef, rtol=1e-6, atol=1e-8)
        assert each.result_.ridge == pytest.approx(expected.ridge, rel=1e-9)
        if "n_heads" in options:
            np.testing.assert_allclose(each.layer_(X), expected.layer(X), atol=1e-6)


def test_predictions_have_the_axes_of_the_targets():
    X, Y = noisy("full")
    ragged = [x[: 1 + i % 4] for i, x in enumerate(X)]
    for y in (Y[:, -1, 0], Y[:, -1, :1], Y[:, 0]):
        outputs, bounds = REGRESSOR(ridge=0.1).fit(X, y).predict(X, return_bound=True)
        assert (outputs.shape, bounds.shape) == (y.shape, (60,))
    for y, axes in ((Y[..., 0], ()), (Y[..., :1], (1,)), (list(Y[..., 0]), ()), (Y, (2,))):
        outputs, bounds = REGRESSOR("full").fit(X, y).predict(ragged, return_bound=True)
        assert [each.shape for each in outputs] == [(len(x), *axes) for x in ragged]
        assert [each.shape for each in bounds] == [(len(x),) for x in ragged]


def test_softmax_heads_are_those_of_learn_softmax():
    task = pa.data.planted_softmax(60, 3, 2, n_heads=1, random_state=0)
    for options in ({"n_heads": 1}, {"max_heads": 1, "bias": True}):
        model = pa.SoftmaxAttentionRegressor(**options).fit(task.X, task.Y)
        expected = pa.learn_softmax(task.X, task.Y, **options)
        assert np.array_equal(model.predict(task.X), expected.layer(task.X))
        assert (model.recovered_, model.outcome_) == (expected.recovered, expected.outcome)
        weights, rows = np.arange(60.0), [a.reshape(-1, 2) for a in (task.Y, model.predict(task.X))]
        score = r2_score(*rows, sample_weight=np.repeat(weights, len(rows[0]) // 60))
        assert model.score(task.X, task.Y, sample_weight=weights) == pytest.approx(score)


@pytest.mark.parametrize("begin", ["partial_fit", "fit"])
def test_what_was_handed_out_does_not_move_with_the_stream(begin):
    X, Y = noisy(n_sequences=80)
    model = getattr(REGRESSOR(solver="primal"), begin)(X[:10], Y[:10])
    first, certificate = model.result_, model.certificate_
    model.partial_fit(X[10:], Y[10:])
    assert (first.statistics.n_rows, model.result_.statistics.n_rows) == (10, 80)
    assert certificate.verdict == "not_identifiable"
    assert model.certificate_.verdict == "identifiable"
    np.testing.assert_allclose(model.coef_, REGRESSOR().fit(X, Y).coef_, atol=1e-9)
    # Parameters count from the call that saw them.
    model.set_params(ridge=1.0)
    assert model.result_.ridge == 0.0
    assert model.partial_fit(X, Y).result_.ridge == 1.0
    assert "Not solved yet" in str(model.partial_fit(X, Y))


@pytest.mark.parametrize("labels", [None, np.array(["b", "a", "c"])], ids=["numbers", "labels"])
def test_sources_are_the_arrays_they_hold(labels, tmp_path):
    model = REGRESSOR("causal", ridge=0.1) if labels is None else CLASSIFIER(ridge=1.0)
    X, Y = noisy(model.mode, 50, 1)
    y = Y[..., 0] if labels is None else labels[np.digitize(Y[:, 0], [-0.5, 0.5])]
    classes = {} if labels is None else {"classes": np.unique(labels)}
    if classes:  # no file has all of them
        X, y = X[np.argsort(y)], np.sort(y)
    for name, some in (("1", slice(20)), ("2", slice(20, None))):
        np.savez(tmp_path / f"{name}.npz", X=X[some], Y=y[some])
    source, expected = pa.scan([tmp_path / "1.npz", tmp_path / "2.npz"]), clone(model).fit(X, y)
    for fitted in (clone(model).fit(source), clone(model).partial_fit(source, **classes)):
        question = "decision_function" if classes else "predict"
        answers = getattr(fitted, question)(source, return_bound=True)
        for found, wanted in zip(
            answers, getattr(expected, question)(X, return_bound=True), strict=True
        ):
            np.testing.assert_allclose(stacked(found), wanted.reshape(np.shape(stacked(found))))
        assert fitted.score(source) == pytest.approx(expected.score(X, y))


@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_certifies_the_sequences_that_count(solver):
    X, Y = noisy()
    model = REGRESSOR(solver=solver, ridge=1e-3).fit(X, Y)
    expected, found = pa.certify(X), model.certificate_
    assert (found.verdict, found.n_features, found.n_rows) == ("identifiable", 18, 60)
    assert found.lambda_min == pytest.approx(expected.lambda_min)
    few = REGRESSOR(solver=solver).fit(X, Y, np.arange(60) < 15)
    assert few.certificate_.verdict == "not_identifiable"
    assert np.all(np.isinf(few.predict(X, return_bound=True)[1]))
    for n in (17, 18):  # as many equations as unknowns can be enough
        found = REGRESSOR(solver=solver, ridge=1e-3).fit(X[:n], Y[:n]).certificate_
        assert (found.verdict == "not_identifiable") == (n == 17)
    if solver != "primal":  # sums do not know which sequences they are of
        found = REGRESSOR(solver=solver).fit(X[:10], Y[:10]).certificate_
        assert pa.verify(found, X[:10])
        assert not pa.verify(found, X[9::-1])


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("n", [10, 200])
def test_no_sequences_are_kept(solver, n):
    X, Y = noisy(n_sequences=200)
    mine = X[:n].copy()
    model = REGRESSOR(solver=solver, ridge=0.1).fit(mine, Y[:n])
    before, held = model.predict(X, return_bound=True), io.BytesIO()
    joblib.dump(model, held)
    assert not any(x.tobytes() in held.getvalue() for x in mine)
    mine[:] = 0.0
    # Copies make their certificate again.
    again = copy.deepcopy(model).predict(X, return_bound=True)
    assert all(map(np.array_equal, again, before))


@pytest.mark.parametrize("mode", MODES)
def test_the_bound_covers_every_layer_that_fits_as_well(mode):
    X, Y = noisy(mode)
    new = np.random.default_rng(5).standard_normal((30, 4, 3))
    best = pa.fit(X, Y, mode)
    assert np.max(REGRESSOR(mode).fit(X, Y).predict(new, return_bound=True)[1]) < 1e-8
    for options in ({"ridge": 20.0}, {"n_heads": 1}):
        model = REGRESSOR(mode, **options).fit(X, Y)
        bound, risk = model.predict(new, return_bound=True)[1], model.result_.risk
        expected = pa.certify(X, mode=mode).bound(new, risk, optimal_risk=best.risk)
        np.testing.assert_allclose(bound, expected, rtol=1e-6)
        assert pa.audit(model, X, Y).gap == pytest.approx(risk - best.risk, rel=1e-6)
    times = np.random.default_rng(2).integers(1, 4, len(X))
    weighted = REGRESSOR(mode, ridge=5.0).fit(X, Y, times).predict(X, return_bound=True)[1]
    repeated = REGRESSOR(mode, ridge=5.0).fit(np.repeat(X, times, 0), np.repeat(Y, times, 0))
    np.testing.assert_allclose(weighted, repeated.predict(X, return_bound=True)[1], rtol=1e-6)
    # In other units of the tokens the bound is the same.
    large = REGRESSOR(mode, ridge=np.ldexp(5.0, 600)).fit(np.ldexp(X, 100), Y, times)
    found = large.predict(np.ldexp(X, 100), return_bound=True)[1]
    np.testing.assert_allclose(found, weighted, rtol=1e-6)


X3, SCORES = noisy(n_sequences=120, n_outputs=3, seed=3)
CODES = np.argmax(SCORES + np.random.default_rng(4).gumbel(size=SCORES.shape), axis=1)
KEPT = (CODES == 0) | (np.arange(120) % 3 == 0)  # classes of unequal size
X3, SCORES, CODES = X3[KEPT], SCORES[KEPT], CODES[KEPT]
NAMES = np.array(["c", "a", "b"])[CODES]
N, WEIGHTS = len(X3), np.random.default_rng(1).random(len(X3)) + 0.2
ABC, LOG, BALANCED = ["a", "b", "c"], {"loss": "logistic"}, {"class_weight": "balanced"}
#: Labels in ascending order; of booleans there are two.
KINDS = [
    np.array([3, 5, 9], np.int8), np.array([False, True]), np.array(["no", "perhaps", "yes"]),
    np.array([1.0, 2.0, 4.0]), np.array(["None", "a", "nan"], object), np.array([-7, 0, 2**63 - 1]),
]  # fmt: skip


def test_decisions_have_the_bounds_of_the_fit_of_their_indicators():
    for y, targets in ((CODES, np.eye(3)[CODES]), (CODES > 0, np.where(CODES > 0, 1.0, -1.0))):
        model = CLASSIFIER(ridge=1.0, bias=False).fit(X3, y)
        expected = REGRESSOR(ridge=1.0).fit(X3, targets).predict(X3, return_bound=True)
        found = model.decision_function(X3, return_bound=True)
        for each, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(each, other)


def weights_by_hand(class_weight, weights, y):
    """Weights of sequences times those of their classes."""
    if class_weight == "balanced":
        own = {name: weights[y == name].sum() for name in set(y)}
        class_weight = {name: weights.sum() / len(own) / own[name] for name in own}
    return weights * [(class_weight or {}).get(name, 1.0) for name in y]


def by_scikit_learn(loss, phi, y, weights):
    """Probabilities of classes, or their scores less those of the first; and the labels."""
    if loss == "logistic":
        theirs = LogisticRegression(C=1.0, tol=1e-10, max_iter=2000, fit_intercept=False)
        theirs.fit(phi, y, sample_weight=weights)
        return theirs.predict_proba(phi), theirs.predict(phi)
    theirs = RidgeClassifier(alpha=1.0, fit_intercept=False).fit(phi, y, sample_weight=weights)
    scores = theirs.decision_function(phi)
    # Their indicators are -1 and 1, and ours 0 and 1: of two classes -1 and 1 in both.
    scores = np.stack([0 * scores, scores], axis=1) if scores.ndim == 1 else scores / 2
    return scores - scores[:, :1], theirs.predict(phi)


@pytest.mark.parametrize(
    ("loss", "in_parts"), [("squared", False), ("squared", True), ("logistic", False)]
)
@given(
    kind=st.sampled_from(KINDS), n_classes=st.integers(2, 3), weighted=st.booleans(),
    class_weight=st.sampled_from([None, "balanced", [4.0, 0.5, 2.0], [3.0]]),
    mode=st.sampled_from(["last", "last", "causal"]), ragged=st.booleans(), bias=st.booleans(),
)  # fmt: skip
def test_classes_are_those_of_ridge_classifier_and_logistic_regression(
    loss, in_parts, kind, n_classes, weighted, class_weight, mode, ragged, bias
):
    kind, rng = kind[:n_classes], np.random.default_rng(4)
    X = [x[: 1 + i % 4] for i, x in enumerate(X3)] if ragged else X3
    shown = [x[oracle.predicted(len(x), mode)][:, : len(kind)] for x in X]
    y = [kind[np.argmax(each + rng.gumbel(size=each.shape), axis=1)] for each in shown]
    rows, counts = np.concatenate(y), [len(each) for each in y]
    y = rows if mode == "last" else y
    if isinstance(class_weight, list):
        class_weight = dict(zip(kind.tolist(), class_weight, strict=False))
    if mode != "last" or (in_parts and class_weight == "balanced"):
        class_weight = None
    ridge, weights = (0.5 if loss == "logistic" else 1.0), WEIGHTS if weighted else None
    model = CLASSIFIER(mode, ridge, loss=loss, bias=bias, class_weight=class_weight)
    for some in (slice(30), slice(30, None)) if in_parts else ():
        model.partial_fit(X[some], y[some], kind, weights[some] if weighted else None)
    if not in_parts:
        model.fit(X, y, weights)
    of_rows, fields = np.repeat(WEIGHTS, counts), {"mode": mode, "bias": bias}
    total = weights_by_hand(class_weight, of_rows if weighted else np.ones(len(rows)), rows)
    phi = oracle.design(list(X), fields) / np.sqrt(oracle.squared_sizes(fields, 3, 3 + bias))
    expected, labels = by_scikit_learn(loss, phi, rows, total)
    scores = stacked(model.decision_function(X)).reshape(len(rows), -1)
    scores = np.hstack([0 * scores, scores]) if len(kind) == 2 else scores - scores[:, :1]
    if loss == "logistic":
        chances = stacked(model.predict_proba(X)).reshape(len(rows), -1)
        np.testing.assert_allclose(chances, expected, atol=1e-5)
        np.testing.assert_allclose(np.log(chances / chances[:, :1]), scores, atol=1e-9)
    else:
        np.testing.assert_allclose(scores, expected, atol=1e-8)
    predicted = stacked(model.predict(X)).ravel()
    assert np.array_equal(predicted, labels)
    assert model.classes_.tolist() == kind.tolist()
    right = accuracy_score(rows, predicted, sample_weight=of_rows)
    assert model.score(X, y, WEIGHTS) == pytest.approx(right)
    share = max(total[rows == label].sum() for label in kind) / total.sum()
    assert model.majority_share_ == pytest.approx(share)
    if not in_parts:
        right = accuracy_score(rows, predicted, sample_weight=total)
        assert model.training_accuracy_ == pytest.approx(right)


def test_classes_without_weight_are_known_and_never_predicted():
    for options, weights in ((BALANCED, NAMES != "b"), ({"class_weight": {"b": 0.0}}, None)):
        absent = CLASSIFIER(**options).fit(X3, NAMES, weights)
        assert absent.classes_.tolist() == ABC
        assert "b" not in absent.predict(X3)


def test_defaults_and_probabilities():
    form = pa.Form(skip=True, intercept=True)
    # A form says itself whether there is a bias; a classifier has one otherwise.
    for options, used in (({}, pa.Form(bias=True)), ({"form": form}, form)):
        assert CLASSIFIER(**options).fit(X3, NAMES).result_.form == used
    path = CLASSIFIER().fit(X3, NAMES).result_.ridge_path
    model, logistic = CLASSIFIER().fit(X3, NAMES), CLASSIFIER(loss="logistic").fit(X3, NAMES)
    assert model.result_.ridge == path.ridges[path.errors.argmin()] > 0
    assert logistic.result_.ridge == 0.5
    assert not hasattr(model, "predict_proba")
    with pytest.raises(AttributeError, match="loss='logistic'"):
        model.predict_proba(X3)
    with pytest.raises(InvalidInput, match="squared error"):
        model.set_params(loss="logistic").predict_proba(X3)
    with pytest.raises(InvalidInput, match="return_bound"):
        logistic.decision_function(X3, return_bound=True)
    with pytest.raises(InvalidInput, match="log-loss"):
        pa.audit(logistic, X3, CODES)


SETS = (SCORES / SCORES.std() + np.random.default_rng(5).logistic(size=SCORES.shape) > 0.3) * 1


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weighted"])
@pytest.mark.parametrize("options", [{"ridge": 2.0}, {"ridge": 0.3, "loss": "logistic"}], ids=str)
def test_each_label_of_several_is_a_fit_of_two_classes(weights, options):
    model = CLASSIFIER(**options).fit(X3, SETS, weights)
    alone = [CLASSIFIER(**options).fit(X3, column, weights) for column in SETS.T]
    np.testing.assert_allclose(model.coef_, np.concatenate([m.coef_ for m in alone]), rtol=1e-9)
    scores = np.stack([m.decision_function(X3) for m in alone], axis=1)
    np.testing.assert_allclose(model.decision_function(X3), scores, rtol=1e-9)
    predicted = model.predict(X3)
    assert np.array_equal(predicted, scores > 0)
    assert model.score(X3, SETS.tolist()) == accuracy_score(SETS, predicted)
    found = model.score(X3, SETS, sample_weight=WEIGHTS)
    assert found == pytest.approx(accuracy_score(SETS, predicted, sample_weight=WEIGHTS))
    assert (model.multilabel_, model.majority_share_) == (True, None)
    if "loss" in options:
        chances = np.stack([m.predict_proba(X3)[:, 1] for m in alone], axis=1)
        np.testing.assert_allclose(model.predict_proba(X3), chances, rtol=1e-9)
        separable = np.stack([X3[:, -1, 0] > 0, SETS[:, 0] > 0], axis=1)
        model.set_params(ridge=0.0, form=pa.Form(skip=True)).fit(X3, separable)
        assert (model.outcome_.name, model.outcome_.ok) == ("separable", False)
    else:
        parts = CLASSIFIER(**options).partial_fit(X3[:40], SETS[:40])
        parts.partial_fit(X3[40:], SETS[40:], classes=[0, 1, 2])
        np.testing.assert_allclose(parts.coef_, clone(model).fit(X3, SETS).coef_, atol=1e-9)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_labels_no_better_than_one_class_are_not_called_good(loss):
    X, rare = noisy(n_sequences=150)[0], np.where(np.arange(150) % 10 == 0, "b", "a")
    for weights, share in ((np.where(rare == "b", 20.0, 1.0), 300 / 435), (np.ones(150), 0.9)):
        model = CLASSIFIER(loss=loss, ridge=1e5).fit(X, rare, weights)
        assert model.majority_share_ == pytest.approx(share)
        assert model.training_accuracy_ == pytest.approx(model.score(X, rare, weights))
    assert (model.training_accuracy_, model.outcome_.ok) == (pytest.approx(0.9), False)
    assert not CLASSIFIER(loss=loss, ridge=1e12).fit(X3, SETS).outcome_.ok
    good = CLASSIFIER(loss=loss).fit(X3, NAMES)
    assert good.outcome_.ok
    assert good.training_accuracy_ > good.majority_share_


Z3 = X3[..., :2]
KNOWN = {
    "regressor": REGRESSOR(ridge=1.0).fit(X3, SCORES),
    "dual": REGRESSOR(solver="dual").fit(X3, SCORES),
    "classifier": CLASSIFIER(ridge=1.0).fit(X3, NAMES),
    "context": REGRESSOR(ridge=1.0).fit(X3, SCORES, context=Z3),
}


def stream(**options):
    return REGRESSOR(**options).partial_fit(X3, SCORES)


def classified(y, mode="last", **options):
    return CLASSIFIER(mode, ridge=1.0, **options).fit(X3, y)


TOKENS = np.where(X3[..., 0] > 0, "a", "b")
REFUSED = [
    (lambda: stream(ridge="loo"), "gcv"), (lambda: stream(form=pa.Form(decay="loo")), "decay"),
    (lambda: stream(solver="direct", ridge="gcv"), "ridge"), (lambda: stream(n_heads=0), "n_heads"),
    (lambda: stream(solver="dual"), "solver"),
    (lambda: KNOWN["dual"].set_params(solver="auto").partial_fit(X3, SCORES), "partial_fit"),
    (lambda: stream().set_params(bias=True).partial_fit(X3, SCORES), "bias"),
    (lambda: KNOWN["regressor"].score(X3, SCORES[:, :2]), "3 outputs; got 2"),
    (lambda: KNOWN["context"].predict(X3), "context"),
    (lambda: KNOWN["regressor"].predict(X3, context=Z3), "context"),
    (lambda: CLASSIFIER(ridge="loo", **LOG).fit(X3, NAMES), "ridge"),
    (lambda: CLASSIFIER(**LOG).partial_fit(X3, NAMES, ABC), "loss"),
    (lambda: CLASSIFIER().partial_fit(X3, NAMES, ABC), "gcv"),
    (lambda: CLASSIFIER(ridge=1.0).partial_fit(X3, NAMES), "classes="),
    (lambda: CLASSIFIER(ridge=1.0).partial_fit(X3, NAMES, ["a", "b"]), "'c'"),
    (lambda: classified(NAMES).partial_fit(X3, NAMES, ["a", "b", "d"]), "classes"),
    (lambda: classified(np.zeros(N)), "two classes"),
    (lambda: classified(np.linspace(0, 1, N)), "fractions"),
    (lambda: CLASSIFIER().fit(pa.scan(X3, SETS)), "3 targets"),
    (lambda: classified(CODES + 0j), "complex"),
    (lambda: classified([*NAMES[1:], None]), rf"y\[{N - 1}\]"),
    (lambda: classified(np.where(np.arange(N) == 7, np.nan, CODES)), r"y .*\(7,\)"),
    (lambda: classified(CODES, "causal", form=pa.Form("full")), "mode"),
    (lambda: REGRESSOR("causal", ridge=1.0, form=pa.Form("full")).fit(X3, SCORES), "mode"),
    (lambda: REGRESSOR(bias=True, form=pa.Form()).fit(X3, SCORES), "bias"),
    (lambda: classified(list(np.where(np.arange(4) == 1, None, TOKENS)), "full"), r"y\[0\]\[1\]"),
    (lambda: classified(CODES[:, None]), "one column"),
    (lambda: KNOWN["classifier"].score(X3, CODES), "kind"),
    (lambda: classified(2 * SETS), r"2 for sequence \d+, label \d"),
    (lambda: classified(NAMES, class_weight={"a": -1}), "class_weight"),
    (lambda: classified(NAMES, class_weight={"d": 1}), "'d'"),
    (lambda: CLASSIFIER(ridge=1.0, **BALANCED).partial_fit(X3, NAMES, ABC), "class_weight"),
    (lambda: CLASSIFIER(**BALANCED).fit(pa.scan(X3, CODES)), "class_weight"),
    (lambda: classified(SETS, **BALANCED), "sample_weight"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "word"), REFUSED)
def test_misuse_is_named(call, word):
    with pytest.raises(PolyattnError, match=word):
        call()


ELSEWHERE = {
    "mask": "window", "gate": "decay", "n_layers": "convex", "softmax": "learn_softmax",
    "is_causal": "mode='causal'", "xyzzy": "'xyzzy'", "heads": "n_heads", "ridgee": "ridge",
    "decay": r"Form\(decay", "fit_intercept": "intercept=True",
}  # fmt: skip


@pytest.mark.parametrize("given", ELSEWHERE)
def test_arguments_of_other_libraries_are_answered(given):
    for call in (lambda **more: pa.fit(X3, SCORES, **more), REGRESSOR, CLASSIFIER):
        with pytest.raises((InvalidInput, InvalidType), match=ELSEWHERE[given]):
            call(**{given: 2})
