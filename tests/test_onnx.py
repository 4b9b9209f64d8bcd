"""Causal layers against the ONNX operator LinearAttention, by its numpy reference.

With a gate that is one number γ per head, the operator is the recurrence of a layer with decay:

    S_t = γ S_{t-1} + k_t v_t^T,      y_t = scale q_t^T S_t,      with the gate given as log γ.

It computes in float32, whatever it is given.  A gate that varies with the token, which it takes
too, is none of our forms.
"""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyattn as pa
from polyattn.form import Form, maps
from polyattn.interop import from_projections, to_projections

onnx = pytest.importorskip("onnx", reason="onnx is not installed; it is in the extra dev")

# The largest relative error of one rounding to float32.
UNIT = float(np.finfo(np.float32).eps) / 2

GRAPH = """
<ir_version: 13, opset_import: ["" : 27]>
layer (float[B, n, r] query, float[B, n, rk] key, float[B, n, rv] value,
       float[r, qk] W_Q, float[rk, kk] W_K, float[rv, vv] W_V, float[ov, e] W_O,
       float[qk] b_Q, float[kk] b_K, float[vv] b_V, float[e] b_O, float[r, e] W_skip,
       float[B, kv_heads, head_dim, value_dim] past %(declared)s)
   => (float[B, n, e] Y, float[B, kv_heads, head_dim, value_dim] state) {
    projected_query = MatMul(query, W_Q)
    projected_key = MatMul(key, W_K)
    projected_value = MatMul(value, W_V)
    Q = Add(projected_query, b_Q)
    K = Add(projected_key, b_K)
    V = Add(projected_value, b_V)
    heads, state = LinearAttention <%(attributes)s> (Q, K, V, past %(given)s)
    mixed = MatMul(heads, W_O)
    skipped = MatMul(query, W_skip)
    shifted = Add(mixed, b_O)
    Y = Add(shifted, skipped)
}
"""


@cache
def evaluator(rule, n_heads, n_kv_heads, scale):
    """The operator between projections; its gate is an input if the rule has one."""
    import onnx.parser
    from onnx.reference import ReferenceEvaluator

    counts = f"q_num_heads = {n_heads}, kv_num_heads = {n_kv_heads}"
    gated = rule == "gated"
    model = onnx.parser.parse_model(
        GRAPH
        % {
            "attributes": f'update_rule = "{rule}", {counts}, scale = {scale}',
            "declared": ", float[B, n, kv_heads] gate" if gated else "",
            "given": ", gate" if gated else "",
        }
    )
    onnx.checker.check_model(model, full_check=True)
    return ReferenceEvaluator(model)


def operator(feeds, n_heads, n_kv_heads=None, scale=1.0):
    """Outputs and the state at the end."""
    rule = "gated" if "gate" in feeds else "linear"
    run = evaluator(rule, n_heads, n_kv_heads or n_heads, float(scale)).run
    outputs, state = run(None, feeds)
    assert outputs.dtype == state.dtype == np.float32
    return outputs, state


def feeds_of(weights, query, key=None, value=None, *, n_heads, decays=None, past=None):
    """The inputs of the graph, for ``n_heads`` heads of keys and values.

    weights : W_Q, W_K, W_V, W_O with the heads side by side, and biases and W_skip if there are any
    decays : one for each head, or None for the rule without a gate
    """
    columns = {name: weights[f"W_{name}"].shape[1] for name in "QKVO"}
    widths = [columns[name] // n_heads for name in "KV"]
    arrays = {
        "query": query,
        "key": query if key is None else key,
        "value": query if value is None else value,
        "past": np.zeros((len(query), n_heads, *widths)) if past is None else past,
        "W_skip": np.zeros((query.shape[2], columns["O"])),
        **{f"b_{name}": np.zeros(width) for name, width in columns.items()},
        **weights,
    }
    if decays is not None:
        arrays["gate"] = np.broadcast_to(np.log(decays), (*query.shape[:2], n_heads))
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def feeds_of_heads(heads, *tokens, past=None):
    """The same for Projections."""
    weights, decays = heads.side_by_side(), heads.form.decay
    if heads.W_skip is not None:
        weights["W_skip"] = heads.W_skip
    if decays is not None:
        decays = np.atleast_1d(decays)[heads.head_scales]
    return feeds_of(weights, *tokens, n_heads=heads.n_heads, decays=decays, past=past)


def tolerance(feeds, *counts_and_scale):
    """Which error float32 explains, for each output.

    A product of tokens and weights is rounded at most 16 times outside of sums, where errors
    cancel, and 3 times by each gate that it passes.  The sum of the products' magnitudes is the
    operator at the magnitudes of its inputs.
    """
    sizes = {name: array if name == "gate" else np.abs(array) for name, array in feeds.items()}
    passed = 0.0
    if "gate" in feeds:
        # A product has the weight decay^o after o gates, so those of few gates prevail.
        passed = 1 / max(1 - np.exp(feeds["gate"].max()), 1 / feeds["gate"].shape[1])
    return (16 + 3 * passed) * UNIT * operator(sizes, *counts_and_scale)[0]


def agrees(heads, expected, *tokens):
    """Whether the operator with these heads computes what is expected, as float32 can."""
    feeds = feeds_of_heads(heads, *tokens)
    found = operator(feeds, heads.n_heads)[0]
    assert found.shape == expected.shape
    return bool(np.all(np.abs(found - expected) <= tolerance(feeds, heads.n_heads)))


@st.composite
def layers(draw):
    """Layers of all forms with the recurrence of the operator, and a width of their heads."""
    decay = st.floats(0.05, 1.0)
    form = Form(
        mode="causal",
        decay=draw(st.none() | decay | st.lists(decay, min_size=2, max_size=3, unique=True)),
        bias=draw(st.booleans()),
        skip=draw(st.booleans()),
    )
    sizes = (draw(st.integers(1, 5)), draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    layer = pa.data.random_layer(*sizes, form=form, random_state=draw(st.integers(0, 99)))
    return layer, draw(st.none() | st.integers(1, 4))


@settings(max_examples=40)
@given(layers(), st.integers(1, 3), st.integers(1, 40))
def test_the_operator_computes_the_layer(drawn, n_sequences, n_tokens):
    layer, head_dim = drawn
    X = np.random.default_rng(n_tokens).standard_normal((n_sequences, n_tokens, layer.n_dims))
    heads = to_projections(layer, head_dim)
    assert agrees(heads, layer(X), X)


@pytest.mark.parametrize("decay", [None, 0.5, 0.99, [0.6, 0.95]], ids=str)
def test_the_operator_computes_what_was_fitted(decay):
    form = Form(mode="causal", decay=decay, intercept=True)
    task = pa.data.planted(20, 20, 2, 2, form=form, noise=0.1, random_state=1)
    result = pa.fit(task.X, task.Y, form=form)
    heads = to_projections(result.layer, head_dim=1, value_dim=2)
    X = np.random.default_rng(2).standard_normal((3, 30, 2))
    assert agrees(heads, result.predict(X), X)


def test_maps_and_contexts_come_before_the_operator():
    rng = np.random.default_rng(3)
    X, Z = rng.standard_normal((2, 9, 4)), rng.standard_normal((2, 9, 3))
    feature_map = maps.elu1()
    form = Form(mode="causal", decay=0.8, query=feature_map, key=feature_map, value=[2, 0])
    mapped, mapped_context = (feature_map(each.reshape(-1, each.shape[2])) for each in (X, Z))
    mapped, mapped_context = mapped.reshape(2, 9, -1), mapped_context.reshape(2, 9, -1)
    layer = pa.data.random_layer(4, 2, 2, form=form)
    assert agrees(to_projections(layer), layer(X), mapped, mapped, X[..., [2, 0]])
    layer = pa.data.random_layer(4, 2, 2, form=form, n_context_dims=3)
    expected = layer(X, context=Z)
    assert agrees(to_projections(layer), expected, mapped, mapped_context, Z[..., [2, 0]])


def test_the_last_output_is_that_of_mode_last():
    form = Form(decay=0.7, bias=True)
    layer = pa.data.random_layer(3, 2, 2, form=form)
    X = np.random.default_rng(4).standard_normal((5, 12, 3))
    heads = to_projections(layer)
    feeds = feeds_of_heads(heads, X)
    found = operator(feeds, heads.n_heads)[0][:, -1]
    assert np.all(np.abs(found - layer(X)) <= tolerance(feeds, heads.n_heads)[:, -1])


def test_a_sequence_in_pieces_passes_its_state_on():
    layer = pa.data.random_layer(3, 2, 2, form=Form(mode="causal", decay=0.9))
    X = np.random.default_rng(5).standard_normal((2, 15, 3))
    heads = to_projections(layer)
    past, found = None, []
    for piece in (X[:, :6], X[:, 6:7], X[:, 7:]):
        outputs, past = operator(feeds_of_heads(heads, piece, past=past), heads.n_heads)
        found.append(outputs)
    allowed = tolerance(feeds_of_heads(heads, X), heads.n_heads)
    assert np.all(np.abs(np.concatenate(found, axis=1) - layer(X)) <= allowed)


def test_integers_agree_in_every_bit():
    """Sums and products of integers below 2^24 are not rounded by float32."""
    rng = np.random.default_rng(6)
    shapes = {"W_Q": (3, 4), "W_K": (3, 4), "W_V": (3, 2), "W_O": (2, 3)}
    shapes |= {"b_Q": (4,), "b_K": (4,), "b_V": (2,)}
    weights = {name: rng.integers(-3, 4, shape).astype(float) for name, shape in shapes.items()}
    X = rng.integers(-3, 4, (4, 50, 3)).astype(float)
    layer = from_projections(**weights, kind="linear", n_heads=2, scale=1.0, mode="causal")
    expected = layer(X)
    assert 10_000 < np.abs(expected).max() < 2**20
    found = operator(feeds_of(weights, X, n_heads=2), 2)[0]
    np.testing.assert_array_equal(found, expected)


def test_layers_are_read_from_the_operator():
    """Its default scale is that of softmax attention, and a key may serve several queries."""
    rng = np.random.default_rng(7)
    d, head_dim, value_dim, e = 5, 3, 2, 4
    shapes = {"W_Q": (d, 4 * head_dim), "W_K": (d, 2 * head_dim), "W_V": (d, 2 * value_dim)}
    shapes["W_O"] = (4 * value_dim, e)
    weights = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    X = rng.standard_normal((2, 10, d))
    decays = np.array([0.95, 0.6])
    feeds = feeds_of(weights, X, n_heads=2, decays=decays)
    outputs = operator(feeds, 4, 2, 0.0)[0]
    repeated = {
        name: np.repeat(weights[name].reshape(d, 2, -1), 2, axis=1).reshape(d, -1)
        for name in ("W_K", "W_V")
    }
    layer = from_projections(
        **weights | repeated, kind="linear", n_heads=4, scale=np.sqrt(head_dim),
        form=Form(mode="causal", decay=decays), head_scales=[0, 0, 1, 1],
    )  # fmt: skip
    assert np.all(np.abs(outputs - layer(X)) <= tolerance(feeds, 4, 2, 0.0))


@pytest.mark.parametrize(
    "fields",
    [{"decay": 0.9001}, {"decay": None}, {"include_query": False}, {"window": 11}, {"mean": True}],
    ids=str,
)
def test_other_forms_differ(fields):
    """Negative control."""
    chosen = {"mode": "causal", "decay": 0.9}
    heads = to_projections(pa.data.random_layer(3, 2, 2, form=Form(**chosen)))
    X = np.random.default_rng(8).standard_normal((3, 12, 3))
    assert agrees(heads, pa.data.random_layer(3, 2, 2, form=Form(**chosen))(X), X)
    other = pa.data.random_layer(3, 2, 2, form=Form(**chosen | fields))
    assert not agrees(heads, other(X), X)
