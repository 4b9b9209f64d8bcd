"""pa.audit with targets: layers of every kind beside the least risk that a layer can have."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import NotFittedError

import oracle
import polyattn as pa
from oracle import EPS, MODES
from polyattn.errors import InvalidInput, InvalidType


def task(mode="causal", n_sequences=120, bias=False, seed=0):
    """Sequences (N, 5, 3), noisy targets of a planted layer, and the layer."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_sequences, 5, 3))
    attn = rng.standard_normal((2, 3 + bias, 3 + bias))
    layer = pa.LinearAttention(attn, rng.standard_normal((2, 3 + bias, 2)), mode, bias)
    return X, layer(X) + 0.1 * rng.standard_normal(np.shape(layer(X))), layer


def written_out(layer, X, Y, form, contexts, weights):
    """Figures, two norms of the distance, and doubt, all by features and the exact minimiser."""
    rows, layer = np.concatenate(Y), oracle.fields_of_layer(layer)
    exact = oracle.ExactFit.of(X, rows, form, 0.0, weights, contexts)
    best, psi = oracle.numbers(exact.coef), oracle.numbers(exact.psi)
    pairs = zip(X, contexts or [None] * len(X), strict=True)
    outputs = np.concatenate([oracle.forward(layer, x, form, z) for x, z in pairs])
    by_row = np.array([oracle.nearest(w) for w in exact.weights])

    def mean_square(each):
        return float(by_row @ np.sum(each**2, axis=1) / by_row.sum())

    found = {
        "risk": mean_square(rows - outputs), "optimal_risk": oracle.nearest(exact.risk),
        "output_distance": mean_square(outputs - psi @ best) ** 0.5,
        "optimal_output": mean_square(psi @ best) ** 0.5,
    }  # fmt: skip
    own = oracle.coefficients(layer, (X if contexts is None else contexts)[0].shape[1], form)
    own = oracle.features_of(own, form)
    # The part of the difference that rows of positive weight see: least as an array, or in ||T||.
    sizes, distances = np.sqrt([oracle.nearest(size) for size in exact.sizes]), []
    for units in (np.ones_like(sizes), sizes):
        sigma, right = np.linalg.svd((psi / units)[by_row > 0], full_matrices=False)[1:]
        right = right[: exact.rank]
        seen = right.T @ (right @ (units[:, None] * (own - best))) / units[:, None]
        distances.append(float(np.linalg.norm(seen)))
    condition = sigma[0] / sigma[exact.rank - 1] if exact.rank else 1.0
    size = 1 + np.linalg.norm(own) + np.linalg.norm(best)
    return found, distances, 1e4 * EPS * condition * size * (1 + found["risk"])


@given(oracle.forms(exact=True), oracle.sequences(exact=True), st.integers(0, 2**32 - 1))
def test_figures_of_every_form_are_those_of_features_written_out(fields, X, seed):
    """Of few rows too, of weights that are zero, and of coordinates that are."""
    form, context = oracle.split_context(fields)
    rng, contexts = np.random.default_rng(seed), oracle.contexts_for(X, form, context)
    parts = oracle.random_layer(form, 3, context, n_heads=2, seed=seed)
    layer = pa.LinearAttention(form=pa.Form(**form), n_dims=3, n_context_dims=context, **parts)
    counts = [len(oracle.predicted(len(x), form["mode"])) for x in X]
    Y = [rng.integers(-3, 4, size=(n, 2)).astype(float) for n in counts]
    weights = np.append(rng.integers(0, 3, len(X) - 1), 1.0) if seed % 2 else None
    wanted, (least, most), doubt = written_out(layer, X, Y, form, contexts, weights)
    targets = np.concatenate(Y) if form["mode"] == "last" else Y
    found = pa.audit(layer, X, targets, sample_weight=weights, context=contexts)
    for name, value in wanted.items():
        assert getattr(found, name) == pytest.approx(value, rel=1e-9, abs=doubt), name
    assert least * (1 - 1e-7) - doubt <= found.distance <= most * (1 + 1e-7) + doubt
    assert abs(found.optimal_risk - wanted["optimal_risk"]) <= found.rounding
    assert found.rounding <= 1e-7 * (1 + wanted["risk"])
    assert found.gap >= 0
    assert abs(found.gap - (wanted["risk"] - wanted["optimal_risk"])) <= found.rounding
    assert found.consistent
    if found.optimal_norm and found.optimal_output:
        assert found.relative_distance == found.distance / found.optimal_norm
        assert found.relative_output_distance == found.output_distance / found.optimal_output
    given = {"sample_weight": weights, "context": contexts}
    best = pa.audit(pa.fit(X, targets, form=pa.Form(**form), **given), X, targets, **given)
    assert best.gap <= best.rounding
    assert best.outcome.name == ("undecided" if best.hidden else "optimal")
    assert best.distance <= doubt


def test_a_hundredth_of_the_optimum_is_so_far_away_where_features_are_multiples():
    X = np.random.default_rng(0).standard_normal((200, 4, 2)) @ [[1, 0, 0], [0, 1, -4]]
    Y = np.random.default_rng(1).standard_normal((200, 2))
    best = pa.fit(X, Y).layer
    found = pa.audit(pa.LinearAttention(1.01 * best.attn, best.value), X, Y)
    assert found.relative_distance == pytest.approx(0.01, rel=1e-3)  # by one of two norms


@pytest.mark.parametrize("mode", MODES)
def test_what_the_gap_implies_holds(mode):
    """No layer of this risk is farther away, in coefficients or on any input."""
    X, Y, layer = task(mode, bias=mode == "full")
    found, best = pa.audit(layer, X, Y), pa.fit(X, Y, mode, bias=mode == "full")
    assert (found.outcome.name, found.outcome.ok) == ("improvable", False)
    limit = np.sqrt(found.gap / pa.certify(X, mode, bias=mode == "full").lambda_min)
    assert found.implied.distance == pytest.approx(limit, rel=1e-6)
    assert found.distance <= limit < 10 * found.distance
    new = np.random.default_rng(9).standard_normal((60, 5, 3))
    away, bound = np.linalg.norm(layer(new) - best.predict(new), axis=-1), found.implied.bound(new)
    assert bound.shape == away.shape
    assert np.all(away <= 0.5 * bound)
    assert np.max(away / bound) > 0.05


@pytest.mark.parametrize("weights", [None, np.ones(200)], ids=["plain", "weighted"])
def test_certificates_are_those_of_the_rows_that_count_and_of_the_domain(weights):
    rng, layer = np.random.default_rng(0), pa.data.random_layer(3, 2, mode="last")
    X, Y = rng.choice([-1.0, 1.0], size=(200, 4, 3)), rng.standard_normal((200, 2))
    few, normal = np.arange(200) < 10, rng.standard_normal(X.shape)
    found = pa.audit(layer, normal, Y, sample_weight=few)
    assert found.certificate.verdict == "not_identifiable"
    assert np.all(np.isinf([found.implied.distance, *found.implied.bound(X)]))
    found = pa.audit(layer, X, Y, domain="boolean", sample_weight=weights)
    # Coefficients that Boolean tokens do not show are not bounded.
    assert (found.certificate.verdict, found.implied.distance) == ("identifiable", np.inf)
    away = np.linalg.norm(layer(X) - pa.fit(X, Y).predict(X), axis=-1)
    assert np.all(away <= 0.5 * found.implied.bound(X))
    with pytest.raises(InvalidInput, match="boolean"):
        pa.audit(layer, 2 * X, Y, domain="boolean", sample_weight=weights)


@given(st.sampled_from(MODES), st.integers(-30, 30), st.integers(-30, 30), st.integers(0, 99))
def test_figures_have_the_units_of_the_data(mode, tokens, targets, seed):
    X, Y, layer = task(mode, 40, seed=seed)
    unit, of_y = np.ldexp(1.0, tokens), np.ldexp(1.0, targets)
    scaled = pa.LinearAttention(layer.attn / unit**2, layer.value * of_y / unit, mode)
    one, other = pa.audit(layer, X, Y), pa.audit(scaled, unit * X, of_y * Y)
    assert one.outcome.name == other.outcome.name
    sizes = dict.fromkeys(("risk", "optimal_risk", "gap", "rounding"), of_y**2)
    for name, size in (sizes | {"output_distance": of_y, "distance": of_y / unit**3}).items():
        assert getattr(other, name) / size == pytest.approx(getattr(one, name), rel=1e-6), name


class Wrapped(torch.nn.Module):
    """A module that nobody can read."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.dropout = inner, torch.nn.Dropout(0.5)

    def forward(self, tokens):
        return self.dropout(self.inner(tokens))


@pytest.mark.parametrize("mode", MODES)
def test_all_ways_to_give_a_layer_and_data_are_one(mode):
    X, Y, _ = task(mode, 50)
    fitted = pa.fit(X, Y, mode, ridge=5.0)
    known, layer = pa.audit(fitted, X, Y), fitted.layer
    module, rng = pa.interop.to_torch(layer), np.random.default_rng(2)
    for each in (layer, pa.LinearAttentionRegressor(mode, ridge=5.0).fit(X, Y), module):
        found = pa.audit(each, X, Y)
        for name in ("risk", "gap", "distance", "output_distance"):
            assert getattr(found, name) == pytest.approx(getattr(known, name), rel=1e-6), name
    # Black boxes, and modules, which run as they predict and stay as they were.
    wrapped = Wrapped(module)
    wrapped.inner.eval()
    for each in (layer.__call__, wrapped, Wrapped(pa.interop.to_torch(layer)).float()):
        box = pa.audit(each, X, Y, mode=mode)
        assert (box.distance, box.relative_distance) == (None, None)
        assert box.gap == pytest.approx(known.gap, rel=1e-3)
    assert (wrapped.training, wrapped.dropout.training, wrapped.inner.training) == (1, 1, 0)
    X = [x[:n] for x, n in zip(X, rng.integers(2, 6, 50), strict=True)]
    Y = Y if mode == "last" else [y[: len(x)] for x, y in zip(X, Y, strict=True)]
    risk = pa.audit(layer, X, Y).risk
    assert pa.audit(wrapped, X, Y, mode=mode).risk == pytest.approx(risk, rel=1e-9)
    # -128 of int8 has no magnitude of its own type, and rounding is relative to magnitudes.
    small = rng.choice([-128, 3, 7], size=(60, 4, 3)).astype(np.int8)
    one, other = (pa.audit(layer, tokens, layer(small)) for tokens in (small, small.astype(float)))
    assert one.rounding == other.rounding


def test_functions_see_arrays_or_lists_and_contexts_and_softmax_layers_say_what_they_are():
    seen, (X, Z) = [], np.random.default_rng(21).standard_normal((2, 100, 4, 3))

    def zero(part, context=None):
        seen.append((type(part), type(context)))
        return np.zeros((len(part), 2))

    pa.audit(zero, [x[: 1 + i % 4] for i, x in enumerate(X)], X[:, 0, :2])
    pa.audit(zero, X, X[:, 0, :2], context=[z[: 1 + i % 4] for i, z in enumerate(Z)])
    assert seen == [(list, type(None)), (np.ndarray, list)]
    Y = np.einsum("nsa,nsb,nb->na", Z, Z, X[:, -1])
    exact = pa.audit(lambda x, z: np.einsum("nsa,nsb,nb->na", z, z, x[:, -1]), X, Y, context=Z)
    assert exact.outcome.name == "optimal"
    soft = pa.data.random_softmax_layer(3, n_heads=2, mode="full", random_state=0)
    found = pa.audit(soft, X, np.asarray(soft(X)))
    assert (found.risk, found.outcome.name, found.certificate.mode) == (0.0, "better", "full")
    assert (found.implied, found.gap) == (None, -found.optimal_risk)
    assert found.consistent
    assert found.outcome.ok
    zeros = pa.audit(pa.data.random_layer(3, 2, mode="last"), 0 * X, X[:, 0, :2])
    assert (zeros.outcome.name, zeros.distance, zeros.output_distance) == ("optimal", 0, 0)
    assert zeros.relative_output_distance is None


X, Y, LAYER = task("causal")
LAST, OTHER = task("last"), {"X": task("last")[0], "Y": task("last")[1]}
CLASSES = pa.LinearAttentionClassifier(ridge=1.0).fit(X, Y[:, 0, 0] > 0)
MISUSES = [
    ({"X": X[..., :2]}, "3 coordinates"), ({"Y": Y[..., :1]}, "2 outputs"),
    ({"Y": Y[:, 0]}, "Y"), ({"layer": LAST[2]}, "target"), ({"X_test": X}, "X_test"),
    ({"mode": "last"}, "mode"), ({"bias": True}, "bias"), ({"form": pa.Form()}, "form"),
    ({"sample_weight": np.zeros(120)}, "sample_weight"), ({"layer": CLASSES}, "classifier"),
    ({"layer": pa.LinearAttentionRegressor()}, "fit"),
    ({"layer": lambda _: np.zeros((7, 2)), **OTHER}, "outputs of the layer.*7"),
    ({"layer": lambda _: np.zeros((120, 3)), **OTHER}, "outputs of the layer.*3"),
    ({"layer": lambda _: np.full((120, 2), np.nan), **OTHER}, "outputs of the layer.*NaN"),
    ({"layer": torch.nn.LSTM(3, 2, batch_first=True), **OTHER}, "tensor.*tuple"),
    ({"layer": torch.nn.Flatten(0, 1), **OTHER}, r"tensor.*\(600, 3\)"),
]  # fmt: skip


def test_misuse_is_named():
    for change, words in MISUSES:
        with pytest.raises((InvalidInput, InvalidType, NotFittedError), match=words):
            pa.audit(**{"layer": LAYER, "X": X, "Y": Y} | change)
