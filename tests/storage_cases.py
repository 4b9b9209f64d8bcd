"""Objects of every kind that can be kept in a file, with little data."""

import numpy as np

import polyattn as pa
from fuzz_targets import own_program
from rotary_cases import random_rotary
from saved_models import MODELS
from sublayers import rms_norm, turned

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 4, 2))
FORM = pa.Form(mode="causal", decay=[0.5, 0.9], value=[1], skip=True, intercept=True)
Y = pa.data.random_layer(2, 2, mode="last")(X) + 0.1 * RNG.standard_normal((40, 2))
Y_CAUSAL = RNG.standard_normal((40, 4, 2))
IDS = pa.SequenceBatch.from_ids(np.arange(160).reshape(40, 4) % 7 % 3, 3)


def random_layer(n_heads, d, e, mode="last", bias=False):
    rng = np.random.default_rng(n_heads)
    return pa.LinearAttention(
        rng.standard_normal((n_heads, d, d)), rng.standard_normal((n_heads, d, e)), mode, bias
    )


def random_softmax(X):
    return pa.data.random_softmax_layer(3, n_heads=2, random_state=1)(X)


def learned_softmax() -> pa.LearnedSoftmax:
    task = pa.data.planted_softmax(60, 3, 2, random_state=0)
    return pa.learn_softmax(task.X, task.Y)


def linearised(**options):
    layer = pa.data.random_softmax_layer(2, n_heads=2, random_state=0)
    return pa.linearise(layer, X, n_features=3, **options)


def sums_of_two():
    return pa.Moments(2, 2).update(X, Y, chunk="a").update(X, Y, chunk="b")


MEMORY = pa.programs.associative_memory(2, 2)


def learned_coefficients():
    return pa.programs.learn(MEMORY.schema, pa.programs.traces(MEMORY, 6), "coefficients")


def sublayer(X):
    """Its input, and attention with positions to normalised tokens."""
    return X + turned(4)(rms_norm(X))


OBJECTS = {
    "layer": lambda: random_layer(2, 3, 2),
    "layer with bias": lambda: random_layer(1, 3, 1, "causal", bias=True),
    "layer of any numbers": lambda: pa.LinearAttention([[5e-324, -0.0], [1e308, -1.0]], np.eye(2)),
    "softmax layer": lambda: pa.SoftmaxAttention(np.eye(3), np.ones((3, 2)), "causal", bias=True),
    "softmax layer with positions": lambda: random_rotary("causal", bias=True),
    "learned softmax layer": learned_softmax,
    "layer from queries": lambda: pa.learn_from_queries(random_softmax, 3, mode="causal"),
    "layer with bias from queries": lambda: pa.learn_from_queries(random_softmax, 3, bias=True),
    "sublayer from queries": lambda: pa.learn_from_queries(sublayer, 4),
    "no layer from queries": lambda: pa.learn_from_queries(random_softmax, 3, max_queries=2),
    "circuits": lambda: pa.interop.circuits(2 * [pa.data.random_softmax_layer(3, n_heads=2)]),
    "moments": lambda: pa.Moments(2, 2).update(X, Y),
    "paired moments": lambda: pa.Moments(2, 2, "full", bias=True).update(X, Y_CAUSAL),
    "scaled moments": lambda: pa.Moments(2, 2).update(1e100 * X, 1e-100 * Y),
    "moments of inputs": lambda: pa.Moments(2, mode="causal").update(X),
    "empty moments": lambda: pa.Moments(3, 1),
    "factor": lambda: pa.TriangularFactor(2, 2, "causal").update(X, Y_CAUSAL),
    "short factor": lambda: pa.TriangularFactor(2, 2).update(X[:3], Y[:3]),
    "moments with names": lambda: pa.Moments(2, 2).update(X, Y, chunk="a").update(X, Y),
    "moments less a chunk": lambda: sums_of_two() - pa.Moments(2, 2).update(X, Y, chunk="b"),
    "factor of a stream": lambda: pa.TriangularFactor(2).update(X).update(X, forget=0.9),
    "empty factor": lambda: pa.TriangularFactor(3, 1),
    "program": lambda: pa.programs.compile(pa.programs.universal_dfa(2, 3, 4)),
    "Turing machine": lambda: pa.programs.compile(pa.programs.universal_turing_machine(2, 2, 4)),
    "fixed program": lambda: pa.programs.compile(
        pa.programs.fixed_dfa(pa.programs.machines.parity(), 3)
    ),
    "program of your own": own_program,
    "learned rules": lambda: pa.programs.learn(MEMORY.schema, pa.programs.traces(MEMORY, 6)),
    "learned coefficients": learned_coefficients,
    "program certificate": lambda: learned_coefficients().certificate,
    "audit of heads": lambda: pa.audit(
        pa.SoftmaxAttention(np.eye(2), np.eye(2)), X[:12], random_state=1
    ),
    "audit": lambda: pa.audit(random_layer(1, 2, 2), X, Y),
    "audit of a black box": lambda: pa.audit(lambda _: Y, X, Y),
    "audit of few rows": lambda: pa.audit(pa.fit(X[:3], Y[:3]), X[:3], Y[:3]),
    "linearised": linearised,
    "linearised layer": lambda: linearised(denominator="fitted", maps="elu", window=2).layer,
    "learning curve": lambda: pa.learning_curve(X, Y, [8, 16], n_repeats=2),
    "forecast": lambda: pa.forecast(random_layer(1, 2, 2), X[:2], 3),
    "layer of a form": lambda: pa.data.random_layer(2, 2, form=FORM),
    "moments of a form": lambda: pa.Moments(2, 2, form=FORM).update(X, Y_CAUSAL),
    "result of a form": lambda: pa.fit(X, Y_CAUSAL, form=FORM),
    "result by log-loss": lambda: pa.fit(X, Y[:, 0] > 0, loss="logistic", ridge=0.5),
    "result": lambda: pa.fit(X, Y),
    "result of token ids": lambda: pa.fit(IDS, Y, solver="one_hot"),
    "result by dual": lambda: pa.fit(X, Y, solver="dual"),
    "result by iteration": lambda: pa.fit(X, Y, solver="iterative"),
    "result of few rows": lambda: pa.fit(X[:3], Y[:3]),
    "result with bias": lambda: pa.fit(X, Y_CAUSAL, mode="full", bias=True, ridge=0.5),
    "result with ridge path": lambda: pa.fit(X, Y, ridge="loo"),
    "result by gcv": lambda: pa.fit(X, Y, ridge="gcv"),
    "result from factor": lambda: pa.fit(
        statistics=pa.TriangularFactor(2, 2).update(X, Y), ridge=1.0
    ),
    "result with one head": lambda: pa.fit(X, Y, n_heads=1),
    "result of zeros": lambda: pa.fit(X, 0 * Y),
    "result of numpy options": lambda: pa.fit(
        X, Y, bias=np.True_, ridge=np.float32(0.5), random_state=np.int64(3), n_heads=np.int32(2)
    ),
    **MODELS,
}
