"""to_onnx: onnxruntime computes what the layer does, for every form, length and batch."""

from dataclasses import replace

import numpy as np
import pytest

import polyattn as pa
from form_cases import CASES, square
from polyattn.errors import InvalidInput, InvalidType, MissingExtra, OutOfRange
from polyattn.form import Form, maps
from polyattn.interop import to_onnx
from polyattn.sequences import MODES
from rotary_cases import random_rotary

onnx = pytest.importorskip("onnx", reason="onnx is not installed; it is in the extra onnx")
runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")


def session(layer, fixed=None, **options):
    """What runs the model, for any sizes or those that are fixed; a missing kernel is an error."""
    model = to_onnx(layer, **options)
    settings = runtime.SessionOptions()
    for name, size in (fixed or {}).items():
        settings.add_free_dimension_override_by_name(name, size)
    settings.intra_op_num_threads = 1
    settings.log_severity_level = 3
    content = model.SerializeToString()
    return runtime.InferenceSession(content, settings, providers=["CPUExecutionProvider"])


def run(opened, X, Z=None):
    """Outputs for X (B, n, d), and the context (B, m, d') where there is one."""
    dtype = np.float64 if opened.get_inputs()[0].type == "tensor(double)" else np.float32
    feeds = {"X": X.astype(dtype)} | ({} if Z is None else {"context": Z.astype(dtype)})
    return opened.run(None, feeds)[0]


def error(found, expected):
    assert found.shape == expected.shape
    return np.abs(found - expected).max() / (np.abs(expected).max() or 1.0)


HELD = [case for case in CASES if case.form.key is not square]


@pytest.mark.parametrize("case", HELD, ids=str)
def test_every_form_with_sequences_one_by_one(case):
    layer = case.layer()
    opened = session(layer)
    for X, Z in zip(case.sequences, case.contexts, strict=True):
        expected = layer(X) if Z is None else layer(X, context=Z)
        found = run(opened, X[None], None if Z is None else Z[None])
        assert error(found[0], np.asarray(expected)) < 1e-12


LONG = {
    "causal": Form(mode="causal", bias=True),
    "decays": Form(mode="causal", decay=[0.5, 0.999], mean=True, include_query=False),
    "window": Form(mode="causal", window=70, decay=0.98),
    "long window": Form(mode="causal", window=200, mean=True),
    "window of a chunk": Form(mode="causal", window=64),
    "window of two chunks": Form(mode="causal", window=128, include_query=False),
    "lags": Form(mode="causal", lags=3),
    "others": Form(mode="full", include_query=False, mean=True),
    "last": Form(decay=0.99, window=90),
}


@pytest.mark.parametrize("name", LONG)
def test_lengths_around_chunks_and_batches(name):
    layer = pa.data.random_layer(2, 2, 3, form=LONG[name])
    opened = session(layer)
    rng = np.random.default_rng(0)
    for shape in [(2, 1), (1, 63), (1, 64), (3, 65), (1, 128), (2, 129), (1, 330)]:
        X = rng.standard_normal((*shape, 2))
        assert error(run(opened, X), layer(X)) < 1e-12


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rotary", [False, True])
def test_softmax_layers(mode, bias, rotary):
    layer = random_rotary(mode, bias)
    if not rotary:
        layer = pa.SoftmaxAttention(layer.attn, layer.value, mode, bias)
    opened = session(layer)
    rng = np.random.default_rng(1)
    for shape in [(1, 1), (4, 1), (2, 2), (3, 7), (1, 300)]:
        X = rng.standard_normal((*shape, 3))
        assert error(run(opened, X), layer(X)) < 1e-12
    # Negative control: another layer.
    other = random_rotary(mode, bias, seed=1)
    assert error(run(opened, X), other(X)) > 1e-3


def test_sharp_attention_does_not_overflow():
    layer = random_rotary("causal")
    sharp = pa.SoftmaxAttention(
        (1e3 * layer.query, 1e3 * layer.key), layer.value, "causal", rotary=layer.frequencies
    )
    X = np.random.default_rng(2).standard_normal((2, 9, 3))
    assert error(run(session(sharp), X), sharp(X)) < 1e-9


@pytest.mark.parametrize("name", ["linear", "softmax", "rotary", "maps"])
def test_float32(name):
    layer = {
        "linear": pa.data.random_layer(3, 2, 2, form=Form(mode="causal", decay=0.9, mean=True)),
        "softmax": pa.data.random_softmax_layer(3, n_heads=2, mode="causal", bias=True),
        "rotary": random_rotary("causal"),
        "maps": pa.data.random_layer(
            3, 2, form=Form(query=maps.polynomial(2), key=maps.random_fourier(4, 1.0, 0))
        ),
    }[name]
    opened = session(layer, dtype="float32")
    X = np.random.default_rng(3).standard_normal((2, 200, 3)).astype(np.float32)
    found = run(opened, X)
    assert found.dtype == np.float32
    assert error(found, layer(X)) < 2e-4
    assert opened.get_outputs()[0].type == "tensor(float)"


def test_float32_keeps_the_angles_of_far_positions():
    """In float32 the angle of position 20000 would be wrong by 1e-3."""
    turned = pa.SoftmaxAttention((np.eye(2), np.eye(2)), np.eye(2), "last", rotary=[1.1])
    X = np.random.default_rng(4).standard_normal((1, 20_000, 2)).astype(np.float32)
    X[0, :-2] *= 1e-3
    assert error(run(session(turned, dtype="float32"), X), turned(X)) < 1e-5


def test_a_fit_is_handed_on(tmp_path):
    task = pa.data.planted(60, 6, 3, mode="causal", noise=0.1, random_state=0)
    result = pa.fit(task.X, task.Y, mode="causal")
    path = tmp_path / "layer.onnx"
    model = to_onnx(result.layer, path)
    assert path.read_bytes() == model.SerializeToString()
    assert [each.name for each in tmp_path.iterdir()] == ["layer.onnx"]
    opened = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert error(run(opened, task.X), result.predict(task.X)) < 1e-12
    loaded = onnx.load(str(path))
    onnx.checker.check_model(loaded, full_check=True)
    assert loaded.producer_name == "polyattn"
    assert loaded.graph.doc_string.startswith("Linear attention")
    sizes = [each.dim_param or each.dim_value for each in _shape(loaded.graph.input[0])]
    assert sizes == ["batch", "tokens", 3]


def _shape(value):
    return value.type.tensor_type.shape.dim


@pytest.mark.parametrize("name", ["causal", "long window", "others", "rotary"])
def test_a_second_runtime_agrees(name):
    """The reference implementation of the operators themselves, in numpy."""
    from onnx.reference import ReferenceEvaluator

    layer = random_rotary("causal", True, n_dims=2)
    if name != "rotary":
        layer = pa.data.random_layer(2, 2, 2, form=LONG[name])
    X = np.random.default_rng(6).standard_normal((2, 70, 2))
    found = ReferenceEvaluator(to_onnx(layer)).run(None, {"X": X})[0]
    assert error(found, layer(X)) < 1e-12


def test_only_standard_operators():
    for layer in (random_rotary("causal", bias=True), *(case.layer() for case in HELD[:60])):
        model = to_onnx(layer)
        assert {node.domain for node in model.graph.node} == {""}
        assert [(each.domain, each.version) for each in model.opset_import] == [("", 17)]


@pytest.mark.parametrize("n_features", [1, 3])
@pytest.mark.parametrize("mode", MODES)
def test_fusions_of_the_runtime_keep_float64(mode, n_features):
    """onnxruntime makes a factor beside a product of matrices one of float32: there is none."""
    waves = maps.random_fourier(n_features, 1.0, 0)
    form = Form(mode=mode, query=waves, key=waves, value=waves)
    forms = [form] if mode == "full" else [form, replace(form, decay=0.9, include_query=False)]
    for chosen in forms:
        layer = pa.data.random_layer(2, 1, 2, form=chosen)
        X = np.random.default_rng(5).standard_normal((2, 5, 2))
        assert error(run(session(layer), X), layer(X)) < 1e-13


@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize("mode", MODES)
def test_fixed_sizes_keep_float64(mode, n_outputs):
    """The number of tokens is then a constant: by dividing by it nothing is lost either."""
    layer = pa.data.random_layer(2, n_outputs, 2, form=Form(mode=mode, mean=True))
    X = np.random.default_rng(5).standard_normal((2, 7, 2))
    assert error(run(session(layer, fixed={"batch": 2, "tokens": 7}), X), layer(X)) < 1e-13


def test_equal_numbers_are_held_once():
    layer = pa.data.random_layer(8, 8, 4, form=Form(mode="full", include_query=False))
    held = sum(len(each.raw_data) for each in to_onnx(layer).graph.initializer)
    assert held < 8 * (layer.attn.size + layer.value.size + 2 * 64 * 64 + 200)


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: to_onnx(pa.data.random_layer(3, form=Form(key=square))), InvalidInput,
         r"key of the form is a function of numpy arrays, square"),
        (lambda: to_onnx(np.eye(3)), InvalidType, r"to_onnx takes .*\.layer_"),
        (lambda: to_onnx(random_rotary(), dtype="float16"), InvalidInput, "dtype must be one of"),
        (lambda: to_onnx(random_rotary(), "/nowhere/at/all.onnx"), InvalidInput, "folder"),
        (lambda: to_onnx(pa.SoftmaxAttention(1e60 * np.eye(2), np.eye(2)), dtype="float32"),
         OutOfRange, "which float32 cannot hold"),
    ],
)  # fmt: skip
def test_misuse_is_refused(make, kind, message):
    with pytest.raises(kind, match=message):
        make()


def test_a_layer_that_no_file_holds_is_refused(monkeypatch):
    from polyattn.interop.onnx import export

    monkeypatch.setattr(export, "MOST_BYTES", (1 << 20) + 100)
    with pytest.raises(InvalidInput, match=r'a file of ONNX at most .*dtype="float32"'):
        to_onnx(random_rotary())


def test_without_onnx_the_extra_is_named():
    import subprocess
    import sys

    script = (
        "import sys; sys.modules['onnx'] = None\n"
        "import polyattn as pa\n"
        "try:\n    pa.interop.to_onnx(pa.data.random_layer(2))\n"
        "except ImportError as error:\n    print(type(error).__name__, error)\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.startswith(MissingExtra.__name__), done.stderr
    assert "polyattn[onnx]" in done.stdout
