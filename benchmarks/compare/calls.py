"""Random public calls of polyattn, each drawn from its number, that answer with plain values.

Nothing but numpy draws the data and nothing but public names is called, so that any two versions
can be asked the same.  Run as a program it is one side of the comparison: it reads numbers of
calls, one a line, and writes for each a line of JSON with the answers and the seconds they took.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import polyattn as pa

Answers = dict[str, Any]
Prepared = Callable[[], Answers]
Rng = np.random.Generator

#: How often each kind is drawn, and how it is drawn.
KINDS: dict[str, tuple[int, Callable[[Rng], Prepared]]] = {}
MODES = ("last", "causal", "full")


def kind(share: int) -> Callable[[Callable[[Rng], Prepared]], Callable[[Rng], Prepared]]:
    """Enters a kind of call; ``share``: of how many among all kinds."""

    def entered(draw: Callable[[Rng], Prepared]) -> Callable[[Rng], Prepared]:
        KINDS[draw.__name__] = (share, draw)
        return draw

    return entered


def drawn(number: int, seed: int, only: str = "") -> tuple[str, Callable[[], Answers]]:
    """The kind of the call of this number, and the call itself."""
    rng = np.random.default_rng([seed, number])
    names = [name for name in KINDS if name.startswith(only)]
    shares = np.array([KINDS[name][0] for name in names], dtype=float)
    name = str(rng.choice(names, p=shares / shares.sum()))
    return name, KINDS[name][1](rng)


# ------------------------------------------------------------------ data


def tokens(rng: Rng, n: int, n_dims: int, of: str) -> np.ndarray:
    """Tokens (n, d): normal, small integers, signs, symbols, or without one direction."""
    if of == "integer":
        return rng.integers(-3, 4, size=(n, n_dims)).astype(float)
    if of == "boolean":
        return rng.choice([-1.0, 1.0], size=(n, n_dims))
    if of == "one_hot":
        return np.eye(n_dims)[rng.integers(n_dims, size=n)]
    found = rng.standard_normal((n, n_dims))
    if of == "flat":
        found[:, -1] = found[:, :-1].sum(axis=1)
    return found


def sequences(rng: Rng, n_dims: int, most: int = 40) -> list[np.ndarray]:
    """Sequences of equal or of different lengths, some of them twice, in some unit."""
    of = str(
        rng.choice(["normal", "integer", "boolean", "one_hot", "flat"], p=[0.5, 0.2, 0.1, 0.1, 0.1])
    )
    lengths = rng.integers(1, 7, size=int(rng.integers(1, most)))
    if rng.random() < 0.7:
        lengths[:] = lengths[0]
    X = [tokens(rng, int(n), n_dims, of) for n in lengths]
    if rng.random() < 0.1:
        X = X + X[: len(X) // 2]
    unit = float(rng.choice([1.0, 1.0, 2.0**-20, 1e6]))
    return [x * unit for x in X]


def random_form(rng: Rng, n_dims: int) -> dict[str, Any]:
    """Fields of a form that do not contradict each other."""
    mode = str(rng.choice(MODES))
    form: dict[str, Any] = {
        "mode": mode,
        "include_query": bool(rng.random() < 0.7),
        "mean": bool(rng.random() < 0.4),
        "skip": bool(rng.random() < 0.3),
        "bias": bool(rng.random() < 0.3),
    }
    form["intercept"] = not (form["skip"] and form["bias"]) and bool(rng.random() < 0.3)
    if mode != "full":
        form |= [{}, {}, {"window": 3}, {"decay": 0.75}, {"decay": (0.5, 1.0)}, {"lags": 2}][
            rng.integers(6)
        ]
    for name in ("query", "key", "value"):
        size = int(rng.integers(1, n_dims + 1))
        some = tuple(int(j) for j in rng.choice(n_dims, size, replace=False))
        table = rng.integers(-2, 3, size=(n_dims, size)).astype(float)
        ready = [pa.maps.elu1(), pa.maps.polynomial(2), pa.maps.normalised()][rng.integers(3)]
        form[name] = [None, None, None, some, table, ready][rng.integers(6)]
    return form


def targets(rng: Rng, X: list[np.ndarray], mode: str, n_outputs: int) -> Any:
    """Targets of a smooth function and noise of some size, in the shape of the mode."""
    noise = float(rng.choice([0.0, 0.1, 10.0]))
    weights = rng.standard_normal((X[0].shape[1], n_outputs))
    rows = []
    for x in X:
        smooth = np.tanh(x.mean(axis=0) / (1 + np.abs(x).max()) @ weights)
        rows.append(smooth + noise * rng.standard_normal((len(x), n_outputs)))
    return np.array([r[-1] for r in rows]) if mode == "last" else rows


def planted(rng: Rng, n_dims: int, mode: str, n_heads: int, n_outputs: int) -> tuple[Any, Any]:
    """Sequences and the outputs of a random linear layer."""
    layer = pa.LinearAttention(
        rng.standard_normal((n_heads, n_dims, n_dims)),
        rng.standard_normal((n_heads, n_dims, n_outputs)),
        mode=mode,
    )
    X = rng.standard_normal((3 * n_dims**3 + 10, 5, n_dims))
    return X, layer(X)


# ------------------------------------------------------------------ what results say


def outcome(result: Any) -> Answers:
    """Name of the outcome, and whether all is well."""
    return {"outcome": result.outcome.name, "ok": bool(result.outcome.ok)}


def about_fit(result: Any, X: Any = None, context: Any = None) -> Answers:
    """Coefficients, rank, risk and predictions of a fit."""
    answers = outcome(result) | {
        "coef": result.coef,
        "risk": result.risk,
        "rank": result.rank,
        "condition": result.condition,
        "ridge": result.ridge,
    }
    if X is not None:
        outputs = result.predict(X) if context is None else result.predict(X, context=context)
        answers["outputs"] = np.concatenate([np.atleast_2d(each) for each in outputs])
    return answers


@contextmanager
def folder() -> Iterator[Path]:
    """A folder that is gone afterwards."""
    with tempfile.TemporaryDirectory() as place:
        yield Path(place)


# ------------------------------------------------------------------ the kinds of calls


@kind(30)
def fit(rng: Rng) -> Prepared:
    n_dims = int(rng.integers(1, 4))
    X = sequences(rng, n_dims)
    form = random_form(rng, n_dims)
    Y = targets(rng, X, form["mode"], int(rng.integers(1, 3)))
    options: dict[str, Any] = {
        "ridge": [0.0, 0.0, 1e-3, 1.0][rng.integers(4)],
        "sample_weight": rng.uniform(0.1, 2, len(X)) if rng.random() < 0.3 else None,
        "solver": str(rng.choice(["auto", "auto", "primal", "dual", "iterative"])),
    }
    return lambda: about_fit(pa.fit(X, Y, form=pa.Form(**form), **options), X)


@kind(6)
def leave_one_out(rng: Rng) -> Prepared:
    """The ridge is chosen by leaving out sequences that differ from all others."""
    n_dims = int(rng.integers(1, 4))
    form = random_form(rng, n_dims)
    X = [tokens(rng, 4, n_dims, "normal") for _ in range(int(rng.integers(4, 40)))]
    Y = targets(rng, X, form["mode"], 1)
    return lambda: about_fit(pa.fit(X, Y, form=pa.Form(**form), ridge="loo"), X)


@kind(2)
def leave_copies_out(rng: Rng) -> Prepared:
    """The same with every sequence twice, and other noise: both are left out together."""
    X = [tokens(rng, 4, 2, "normal") for _ in range(int(rng.integers(4, 20)))] * 2
    Y = targets(rng, X, "last", 1)
    return lambda: about_fit(pa.fit(X, Y, ridge="loo"), X)


@kind(8)
def fit_context(rng: Rng) -> Prepared:
    X = sequences(rng, 2)
    mode = str(rng.choice(MODES))
    Z = [rng.standard_normal((len(x) + (mode != "causal"), 3)) for x in X]
    Y = targets(rng, X, mode, 1)
    form = {"mode": mode, "mean": bool(rng.integers(2)), "skip": bool(rng.integers(2))}
    return lambda: about_fit(pa.fit(X, Y, form=pa.Form(**form), context=Z), X, Z)


@kind(8)
def statistics(rng: Rng) -> Prepared:
    mode = str(rng.choice(MODES))
    X = sequences(rng, 2)
    Y = targets(rng, X, mode, 1)
    make = [pa.Moments, pa.TriangularFactor][rng.integers(2)]
    cut = int(rng.integers(len(X) + 1))
    ridge = float(rng.choice([0.0, 0.1]))

    def call() -> Answers:
        whole = make(2, 1, mode=mode)
        for part in (slice(0, cut), slice(cut, None)):
            if X[part]:
                whole = whole + make(2, 1, mode=mode).update(X[part], Y[part])
        return about_fit(pa.fit(statistics=whole, ridge=ridge), X)

    return call


@kind(8)
def heads(rng: Rng) -> Prepared:
    n_dims, mode = int(rng.integers(2, 4)), str(rng.choice(MODES))
    n_heads, n_outputs = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    X, Y = planted(rng, n_dims, mode, n_heads, n_outputs)
    noise = float(rng.choice([0.0, 0.0, 0.1]))
    Y = Y + noise * rng.standard_normal(Y.shape)
    asked = [None, "auto", 1, n_heads][rng.integers(4)]

    def call() -> Answers:
        result = pa.fit(X, Y, mode=mode, n_heads=asked)
        layer = result.layer
        found = {"n_heads": layer.n_heads, "outputs": np.asarray(layer(X[:3])).ravel()}
        return about_fit(result) | found

    return call


@kind(6)
def log_loss(rng: Rng) -> Prepared:
    X = [tokens(rng, 4, 2, "normal") for _ in range(int(rng.integers(10, 60)))]
    labels = rng.integers(int(rng.integers(2, 4)), size=len(X))
    ridge = float(rng.choice([0.01, 1.0]))
    labels[:2] = [0, 1]

    def call() -> Answers:
        model = pa.LinearAttentionClassifier(loss="logistic", ridge=ridge).fit(np.array(X), labels)
        return {
            "chances": model.predict_proba(np.array(X)),
            "outcome": model.outcome_.name,
            "ok": bool(model.outcome_.ok),
        }

    return call


@kind(6)
def token_ids(rng: Rng) -> Prepared:
    n_symbols = int(rng.integers(2, 6))
    ids = [rng.integers(n_symbols, size=int(rng.integers(1, 6))) for _ in range(30)]
    ids[0][0] = n_symbols - 1
    Y = rng.standard_normal((len(ids), 1))
    ridge = float(rng.choice([0.0, 0.5]))

    def call() -> Answers:
        X = pa.SequenceBatch.from_ids(ids, n_symbols)
        return about_fit(pa.fit(X, Y, ridge=ridge), X)

    return call


@kind(25)
def certify(rng: Rng) -> Prepared:
    n_dims = int(rng.integers(1, 4))
    X = sequences(rng, n_dims, most=60)
    form = random_form(rng, n_dims)
    same = all(np.all(np.abs(x) == 1) for x in X)
    domain = "boolean" if same and rng.random() < 0.7 else "real"
    if any(form[name] is not None for name in ("query", "key", "value")):
        domain = "real"

    def call() -> Answers:
        certificate = pa.certify(X, form=pa.Form(**form), domain=domain)
        answers = outcome(certificate) | {
            "verdict": certificate.verdict,
            "rank": certificate.rank,
            "n_features": certificate.n_features,
            "verified": pa.verify(certificate, X),
        }
        if certificate.verdict == "not_identifiable":
            answers["witness differs"] = certificate.witness().difference > 0
        return answers

    return call


@kind(3)
def estimators(rng: Rng) -> Prepared:
    X = np.array([tokens(rng, 6, 2, "normal") for _ in range(40)])
    y = X[:, :, 0].mean(axis=1) * X[:, -1, 1] + 0.1 * rng.standard_normal(len(X))
    labels = np.where(y > np.median(y), "up", "down")
    ridge = ["loo", 0.1][rng.integers(2)]

    def call() -> Answers:
        regressor = pa.LinearAttentionRegressor(ridge=ridge, bias=True).fit(X[:30], y[:30])
        classifier = pa.LinearAttentionClassifier(ridge=ridge).fit(X[:30], labels[:30])
        scaler = pa.SequenceScaler().fit(X[:30])
        return {
            "predicted": regressor.predict(X),
            "score": regressor.score(X[30:], y[30:]),
            "decisions": classifier.decision_function(X),
            "classes": classifier.predict(X).tolist(),
            "scaled": np.asarray(scaler.transform(X)),
        }

    return call


@kind(4)
def programs(rng: Rng) -> Prepared:
    n_states, n_letters, length = (int(rng.integers(2, 4)) for _ in range(3))
    seed = int(rng.integers(1000))
    which = int(rng.integers(3))

    def call() -> Answers:
        P = pa.programs
        program = (
            P.universal_dfa(n_states, n_letters, length)
            if which == 0
            else P.universal_turing_machine(n_states, n_letters, 4)
            if which == 1
            else P.associative_memory(n_states, n_letters)
        )
        compiled = P.compile(program)
        traces = P.traces(program, 5, random_state=seed)
        outputs = [np.asarray(compiled.layer(t.tokens[:-1][None])).ravel() for t in traces]
        return {
            "n_dims": compiled.layer.n_dims,
            "n_heads": compiled.layer.n_heads,
            "tokens": np.concatenate([np.asarray(t.tokens).ravel() for t in traces]),
            "outputs": np.concatenate(outputs),
        }

    return call


@kind(1)
def learn_programs(rng: Rng) -> Prepared:
    seed, n_traces = int(rng.integers(1000)), int(rng.integers(5, 60))
    method = str(rng.choice(["rules", "coefficients"]))

    def call() -> Answers:
        program = pa.programs.universal_dfa(2, 2, 3)
        traces = pa.programs.traces(program, n_traces, random_state=seed)
        learned = pa.programs.learn(program.schema, traces, method=method)
        return outcome(learned)

    return call


@kind(2)
def learn_softmax(rng: Rng) -> Prepared:
    n_heads = int(rng.integers(1, 3))
    attn, value = rng.standard_normal((n_heads, 3, 3)), rng.standard_normal((n_heads, 3, 2))
    X = rng.choice([-1.0, 1.0], size=(400, 6, 3))
    noise = float(rng.choice([0.0, 0.01])) * rng.standard_normal((400, 6, 2))

    def call() -> Answers:
        soft = pa.SoftmaxAttention(attn, value)
        result = pa.learn_softmax(X, np.asarray(soft(X)) + noise, random_state=0)
        match = pa.match_heads(result.layer, soft)
        return outcome(result) | {
            "n_heads": result.layer.n_heads,
            "heads are found": match.worst_attn < 0.1 and not match.missing,
        }

    return call


@kind(3)
def learn_from_queries(rng: Rng) -> Prepared:
    n_dims, n_heads = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    attn = rng.standard_normal((n_heads, n_dims, n_dims))
    value = rng.standard_normal((n_heads, n_dims, int(rng.integers(1, 4))))

    def call() -> Answers:
        soft = pa.SoftmaxAttention(attn, value)
        result = pa.learn_from_queries(soft, n_dims, random_state=0)
        answers = outcome(result) | {"n_queries~": result.n_queries}
        if result.layer is not None:
            answers |= {
                "n_heads": result.layer.n_heads,
                "same": pa.same_function(result.layer, soft, 1e-6),
            }
        return answers

    return call


@kind(3)
def audit(rng: Rng) -> Prepared:
    X, Y = planted(rng, 2, "last", 2, 1)
    Y = Y + 0.1 * rng.standard_normal(Y.shape)
    attn, value = rng.standard_normal((1, 2, 2)), rng.standard_normal((1, 2, 1))

    def call() -> Answers:
        found = pa.audit(pa.LinearAttention(attn, value), X, Y)
        return outcome(found) | {
            "risk": found.risk,
            "optimal_risk": found.optimal_risk,
            "distance": found.distance,
            "consistent": found.consistent,
        }

    return call


@kind(1)
def linearise(rng: Rng) -> Prepared:
    attn, value = rng.standard_normal((2, 3, 3)), rng.standard_normal((2, 3, 3))
    X = rng.standard_normal((40, 8, 3))

    def call() -> Answers:
        found = pa.linearise(pa.SoftmaxAttention(attn, value), X, n_features=8, random_state=0)
        return outcome(found) | {"error~": found.error}

    return call


@kind(2)
def forecast(rng: Rng) -> Prepared:
    t = np.arange(80)
    angle = rng.uniform(0.1, 0.6, size=(6, 1))
    X = np.stack([np.sin(angle * t), np.cos(angle * t)], axis=2)
    noise = float(rng.choice([0.0, 0.05]))
    X = X + noise * rng.standard_normal(X.shape)

    def call() -> Answers:
        form = pa.Form(mode="causal", lags=2, skip=True)
        result = pa.fit(X[:, :-1], X[:, 1:], form=form, ridge=1e-6)
        found = pa.forecast(result, X[:, :40], 10)
        return outcome(found) | {"values": np.concatenate(list(found.values))}

    return call


@kind(2)
def learning_curve(rng: Rng) -> Prepared:
    X, Y = planted(rng, 2, "last", 1, 1)
    Y = Y + float(rng.choice([0.0, 0.5])) * rng.standard_normal(Y.shape)

    def call() -> Answers:
        found = pa.learning_curve(X, Y, train_sizes=[8, 16, 24], random_state=0, n_repeats=3)
        return outcome(found) | {"test_risk": found.test_risk, "train_risk": found.train_risk}

    return call


@kind(5)
def files(rng: Rng) -> Prepared:
    X, Y = planted(rng, 2, "causal", 1, 1)
    which = int(rng.integers(4))

    def call() -> Answers:
        made: Any = [
            lambda: pa.fit(X, Y, mode="causal"),
            lambda: pa.certify(X, "causal"),
            lambda: pa.Moments(2, 1, mode="causal").update(X, Y),
            lambda: pa.fit(X, Y, mode="causal").layer,
        ][which]()
        with folder() as place:
            pa.save(made, place / "made.safetensors" if which != 1 else place / "made.json")
            read = pa.load(place / ("made.safetensors" if which != 1 else "made.json"))
        same = str(read) == str(made)
        return {"kind": type(read).__name__, "same": same}

    return call


@kind(4)
def sources(rng: Rng) -> Prepared:
    X = np.array([tokens(rng, 4, 2, "normal") for _ in range(30)])
    Y = rng.standard_normal((30, 1))
    as_table = bool(rng.integers(2))

    def call() -> Answers:
        with folder() as place:
            if as_table:
                import pandas as pd

                frame = pd.DataFrame(X.reshape(-1, 2), columns=["a", "b"])
                frame["s"], frame["t"] = np.repeat(np.arange(30), 4), np.tile(np.arange(4), 30)
                frame["y"] = np.repeat(Y[:, 0], 4)
                frame.to_parquet(place / "x.parquet")
                names = {"sequence": "s", "order": "t", "tokens": ["a", "b"], "targets": ["y"]}
                source = pa.scan(place / "x.parquet", **names)
            else:
                np.savez(place / "x.npz", X=X, Y=Y)
                source = pa.scan(place / "x.npz")
            return about_fit(pa.fit(source, ridge=0.1), X)

    return call


# ------------------------------------------------------------------ one side


def answered(number: int, seed: int, only: str) -> dict[str, Any]:
    """Kind, answers and seconds of one call; an error is an answer too."""
    name, call = drawn(number, seed, only)
    began = time.perf_counter()
    try:
        answers = call()
    except Exception as error:  # noqa: BLE001 - whatever it is, the other side is asked the same
        answers = {"raised": type(error).__name__}
    return {
        "kind": name,
        "seconds": time.perf_counter() - began,
        "answers": {key: plain(value) for key, value in answers.items()},
    }


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, np.ndarray):
        return {"shape": list(value.shape), "values": value.astype(float).ravel().tolist()}
    return value.item() if isinstance(value, np.generic) else value


def main() -> None:
    seed, only = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""
    for line in sys.stdin:
        print(json.dumps(answered(int(line), seed, only)), flush=True)


if __name__ == "__main__":
    main()
