"""Layers as modules of torch, models of ONNX and projections: the same function, there and back."""

import copy
import sys

import numpy as np
import onnx.parser
import onnxruntime
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

import oracle
import polyattn as pa
from oracle import FORMS, MODES
from polyattn.errors import InvalidInput, MissingExtra, PolyattnError
from polyattn.interop import (
    from_projections,
    from_torch,
    to_multihead,
    to_onnx,
    to_projections,
    to_torch,
)
from test_layers import linear as linear_layer
from test_layers import normal, same

# torch's own: it would rather be asked to export.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
KINDS = {"linear": pa.LinearAttention, "softmax": pa.SoftmaxAttention}
ROLES = ("query", "key", "value")
seeds, sizes = st.integers(0, 10**6), st.integers(1, 4)


def linear(drawn, **numbers):
    form, context = oracle.split_context(drawn)
    return linear_layer(form, 3, context, **numbers)


def softmax(mode="full", bias=False, rotary=None, seed=0, n_outputs=2, scale=1.0):
    rank = None if rotary is None else 4
    return pa.data.random_softmax_layer(
        3, n_outputs, 2, 6.0 * scale, rank, mode, seed, bias=bias, rotary=rotary
    )


def run(module, X, Z=None):
    """What a module, a graph of one or a session of ONNX makes of arrays."""
    inputs = [X] if Z is None else [X, Z]
    if isinstance(module, onnxruntime.InferenceSession):
        return module.run(None, dict(zip(("X", "context"), inputs, strict=False)))[0]
    return module(*map(torch.tensor, inputs)).detach().numpy()


def opened(layer, fixed=(), **options):
    """A session that runs the model of a layer, for all sizes or for fixed ones."""
    chosen = onnxruntime.SessionOptions()
    chosen.intra_op_num_threads, chosen.log_severity_level = 1, 3
    for name, size in dict(fixed).items():
        chosen.add_free_dimension_override_by_name(name, size)
    content = to_onnx(layer, **options).SerializeToString()
    return onnxruntime.InferenceSession(content, chosen, providers=["CPUExecutionProvider"])


def pairs_for(drawn, lengths=(5, 1, 8)):
    """Sequences and what they attend to, or None."""
    form, context = oracle.split_context(drawn)
    X = [normal(n, 3, seed=n) for n in lengths]
    Z = oracle.contexts_for(X, {"mode": "last"} | form, context)
    return list(zip(X, [None] * len(X) if Z is None else Z, strict=True))


def assert_same_function(layer, pairs):
    """torch and ONNX compute it in both precisions, and projections; all are read back."""
    module, form = to_torch(layer), getattr(layer, "form", None)
    graphs = {np.float64: [module], np.float32: [copy.deepcopy(module).float()]}
    if not any(callable(each) for each in (form and (form.query, form.key, form.value)) or ()):
        graphs[np.float64].append(opened(layer))
        graphs[np.float32].append(opened(layer, dtype="float32"))
    for X, Z in pairs:
        expected = layer(X) if Z is None else layer(X, context=Z)
        same(run(module, X, Z), expected)
        for dtype, several in graphs.items():
            batch = [each if each is None else each[None].astype(dtype) for each in (X, Z)]
            for graph in several:
                found = run(graph, *batch)
                assert found.dtype == dtype
                same(found[0], expected, eps=np.finfo(dtype).eps)
    again = copy.deepcopy(module)
    for parameter in again.parameters():
        parameter.data.mul_(2.0)
    assert from_torch(again) != layer
    again.load_state_dict(module.state_dict())
    assert from_torch(again) == from_torch(module) == layer
    found = to_projections(layer, value_dim=1, scale=2.0)
    same(outputs(found, *[[each] for each in pairs[-1]])[0], expected)
    assert pa.same_function(found.to_layer(), layer, tolerance=1e-11)


@pytest.mark.parametrize("mode", MODES)
def test_layers_of_every_form_are_modules_and_models(mode):
    for form in (each for each in FORMS.values() if each.get("mode", "last") == mode):
        assert_same_function(linear(form), pairs_for(form))


@pytest.mark.parametrize("rotary", [None, 10.0])
@pytest.mark.parametrize("mode", MODES)
def test_softmax_layers_are_modules_and_models(mode, rotary):
    X = normal(1, 7, 3)
    for bias in (False, True):
        layer = softmax(mode, bias, rotary)
        assert_same_function(layer, pairs_for({}, (1, 2, 7)))
        assert np.abs(run(to_torch(softmax(mode, bias, rotary, seed=1)), X) - layer(X)).max() > 1e-3
        # Known to EPS of the logits, which must not overflow.
        sharp = softmax(mode, bias, rotary, scale=1e3)
        for graph in (to_torch(sharp), opened(sharp)):
            same(run(graph, X), sharp(X), factor=1e6)


MAPS = {
    "polynomial": pa.maps.polynomial(2), "hedgehog": pa.maps.hedgehog(), "elu": pa.maps.elu1(),
    "normalised": pa.maps.normalised(), "waves": pa.maps.random_fourier(3, 1.0, 0),
    "one wave": pa.maps.random_fourier(1, 1.0, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", MAPS)
def test_maps_of_tokens_are_computed_outside(name):
    """onnxruntime makes factors beside products of matrices ones of float32: there are none."""
    for mode in MODES:
        beside = {"mean": True} if mode == "full" else {"decay": 0.9, "include_query": False}
        form = {"mode": mode, **dict.fromkeys(ROLES, MAPS[name]), **beside}
        layer, X = linear(form, n_outputs=1 + (mode == "last")), normal(2, 6, 3)
        for graph in (to_torch(layer), opened(layer), opened(layer, {"batch": 2, "tokens": 6})):
            same(run(graph, X), layer(X), factor=100)
    # exp(-60) beside 1 would be rounding.
    layer = linear({"query": MAPS["elu"], "key": MAPS["elu"]}, n_heads=1, n_outputs=1)
    for dtype in (np.float64, np.float32):
        X = np.random.default_rng(0).uniform(-60, -20, (3, 4, 3)).astype(dtype)
        module = to_torch(layer).to(getattr(torch, np.dtype(dtype).name))
        np.testing.assert_allclose(run(module, X), layer(X), rtol=1e3 * np.finfo(dtype).eps)


LONG = {
    "causal": {"bias": True}, "decay": {"decay": 0.97}, "lags": {"lags": 3},
    "decays": {"decay": (0.5, 0.999), "mean": True, "include_query": False},
    "window": {"window": 70, "decay": 0.98}, "long window": {"window": 200, "mean": True},
    "64": {"window": 64}, "128": {"window": 128, "include_query": False},
    "others": {"mode": "full", "include_query": False, "mean": True},
    "last": {"mode": "last", "decay": 0.99, "window": 90},
}  # fmt: skip


@pytest.mark.parametrize("name", LONG)
def test_long_sequences_and_batches(name):
    layer = linear({"mode": "causal"} | LONG[name])
    graphs = to_torch(layer), opened(layer)
    for shape in [(2, 1), (1, 63), (1, 64), (3, 65), (1, 128), (2, 129), (1, 200), (1, 641)]:
        X = normal(*shape, 3)
        for graph in graphs:
            same(run(graph, X), layer(X))
    if layer.mode == "causal":
        # 40,000 x 40,000 scores would be 13 GB.
        assert run(graphs[0], normal(1, 40_000, 3)).shape == (1, 40_000, 2)


def test_float32_keeps_the_angles_of_far_positions():
    """In float32 the angle of position 20,000 would be wrong by 1e-3."""
    turned = pa.SoftmaxAttention((np.eye(2), np.eye(2)), np.eye(2), "last", rotary=[1.1])
    X = normal(1, 20_000, 2).astype(np.float32)
    X[0, :-2] *= 1e-3
    same(run(opened(turned, dtype="float32"), X), turned(X), factor=1, eps=1e-5)


def exported(module, X, strict=False):
    free = {0: torch.export.Dim("batch"), 1: torch.export.Dim("tokens", min=1)}
    return torch.export.export(module, (X,), dynamic_shapes=(free,), strict=strict).module()


def compiled(module, backend):
    torch.compiler.reset()
    return torch.compile(module, backend=backend, dynamic=True, fullgraph=True)


GRAPHS = {
    "last": lambda: linear({"lags": 3, "mean": True, "skip": True}),
    "decays": lambda: linear({"mode": "causal", "decay": (0.5, 0.9), "include_query": False}),
    "window": lambda: linear({"mode": "causal", "window": 70, "bias": True, "intercept": True}),
    "full": lambda: linear({"mode": "full", "include_query": False, "mean": True}),
    "maps": lambda: linear({"mode": "causal", "lags": 2, **dict(zip(ROLES, MAPS.values()))}),  # noqa: B905
    "softmax": lambda: softmax("causal", bias=True),
    "rotary": lambda: softmax("last", bias=True, rotary=10.0),
}
WAYS = {
    "trace": lambda module, X: torch.jit.trace(module, X, check_trace=False),
    "export": exported, "strict": lambda module, X: exported(module, X, strict=True),
    "eager": lambda module, _: compiled(module, "eager"),
    "aot_eager": lambda module, _: compiled(module, "aot_eager"),
}  # fmt: skip
FAST = [*((name, "trace") for name in GRAPHS), ("rotary", "export"), ("last", "eager")]
SLOW = [(name, way) for name in GRAPHS for way in WAYS if (name, way) not in FAST]


@pytest.mark.parametrize(
    ("name", "way"), [*FAST, *(pytest.param(*each, marks=pytest.mark.slow) for each in SLOW)]
)
def test_a_graph_serves_every_length_and_batch(name, way):
    """With its gradients; its parameters are those of the module, and copies of the layer's."""
    layer = GRAPHS[name]()
    module = to_torch(layer)
    graph = WAYS[way](module, torch.tensor(normal(2, 5, 3)))
    for n_tokens in (2, 5, 64, 150):
        X = torch.tensor(normal(3, n_tokens, 3)).requires_grad_()
        outputs, expected = graph(X), module(X)
        same(outputs.detach(), expected.detach())
        found, wanted = (torch.autograd.grad(y.square().sum(), X)[0] for y in (outputs, expected))
        same(found, wanted, factor=1e5)
    if way == "trace":
        names, X = [each for each, _ in module.named_parameters()], X[:1, :4].detach()

        def function(X, *tensors):
            parameters = dict(zip(names, tensors, strict=True))
            return torch.func.functional_call(module, parameters, X).sum()

        inputs = X.requires_grad_(), *module.parameters()
        assert torch.autograd.gradcheck(function, inputs, fast_mode=True)
        expected = module(X)
        module.value.data.add_(1.0)
        assert not torch.allclose(module(X), expected)
        same(graph(X).detach(), module(X).detach())
        assert from_torch(module) != layer == GRAPHS[name]()


def test_own_functions_pass_no_gradient_to_tokens_and_are_in_no_graph():
    """Their numbers would be constants: right for the tokens that were traced, wrong for all."""
    layer, X = linear(FORMS["own-function"]), torch.tensor(normal(3, 4, 3))
    module = to_torch(layer)
    module(X).sum().backward()
    assert torch.any(module.attn.grad != 0)
    for call in (
        lambda: module(X.clone().requires_grad_()), lambda: torch.jit.trace(module, X),
        lambda: to_onnx(layer),
    ):  # fmt: skip
        with pytest.raises(InvalidInput, match=r"key .*is a function of numpy arrays"):
            call()
    with pytest.raises(Exception, match="part of a graph"):
        exported(module, X)


def test_models_have_standard_operators_and_are_written_whole(tmp_path):
    """The reference of the operators, in numpy, agrees with the layers."""
    X, path = normal(2, 70, 3), tmp_path / "layer.onnx"
    long = (linear({"mode": "causal"} | form) for form in LONG.values())
    for layer in (*long, softmax("causal", bias=True, rotary=10.0)):
        assert to_onnx(layer, path).SerializeToString() == path.read_bytes()
        model = onnx.load(str(path))
        onnx.checker.check_model(model, full_check=True)
        assert {node.domain for node in model.graph.node} == {""}
        assert [(each.domain, each.version) for each in model.opset_import] == [("", 17)]
        shape = model.graph.input[0].type.tensor_type.shape.dim
        assert [each.dim_param or each.dim_value for each in shape] == ["batch", "tokens", 3]
        same(ReferenceEvaluator(model).run(None, {"X": X})[0], layer(X))
    assert [each.name for each in tmp_path.iterdir()] == ["layer.onnx"]


def multihead(n_dims, n_heads, **options):
    torch.manual_seed(0)
    module = torch.nn.MultiheadAttention(n_dims, n_heads, dtype=torch.float64, **options)
    for parameter in module.parameters():  # torch starts with biases of zero
        torch.nn.init.normal_(parameter, std=0.5)
    return module.eval()


def attended(module, X, mode="full"):
    tokens = torch.tensor(X if module.batch_first else X.transpose(1, 0, 2))
    n = X.shape[1]
    mask = torch.ones(n, n, dtype=torch.bool).triu(1) if mode == "causal" else None
    with torch.no_grad():
        found = module(tokens, tokens, tokens, attn_mask=mask, need_weights=False)[0].numpy()
    found = found if module.batch_first else found.transpose(1, 0, 2)
    return found[:, -1] if mode == "last" else found


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("n_dims", "n_heads"), [(1, 1), (6, 1), (6, 3), (8, 2)])
def test_multihead_attention_is_read_and_made(n_dims, n_heads, bias):
    X = normal(4, 5, n_dims)
    for mode, batch_first in (("full", True), ("causal", False), ("last", True)):
        module = multihead(n_dims, n_heads, bias=bias, batch_first=batch_first, dropout=0.3)
        layer = from_torch(module, mode)
        assert (layer.n_heads, layer.bias, layer.mode) == (n_heads, bias, mode)
        same(layer(X), attended(module, X, mode))
        again = to_multihead(layer)
        assert (again.num_heads, again.in_proj_bias is not None) == (n_heads, bias)
        same(attended(again, X, mode), layer(X))
    assert from_torch(module.float()) == from_torch(module.double())


def test_multihead_attention_has_room_for_more_heads_and_for_ranks_within_a_tolerance():
    low, X = normal(2, 6, 1) @ normal(2, 1, 6, seed=1), normal(3, 4, 6, seed=2)
    layer = pa.SoftmaxAttention(low, low[::-1])
    for asked, n_heads in ((None, 2), (6, 6)):
        module = to_multihead(layer, asked)
        assert module.num_heads == n_heads
        same(attended(module, X), layer(X))
    noisy = pa.SoftmaxAttention(normal(2, 6, 2) @ normal(2, 2, 6) + 1e-10 * normal(2, 6, 6), low)
    module, named = fitted(to_multihead, noisy, 3)
    assert 1e-11 < module.relative_change <= named < 1e-8
    assert 1e-13 < oracle.relative_error(attended(module, X), noisy(X)) < 1e-8


def fitted(function, layer, *sizes):
    """What is made with the tolerance that the refusal names, and that tolerance."""
    with pytest.raises(InvalidInput, match=r"rank \d, more than head_dim = ") as caught:
        function(layer, *sizes)
    named = float(str(caught.value).split("tolerance=")[1].split(",")[0])
    return function(layer, *sizes, tolerance=named), named


NAMES = ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O", "W_skip", "head_scales")
BIASES = NAMES[4:8]


def outputs(found, X, Z=None):
    """What Projections compute by their definition, (N, e) or (N, n, e)."""
    form = {"mode": found.mode} if found.form is None else oracle.fields_of(found.form)
    heads = {name: getattr(found, name) for name in NAMES}
    rows = [
        oracle.projected(heads, x, form, found.kind, found.scale, found.rotary, z)
        for x, z in zip(X, [None] * len(X) if Z is None else Z, strict=True)
    ]
    return np.array([each[0] for each in rows] if found.mode == "last" else rows)


def of_ranks(kind, ranks, n_dims=4, n_outputs=3, mode="causal", bias=False, seed=0, noise=0.0):
    """Heads whose attn has these ranks, up to noise, and value as much as fits."""
    width = n_dims + bias
    factors = [normal(2, width, rank, seed=[seed, h]) for h, rank in enumerate(ranks)]
    attn = [left @ right.T for left, right in factors] + noise * normal(len(ranks), width, width)
    return KINDS[kind](attn, normal(len(ranks), width, n_outputs, seed=seed), mode, bias)


@given(
    kind=st.sampled_from([*KINDS]), mode=st.sampled_from(MODES), bias=st.booleans(), seed=seeds,
    ranks=st.lists(st.integers(0, 4), min_size=1, max_size=3), n_dims=sizes, n_outputs=sizes,
    head_dim=st.none() | st.integers(1, 5), value_dim=st.none() | st.integers(1, 5),
    unit=st.sampled_from([1.0, 1.0, 1e-7, 1e9]),
)  # fmt: skip
def test_layers_fit_every_width_in_any_units(
    kind, mode, bias, seed, ranks, n_dims, n_outputs, head_dim, value_dim, unit
):
    """Linear heads are split where they are too wide, softmax ones refused: only values split.

    Small entries of attn and value belong to large coordinates: they are no rounding.
    """
    layer = of_ranks(kind, ranks, n_dims, n_outputs, mode, bias, seed)
    units = np.array([1.0] * (n_dims - 1) + [unit] + [1.0] * bias)
    attn, value = layer.attn / units / units[:, None], layer.value / units[:, None]
    layer = KINDS[kind](attn, value, mode, bias)
    width = n_dims + (bias and kind == "linear")
    seen = [min(rank, width) for rank in ranks]
    if kind == "softmax" and head_dim is not None and max(seen) > head_dim:
        with pytest.raises(InvalidInput, match=f"head_dim={max(seen)}"):
            to_projections(layer, head_dim, value_dim)
        return
    found = to_projections(layer, head_dim, value_dim, scale=1.7)
    assert (found.scale, found.head_dim) == (1.7, head_dim or max(1, *seen))
    assert found.W_Q.shape == found.W_K.shape == (found.n_heads, n_dims, found.head_dim)
    assert found.value_dim == (value_dim or min(width, n_outputs))
    parts = np.array([-(-rank // found.head_dim) or 1 for rank in seen])
    parts = parts * -(-min(width, n_outputs) // found.value_dim)
    np.testing.assert_array_equal(found.heads, np.repeat(np.arange(len(ranks)), parts))
    assert found.change <= 1e-12
    X = normal(2, 4, n_dims, seed=seed) * units[:n_dims]
    same(outputs(found, X), layer(X), factor=1e4)
    # Parts of a head add up, and parts of a softmax head attend alike.
    assert unit != 1.0 or pa.same_function(found.to_layer(), layer, tolerance=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_within_a_tolerance_is_dropped_and_reported(kind):
    layer = of_ranks(kind, (2, 2), n_outputs=4, bias=True, noise=1e-9)
    full = 5 if kind == "linear" else 4
    assert to_projections(layer).head_dim == full
    found = to_projections(layer, head_dim=2, tolerance=1e-7)
    assert found.n_heads == 2
    assert 1e-10 < found.change < 1e-7
    worst = pa.match_heads(found.to_layer(), layer).worst_attn
    assert 1e-11 < worst <= 2.0 * found.change + 1e-14
    for tolerance in (1e-9, 1e-3, 0.5):
        assert to_projections(layer, tolerance=tolerance).change <= tolerance
    # With room for it, nothing is dropped; the tolerance that a message names is enough.
    assert to_projections(layer, head_dim=5, tolerance=1e-7).change < 1e-15
    if kind == "linear":
        exact = to_projections(layer, head_dim=1)
        assert (exact.n_heads, exact.change) == (2 * full, 0.0)
        assert to_projections(layer, head_dim=1, tolerance=1e-7).n_heads == 4
    else:
        again, named = fitted(to_projections, layer, 2)
        assert 0.8 * named < again.change <= named


def some_heads(*without):
    heads = oracle.random_heads(4, 2, 3, value_dim=2, n_outputs=5)
    return {name: each for name, each in heads.items() if name not in without}


@pytest.mark.parametrize("kind", KINDS)
def test_projections_are_read(kind):
    X, W_skip = normal(2, 4, 4), normal(4, 5, seed=1)
    for biases in [(), *((name,) for name in BIASES), BIASES]:
        heads = some_heads(*set(BIASES) - set(biases))
        # A linear layer has a place of its own for b_O.
        constants = set(biases) - {"b_O"} if kind == "linear" else biases
        for mode in MODES:
            layer = from_projections(**heads, kind=kind, scale=1.7, mode=mode)
            assert (layer.bias, layer.mode, layer.n_heads) == (bool(constants), mode, 2)
            rows = np.array([oracle.projected(heads, x, {"mode": mode}, kind, 1.7) for x in X])
            same(layer(X), rows[:, 0] if mode == "last" else rows)
        joined = to_projections(layer, scale=1.7).side_by_side()
        again = from_projections(**joined, kind=kind, scale=1.7, n_heads=2, mode="full")
        assert pa.same_function(again, layer, tolerance=1e-12)
        if kind == "linear":  # A skip holds the constant where it can.
            layer = from_projections(**heads, kind=kind, W_skip=W_skip, mode="causal")
            assert (layer.form.skip, layer.form.intercept) == (True, biases == ("b_O",))
            whole = heads | {"W_skip": W_skip}
            same(layer(X), [oracle.projected(whole, x, {"mode": "causal"}, kind, 1.0) for x in X])
            np.testing.assert_array_equal(to_projections(layer).W_skip, W_skip)
    plain = from_projections(**some_heads(), kind=kind)
    assert plain.mode == ("last" if kind == "linear" else "full")
    scale = 1.0 if kind == "linear" else np.sqrt(3.0)
    assert plain == from_projections(**some_heads(), kind=kind, scale=scale)
    assert to_projections(plain, 9).scale == (1.0 if kind == "linear" else 3.0)


GOOD, BARE = some_heads("b_O"), some_heads(*BIASES)
X, Z = torch.tensor(normal(2, 5, 3)), torch.tensor(normal(2, 5, 2))
PLAIN, FULL, BESIDE = linear({}), softmax(), to_torch(linear(FORMS["context-causal"]))
LOW, PLAIN_T = pa.data.random_softmax_layer(4, n_heads=2, rank=1), to_torch(PLAIN)


def read(heads, kind="linear", **change):
    return lambda: from_projections(**heads | {"kind": kind} | change)


MISUSES = [
    (read(BARE, "softmax", W_skip=np.ones((4, 5))), "W_skip was given for softmax"),
    (read(BARE, "softmax", form=pa.Form()), "form was given for softmax"),
    (read(BARE, form=pa.Form(), mode="causal"), "mode was given beside"),
    (read(BARE, form=pa.Form(), b_K=GOOD["b_K"]), "b_K was given"),
    (read(BARE, form=pa.Form(decay=[0.5, 1.0])), "head_scales"), (read(BARE, rotary=1.0), "rotary"),
    (read(BARE, "softmax", rotary=1.0), "even number"), (read(GOOD, b_Q=np.ones(4)), "b_Q must"),
    (read(GOOD, W_K=GOOD["W_K"][:1]), "number of heads"), (read(GOOD, kind="relu"), "kind must"),
    (lambda: to_projections(softmax(rotary=1.0), head_dim=2), "head_dim must be 4"),
    (lambda: to_multihead(softmax(rotary=1.0, n_outputs=3)), "positions"),
    (lambda: to_multihead(FULL), "outputs"), (lambda: to_multihead(LOW, 3), "divide the 4"),
    (lambda: from_torch(multihead(4, 2, add_bias_kv=True)), "add_bias_kv"),
    (lambda: from_torch(multihead(4, 2, kdim=3)), "kdim=3"),
    (lambda: from_torch(BESIDE, mode="last"), "mode 'causal'"),
    (lambda: to_onnx(softmax(scale=1e60), dtype="float32"), "float32"),
    (lambda: to_onnx(FULL, "/nowhere/at/all.onnx"), "folder"),
    (lambda: BESIDE(X), "as context"), (lambda: BESIDE(X, X), "context must have"),
    (lambda: BESIDE(X, Z[:1]), "each of X"), (lambda: BESIDE(X, Z[:, :4]), "each of X"),
    (lambda: PLAIN_T(X.float()), "X has dtype"), (lambda: PLAIN_T(X, Z), "no context"),
    (lambda: PLAIN_T(Z), r"got \(2, 5, 2\)"), (lambda: PLAIN_T(X[:, :0]), "n >= 1"),
]  # fmt: skip


def test_misuse_is_named():
    for call, words in MISUSES:
        with pytest.raises(PolyattnError, match=words):
            call()
    with pytest.raises(Exception, match="must have 3 coordinates"):
        exported(to_torch(PLAIN), Z)
    with pytest.raises(ValueError, match="read-only"):
        to_projections(PLAIN).W_Q[0, 0, 0] = 1.0


def test_torch_and_onnx_are_named_when_absent(monkeypatch):
    for name in [each for each in sys.modules if each.startswith("polyattn.interop.")]:
        monkeypatch.delitem(sys.modules, name)
    for extra, functions in (("torch", (to_torch, from_torch, to_multihead)), ("onnx", (to_onnx,))):
        monkeypatch.setitem(sys.modules, extra, None)
        for function in functions:
            with pytest.raises(MissingExtra, match=rf"polyattn\[{extra}\]"):
                function(PLAIN)
