"""Files of every kind, and ways to damage and to forge them.

A mutation takes a generator and the bytes of a good file, and returns other bytes.  Forged files
are sealed again, so that nothing but what they hold is wrong with them; the format is known here
and in no other test.
"""

import copy
import hashlib
import io
import json
import zipfile
from pathlib import Path

import numpy as np
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays
from sklearn.pipeline import make_pipeline

import polyattn as pa

P = pa.programs
RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 4, 2))
Y = pa.data.random_layer(2, 2, mode="last")(X) + 0.1 * RNG.standard_normal((40, 2))
TOKENS = RNG.standard_normal((40, 4, 2))
GAPS = np.where(np.abs(X) > 2, np.nan, X)
CODES = np.argmax(RNG.standard_normal((40, 3)) + X[:, -1, :1] * [1.0, 0.0, -1.0], axis=1)
TEXT = np.array(["north", "ß", "w\u2028est"], dtype="<U40")[CODES]
FORM = pa.Form(
    mode="causal", decay=[0.5, 0.9], query=np.ones((2, 2)), key=[1], skip=True, intercept=True
)
IDS = pa.SequenceBatch.from_ids(np.arange(160).reshape(40, 4) % 7 % 3, 3)
SOFTMAX = pa.data.random_softmax_layer(2, n_heads=2, random_state=0)
SOFT = pa.data.planted_softmax(60, 3, 2, random_state=0)
MEMORY = P.associative_memory(2, 2)
ONE = pa.LinearAttention([[1.0]], [[1.0]])


REGRESSOR, CLASSIFIER = pa.LinearAttentionRegressor, pa.LinearAttentionClassifier
SCALER, IMPUTER, LOG = pa.SequenceScaler, pa.SequenceImputer, {"loss": "logistic"}


def learned(kind, n_traces=9):
    traces = P.traces(MEMORY, n_traces)
    return P.learn(MEMORY.schema, pa.data.with_wrong_labels(traces), kind)


def with_heads(result):
    """The result once its heads were looked for: then a file holds them."""
    assert result.heads.n_heads > 0
    return result


# Estimators: of every kind of labels, parameters and sums.
MODELS = {
    "regressor": lambda: REGRESSOR(form=FORM, ridge="gcv", ridge_grid=np.array([1.0, 2.0])).fit(
        X, TOKENS
    ),
    "one column": lambda: REGRESSOR(ridge="gcv").fit(X, Y[:, :1]),
    "dual": lambda: REGRESSOR(solver="dual", bias=np.True_, ridge=0.5).fit(X, Y[:, 0]),
    "few": lambda: REGRESSOR(bias=True, random_state=np.int64(5)).fit(X[:3], Y[:3, 0]),
    "stream": lambda: REGRESSOR(ridge=0.1).partial_fit(X[:20], Y[:20]).partial_fit(X[20:], Y[20:]),
    "direct": lambda: REGRESSOR(solver="direct", ridge=0.1).partial_fit(X, Y),
    "softmax regressor": lambda: pa.SoftmaxAttentionRegressor(1).fit(SOFT.X, SOFT.Y),
    "text": lambda: CLASSIFIER(class_weight={"north": 3.0, "ß": 0.5}).fit(X, TEXT),
    "bytes": lambda: CLASSIFIER(ridge=1.0).fit(X, CODES.astype(np.uint8) * 100),
    "large numbers": lambda: CLASSIFIER(**LOG).fit(X, np.array([1, 2, 2**63], np.uint64)[CODES]),
    "booleans": lambda: CLASSIFIER(ridge=1.0, mode="full").fit(X, X[..., 0] > 0),
    "sets": lambda: CLASSIFIER(**LOG).fit(X, X[:, 0] > 0.2),
    "classes of a stream": lambda: CLASSIFIER(ridge="gcv").partial_fit(X, TEXT, np.unique(TEXT)),
    "scaler": lambda: SCALER(with_mean=False).fit(1e200 * X, sample_weight=np.arange(40.0)),
    "imputer": lambda: IMPUTER("median", add_indicator=True).fit(GAPS),
    "pipeline": lambda: make_pipeline(IMPUTER("linear", add_indicator=True), SCALER(),
                                      CLASSIFIER(**LOG)).fit(GAPS, TEXT),
    "with nothing": lambda: make_pipeline("passthrough", SCALER(unit_norm=True)).fit(X),
}  # fmt: skip

# One of each kind that a file can hold, and of each way in which it can be made.
THINGS = MODELS | {
    "layer": lambda: pa.LinearAttention([[5e-324, -0.0], [1e308, -1.0]], np.eye(2)),
    "layer with a constant": lambda: pa.LinearAttention(np.eye(3), np.eye(3), bias=True),
    "layer of a form": lambda: pa.data.random_layer(2, 2, form=FORM, n_context_dims=2),
    "softmax": lambda: pa.SoftmaxAttention(np.eye(3), np.ones((3, 2)), "causal", bias=True),
    "rotary": lambda: pa.SoftmaxAttention(
        (RNG.standard_normal((1, 3, 2)), RNG.standard_normal((1, 3, 2))), np.ones((1, 3, 2)),
        rotary=100.0,
    ),
    "moments": lambda: pa.Moments(2, 2).update(X, Y, chunk="a").update(X, Y),
    "pairs": lambda: pa.Moments(2, 2, "full").update(1e60 * X, 1e-60 * TOKENS),
    "factor": lambda: pa.TriangularFactor(2, 2, form=FORM).update(X, TOKENS, forget=0.5),
    "few rows": lambda: pa.TriangularFactor(2, 2).update(X[:3], Y[:3]),
    "fit": lambda: with_heads(pa.fit(X, Y, ridge="loo")),
    "fit without heads": lambda: pa.fit(X, Y, solver="dual"),
    "fit of a form": lambda: pa.fit(X, TOKENS, form=FORM),
    "fit of few rows": lambda: pa.fit(X[:3], Y[:3], n_heads=1),
    "fit by log-loss": lambda: pa.fit(X, Y[:, 0] > 0, loss="logistic", ridge=0.5),
    "fit of ids": lambda: pa.fit(IDS, Y, solver="one_hot"),
    "fit of one head": lambda: pa.fit(X, Y, n_heads=1),
    "curve": lambda: pa.learning_curve(X, Y, [4, 20], n_repeats=2),
    "forecast": lambda: pa.forecast(pa.data.random_layer(2, 2, mode="last"), X[:2] / 9, 3),
    "curve to the peak": lambda: pa.learning_curve(X, Y, [2, 12], n_repeats=3),
    "diverging forecast": lambda: pa.forecast(ONE, np.full((1, 3, 1), 1.5), 9),
    "audit": lambda: pa.audit(pa.data.random_layer(2, 2, mode="last"), X, Y),
    "head audit": lambda: pa.audit([SOFTMAX, SOFTMAX], [X[:12], X[:12]]),
    "audit of the optimum": lambda: pa.audit(pa.fit(X, Y), X, Y),
    "audit of a black box": lambda: pa.audit(lambda _: Y, X, Y),
    "audit of few rows": lambda: pa.audit(pa.data.random_layer(2, 2, mode="last"), X[:3], Y[:3]),
    "head audit of few rows": lambda: pa.audit([SOFTMAX, SOFTMAX], [X[:4], X[:5]]),
    "learned softmax": lambda: pa.learn_softmax(SOFT.X, SOFT.Y),
    "queries": lambda: pa.learn_from_queries(SOFTMAX, 2),
    "few queries": lambda: pa.learn_from_queries(SOFTMAX, 2, max_queries=1),
    "linearised": lambda: pa.linearise(SOFTMAX, X, n_features=3),
    "linearised layer": lambda: pa.linearise(SOFTMAX, X, n_features=3).layer,
    "nothing held out": lambda: pa.linearise(SOFTMAX, X[:1], n_features=2),
    "circuits": lambda: pa.interop.circuits(2 * [SOFTMAX]),
    "program": lambda: P.compile(P.universal_dfa(2, 3, 4)),
    "Turing machine": lambda: P.compile(P.universal_turing_machine(2, 2, 4)),
    "rules": lambda: P.learn(MEMORY.schema, P.traces(MEMORY, 9)),
    "coefficients": lambda: learned("coefficients"),
    "certified": lambda: learned("coefficients", 60).certify(
        fresh=P.traces(MEMORY, 60, random_state=1)
    ),
    "certificate": lambda: pa.certify(X),
    "certificate of few rows": lambda: pa.certify(X[:3]),
    "certificate of ids": lambda: pa.certify(
        pa.SequenceBatch.from_ids(np.arange(160).reshape(40, 4) % 19, 20)
    ),
    "certificate of bits": lambda: pa.certify(np.where(X > 0, 1, -1), domain="boolean"),
}  # fmt: skip


def answers(thing):
    """All that a thing says of a few tokens of its size, by the names of its methods."""
    sized = thing.layer if isinstance(thing, pa.QueryResult) else thing
    n_dims = getattr(sized, "n_dims", getattr(thing, "n_features_in_", 2))
    if sized is None or n_dims >= 1000 or isinstance(thing, P.Learned):
        return {}
    tokens = 1e-3 * np.random.default_rng(1).standard_normal((3, 4, n_dims))
    if isinstance(thing, pa.OneHotFit):
        tokens = pa.SequenceBatch.from_ids(np.arange(12).reshape(3, 4) % n_dims, n_dims)
    beside = getattr(thing, "n_context_dims", None)
    context = {} if beside is None else {"context": np.ones((3, 4, beside))}
    names = ["predict", "decision_function", "transform", "__call__"]
    names += ["predict_proba"] * (getattr(thing, "loss", "") != "squared")
    names = [name for name in names if hasattr(thing, name)]
    found = {name: getattr(thing, name)(tokens, **context) for name in names}
    if isinstance(thing, REGRESSOR):
        found["bound"] = thing.predict(tokens, return_bound=True, **context)[1]
    return found


def good_file(thing, folder):
    pa.save(thing, Path(folder) / "good")
    return (Path(folder) / "good").read_bytes()


def contents(content):
    """All that a file says, bit for bit, the sign of zero included."""
    if content.startswith(b"{"):
        return content
    arrays, described = opened(content)
    return described, {k: (a.dtype, a.shape, a.tobytes()) for k, a in sorted(arrays.items())}


def opened(content):
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])["__metadata__"]
    return load_arrays(content), json.loads(header["description"])


def sealed(arrays, description, version="1"):
    """A file with a digest that is right; ``description`` is JSON, as text or not yet."""
    text = description if isinstance(description, str) else as_json(description)
    digest = hashlib.sha256(f"{version}:{text}".encode(errors="replace"))
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name}:{array.dtype.str}:{array.shape}".encode() + array.tobytes())
    header = {"format": "polyattn", "version": version, "description": text}
    return save_arrays(arrays, metadata=header | {"digest": digest.hexdigest()})


def claiming(content, place, value):
    """A file with another value at one place of its metadata; the forger does nothing else."""
    if content.startswith(b"{"):
        return sealed_document(json.loads(content) | {place[0]: value})
    arrays, described = opened(content)
    *parents, key = place
    inner = described["metadata"]
    for each in parents:
        inner = inner[each]
    inner[key] = value
    return sealed(arrays, described)


def sealed_document(content):
    """The JSON of a certificate with a seal that is right."""
    try:
        inside = json.loads(as_json({key: each for key, each in content.items() if key != "seal"}))
        text = json.dumps(inside, sort_keys=True, separators=(",", ":"), allow_nan=False)
        content = content | {"seal": hashlib.sha256(text.encode()).hexdigest()}
    except (ValueError, RecursionError, AttributeError):
        pass
    return as_json(content).encode()


# What JSON can write and Python cannot: a number beyond float64, and lists in lists in lists.
INFINITE, BOTTOMLESS = "@infinite@", "@bottomless@"


def as_json(content):
    """JSON text of anything, numbers beyond float64 included."""
    text = json.dumps(content).replace(f'"{INFINITE}"', "1e999")
    return text.replace(f'"{BOTTOMLESS}"', "[" * 3000 + "]" * 3000)


VALUES = [
    None, True, False, 0, 1, -1, 2, 7, 1000, 1_000_000, 2**53 + 1, 2**63, 10**30, 10**400, 0.5,
    -1.5, 1e-320, 1e308, INFINITE, float("nan"), "", "x", "last", "exact", "0", "\x1b[31mred",
    "\ud800", "{{7*7}}", "a" * 5000, [], {}, [[]], [0], {"x": 0}, BOTTOMLESS, [0] * 3000,
    {"variable": "t", "offset": 9},
]  # fmt: skip
NUMBERS = [0.0, -1.0, np.nan, np.inf, 1e308, -1e308, 5e-324]
INTEGERS = [0, 1, -1, 2, 1000, 2**31, 2**62, 2**63 - 1, -(2**63)]
TYPES = [np.float32, np.int64, np.uint8, np.bool_, np.float16]
PIECES = [b"\xff" * 8, bytes(8), b"-9999999", b"{", b"[", b'"', b"*", b"&", b"!", b"\n", b"9e9"]


def pick(rng, choices):
    return choices[int(rng.integers(len(choices)))]


def any_bytes(rng, content):
    """Pieces that are missing, doubled or foreign, or cut off; or another file altogether."""
    data = bytearray(content)
    if rng.integers(10) == 0:
        return pick(rng, [rng.bytes(60), as_json(changed(rng, VALUES)).encode("utf-8", "replace")])
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(data) + 1))
        end = pick(rng, [at, at + 1, at + 20, len(data)])
        data[at:end] = pick(rng, [b"", 2 * data[at:end], rng.bytes(1), rng.bytes(20), *PIECES])
    return bytes(data)


def places(content):
    """Every place in plain data, as its parent and its key."""
    waiting = [content]
    while waiting:
        each = waiting.pop()
        for key in list(each) if isinstance(each, dict) else range(len(each)):
            yield each, key
            if isinstance(each[key], dict | list):
                waiting.append(each[key])


def changed(rng, content):
    """Plain data with one to three places changed."""
    content = copy.deepcopy(content)
    for _ in range(int(rng.integers(1, 4))):
        known = list(places(content))
        if not known:
            return pick(rng, VALUES)
        (parent, key), (other, there), way = pick(rng, known), pick(rng, known), rng.integers(5)
        value = parent[key]
        if way == 0:
            del parent[key]
        elif way == 1:
            parent[key] = copy.deepcopy(other[there])
        elif way == 2 and isinstance(value, int | float):
            parent[key] = pick(rng, [value + 1, value - 1, 2 * value, -value, value // 3])
        elif way == 2 and isinstance(value, str | list):
            parent[key] = pick(rng, [value[:-1], value[::-1], 2 * value])
        elif way == 3 and isinstance(parent, dict):
            parent[pick(rng, ["", "extra", "digest", "\x1b[0m"])] = parent.pop(key)
        else:
            parent[key] = copy.deepcopy(pick(rng, VALUES))
    return content


def record(rng, content):
    """A file with another description or other arrays, sealed again."""
    arrays, described = opened(content)
    if arrays and rng.integers(3) == 0:
        name = pick(rng, list(arrays))
        array = arrays.pop(name).copy()
        kind, n_kept = pick(rng, TYPES), int(rng.integers(array.size + 1))
        wrong = [np.nan_to_num(array).astype(kind), array.reshape(-1)[:n_kept].copy()]
        if array.size:
            numbers = INTEGERS if array.dtype.kind == "i" else NUMBERS
            array.reshape(-1)[int(rng.integers(array.size))] = pick(rng, numbers)
        if rng.integers(5):
            arrays[pick(rng, [name] * 4 + ["extra"])] = pick(rng, [array, *wrong])
    elif rng.integers(4) and isinstance(described.get("metadata"), dict):
        described["metadata"] = changed(rng, described["metadata"])
    else:
        described = changed(rng, described)
    return sealed(arrays, described)


def document(rng, content):
    """A certificate with other claims, mostly sealed again."""
    made = changed(rng, json.loads(content))
    return sealed_document(made) if rng.integers(8) else as_json(made).encode()


def machine(rng, content):
    return as_json(changed(rng, json.loads(content))).encode()


def yaml_machine(rng, content):
    """Flow style is JSON with other words for some values."""
    return machine(rng, content).replace(b"NaN", b".nan")


HEADERS = [
    "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (-1, 3), }",
    "{'descr': '<f8', 'fortran_order': 1, 'shape': (2, 3), }",
    "{'descr': '|O', 'fortran_order': False, 'shape': (2,), }",
    "{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (2,), }",
    "{'descr': '<U0', 'fortran_order': False, 'shape': (9999999,), }",
    "{'descr': '<f3', 'fortran_order': False, 'shape': (2,), }",
    "{'descr': '<f8', 'shape': (2,)}", "(" * 3000, "-" * 9000 + "1", "{'descr': ", "[]", "\xff", "",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (0, 1000000000000000000000), }",
]  # fmt: skip


def with_header(text, data=b""):
    header = text.encode("latin1")
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


def npy(rng, content):
    """An array file with another header, other numbers, or another type."""
    way = rng.integers(4)
    if way == 0:
        return with_header(pick(rng, HEADERS), content[-48:])
    if way == 1:
        header = int.from_bytes(content[8:10], "little")
        return content[:10] + any_bytes(rng, content[10 : 10 + header]) + content[10 + header :]
    array, kinds = np.load(io.BytesIO(content)), [*TYPES, np.complex128, "U3", "S2", ">f8", ">i2"]
    if way == 2 and array.size and array.dtype.kind == "f":
        array.flat[int(rng.integers(array.size))] = pick(rng, NUMBERS)
    else:
        array = array.reshape(-1)[: int(rng.integers(array.size + 1))].astype(pick(rng, kinds))
    return array_file(array)


def array_file(array):
    target = io.BytesIO()
    np.save(target, array)
    return target.getvalue()


def npz(rng, content):
    """An archive with other members, packed in other ways, or with other sizes in its lists."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name, way = pick(rng, list(members)), rng.integers(3)
    if way == 0:
        data = bytearray(content)
        at = max(0, content.rfind(b"PK\x01\x02", 0, int(rng.integers(len(content)) + 4)))
        data[min(len(data) - 1, at + int(rng.integers(46)))] = int(rng.integers(256))
        return bytes(data)
    new = name if way == 1 else pick(rng, ["X.npy", "Z.npy", "Y", "../X.npy", "\x1b.npy"])
    members[new] = npy(rng, members.pop(name)) if way == 1 else members.pop(name)
    return packed(members, pick(rng, [0, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA]))


def packed(members, packing=zipfile.ZIP_DEFLATED):
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", packing) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return target.getvalue()
