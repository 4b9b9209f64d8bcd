"""Oracles that are nearly attention, or hardly: what ``learn_from_queries`` must not be fooled by.

``cases()`` yields more than 200 of them: kinds of perturbations in several sizes.  ``violation``
says in how many standard errors a claim is wrong, where one is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

import polyattn as pa

D, H = 4, 2
RNG = np.random.default_rng(7)
LAYER = pa.SoftmaxAttention(RNG.standard_normal((H, D, D)) / 2, RNG.standard_normal((H, D, D)) / 2)
MAP = RNG.standard_normal((D, D)) / 2
GATE = RNG.standard_normal(D) / 2

SIZES = (1e-12, 1e-9, 1e-6, 1e-4, 1e-2, 1e-1)


@dataclass(frozen=True)
class Case:
    """An oracle; ``layer`` is what is true of it, None where no layer is."""

    kind: str
    size: float
    make: Callable[[], Callable[[NDArray], NDArray]]
    layer: pa.SoftmaxAttention | None = None
    options: dict[str, Any] = field(default_factory=dict)
    n_dims: int = D

    @property
    def name(self) -> str:
        return f"{self.kind} {self.size:g}"


def bfloat16(Y: NDArray) -> NDArray:
    """Rounded to bfloat16, in an array of float32."""
    bits = np.ascontiguousarray(Y, np.float32).view(np.uint32)
    rounded = bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))
    return (rounded & np.uint32(0xFFFF0000)).view(np.float32)


def attention(X, logits=lambda Z, _X: Z, weights=lambda P: P, layer=LAYER, rounded=lambda Y: Y):
    """softmax(X A X^T) X V by hand, with changes of the logits (B, n, n) and of the weights."""
    X, outputs = rounded(X), 0
    for A, V in zip(layer.attn, layer.value, strict=True):
        Z = rounded(logits(rounded(X @ A) @ X.transpose(0, 2, 1), X))
        E = np.exp(Z - Z.max(axis=2, keepdims=True))
        P = rounded(weights(E / E.sum(axis=2, keepdims=True)))
        outputs = outputs + rounded(P @ rounded(X @ V))
    return rounded(outputs)


def distances(n):
    return np.abs(np.subtract.outer(np.arange(n), np.arange(n)))


def normalised(X):
    return X / np.sqrt(np.mean(X**2, axis=2, keepdims=True) + 1e-12)


PERTURBED: dict[str, Callable[[NDArray, float], NDArray]] = {
    "square of the token": lambda X, s: LAYER(X) + s * X**2 @ MAP,
    "square of the mean": lambda X, s: LAYER(X) + s * X.mean(axis=1, keepdims=True) ** 2 @ MAP,
    "square of the answer": lambda X, s: LAYER(X) + s * LAYER(X) ** 2,
    "squashed": lambda X, s: np.tanh(s * LAYER(X)) / s,
    "distances in logits": lambda X, s: attention(X, lambda Z, X: Z - s * distances(X.shape[1])),
    "positions in values": lambda X, s: LAYER(X) + s * np.arange(X.shape[1])[:, None] / X.shape[1],
    "gate": lambda X, s: LAYER(X) * (1 + s * np.tanh(X @ GATE))[:, :, None],
    "temperature of the length": lambda X, s: attention(
        X, lambda Z, X: Z * (1 + s * np.log(X.shape[1]))
    ),
    "temperature of the token": lambda X, s: attention(
        X, lambda Z, X: Z * (1 + s * np.tanh(X @ GATE))[:, :, None]
    ),
    "steps of the answers": lambda X, s: np.rint(LAYER(X) / s) * s,
    "steps of the tokens": lambda X, s: LAYER(np.rint(X / s) * s),
    "normalised tokens, partly": lambda X, s: LAYER((1 - s) * X + s * normalised(X)),
    "residual": lambda X, s: LAYER(X) + s * X,
    "another map": lambda X, s: LAYER(X) + s * X @ MAP,
    "perceptron": lambda X, s: LAYER(X) + s * np.maximum(LAYER(X) @ MAP, 0) @ MAP,
    "size of the token": lambda X, s: (
        LAYER(X) * (1 + s * np.sum(X**2, axis=2, keepdims=True) / (1 + np.sum(X**2)))
    ),
    "softmax with one more": lambda X, s: attention(X, weights=lambda P: P / (1 + s * P)),
    "bounded logits": lambda X, s: attention(X, lambda Z, _X: np.tanh(s * Z) / s),
    "small weights dropped": lambda X, s: attention(X, weights=lambda P: P * (s < P)),
    "cubic attention": lambda X, s: LAYER(X) + s * X @ X.transpose(0, 2, 1) @ X / X.shape[1],
    "batch": lambda X, s: LAYER(X) + s * LAYER(X).mean(axis=0, keepdims=True),
    "turned by positions": lambda X, s: attention(
        X, lambda Z, X: Z * np.cos(s * distances(X.shape[1]))
    ),
}


class Counting:
    """Adds a number that grows from call to call."""

    def __init__(self, size):
        self.size, self.n = size, 0

    def __call__(self, X):
        self.n += 1
        return LAYER(X) + self.size * self.n


class Caching:
    """Attends to the last token of the call before, too, to some part."""

    def __init__(self, size):
        self.size, self.kept = size, np.zeros(D)

    def __call__(self, X):
        before, self.kept = self.kept, X[0, -1]
        return LAYER(X) + self.size * before @ MAP


class Noisy:
    """Noise that is drawn anew for every answer, or weights that are dropped at random."""

    def __init__(self, size, dropped=False):
        self.size, self.dropped, self.rng = size, dropped, np.random.default_rng(0)

    def __call__(self, X):
        if self.dropped:
            return attention(X, weights=lambda P: P * (self.rng.random(P.shape) >= self.size))
        outputs = LAYER(X)
        return outputs + self.size * self.rng.standard_normal(outputs.shape)


def limited(largest, answer):
    """The layer, and ``answer`` for tokens beyond a size."""

    def oracle(X):
        outputs = LAYER(X)
        outputs[np.abs(X).max(axis=(1, 2)) > largest] = answer
        return outputs

    return oracle


def layers() -> Iterator[tuple[str, float, pa.SoftmaxAttention]]:
    """True layers that are hard: heads alike, of very different size, saturated."""
    (A, B), (V, W) = LAYER.attn, LAYER.value
    make = pa.SoftmaxAttention
    for size in (*SIZES[1:], 1e-3, 1e-7):
        yield "heads alike", size, make(np.stack([A, A + size * B]), LAYER.value)
        yield "values alike", size, make(LAYER.attn, np.stack([V, V + size * W]))
        yield "opposite values", size, make(LAYER.attn, np.stack([V, -V + size * W]))
        yield "small head", size, make(LAYER.attn, np.stack([V, size * W]))
        yield "small attn", size, make(np.stack([A, size * B]), LAYER.value)
        yield "large attn", 1 / size, make(np.stack([A, B / size]), LAYER.value)
        yield "large head", 1 / size, make(LAYER.attn, np.stack([V, W / size]))


def few_outputs() -> Iterator[tuple[str, float, pa.SoftmaxAttention]]:
    """More heads than outputs."""
    rng = np.random.default_rng(8)
    for n_heads, n_outputs in ((2, 1), (3, 1), (4, 2), (5, 1), (6, 1)):
        attn = rng.standard_normal((n_heads, 3, 3)) / 2
        value = rng.standard_normal((n_heads, 3, n_outputs))
        yield "more heads than outputs", n_heads, pa.SoftmaxAttention(attn, value)


ROUNDED = {
    "float32": lambda Y: Y.astype(np.float32),
    "float16": lambda Y: Y.astype(np.float16),
    "bfloat16": bfloat16,
}


def cases() -> Iterator[Case]:
    """All of them."""
    yield from _perturbed()
    yield from _other_functions()
    yield from _true_layers()


def _perturbed() -> Iterator[Case]:
    for kind, function in PERTURBED.items():
        for size in SIZES:
            yield Case(kind, size, lambda f=function, s=size: lambda X: f(X, s))
    for kind in ("square of the token", "gate", "residual", "distances in logits", "perceptron"):
        for size in (1e-4, 1e-3, 1e-2, 1e-1):
            function = PERTURBED[kind]
            yield Case(
                f"{kind}, bfloat16", size, lambda f=function, s=size: lambda X: bfloat16(f(X, s))
            )


def _other_functions() -> Iterator[Case]:
    for size in SIZES:
        yield Case("dropped weights", size, lambda s=size: Noisy(s, dropped=True))
        yield Case("counter", size, lambda s=size: Counting(s))
        yield Case("cache", size, lambda s=size: Caching(s))
        biased = np.concatenate([LAYER.value, np.full((H, 1, D), size)], axis=1)
        attn = np.pad(LAYER.attn, ((0, 0), (0, 1), (0, 1)))
        layer = pa.SoftmaxAttention(attn, biased, bias=True)
        yield Case("bias not asked for", size, lambda layer=layer: layer)
    for bound in (0.1, 0.5, 2.0, 10.0, 100.0):
        yield Case("clipped", bound, lambda b=bound: lambda X: np.clip(LAYER(X), -b, b))
        for kind, answer in (("NaN", np.nan), ("zero", 0.0)):
            yield Case(f"{kind} for large", bound, lambda b=bound, a=answer: limited(b, a))
    for shown in (1, 2, 3):
        yield Case(
            "window", shown,
            lambda w=shown: lambda X: attention(
                X, lambda Z, X: np.where(distances(X.shape[1]) <= w, Z, -1e9)
            ),
        )  # fmt: skip
    yield Case("input", 0, lambda: lambda X: X.copy())
    yield Case("constant", 0, lambda: np.ones_like)


def _true_layers() -> Iterator[Case]:
    for size in SIZES:
        yield Case("noise", size, lambda s=size: Noisy(s), LAYER)
        yield Case("bias asked for", size, lambda: LAYER, LAYER, {"bias": True})
    for kind, size, layer in (*layers(), *few_outputs()):
        few = {"max_queries": 6000} if kind == "more heads than outputs" else {}
        yield Case(kind, size, lambda layer=layer: layer, layer, few, layer.n_dims)
    for kind, size, layer in layers():
        if size in (1e-2, 1e2, 1e-4):
            yield Case(f"{kind}, bfloat16", size, lambda of=layer: lambda X: bfloat16(of(X)), layer)
    for name, rounded in ROUNDED.items():
        yield Case(f"{name} answers", 0, lambda r=rounded: lambda X: r(LAYER(X)), LAYER)
        yield Case(f"{name} inside", 0, lambda r=rounded: lambda X: attention(X, rounded=r), LAYER)


def violation(case: Case, result: pa.QueryResult) -> float:
    """How many standard errors a claim is wrong by; 0 where none is made.

    Of a true layer with as many heads, the heads; of others the last row on fresh sequences of the
    calibrated sizes.
    """
    if not result.outcome.ok:
        return 0.0
    if case.layer is not None and case.layer.n_heads == result.n_heads:
        return _of_heads(case.layer, result)
    return _of_function(case, result)


def _of_heads(layer: pa.SoftmaxAttention, result: pa.QueryResult) -> float:
    d, found = layer.n_dims, result.layer
    parts = [
        (layer.attn[:, :d, :d], found.attn[:, :d, :d], result.attn_error[:, :d, :d]),
        (layer.value[:, :d], found.value[:, :d], result.value_error[:, :d]),
    ]
    wrong = np.zeros((layer.n_heads, layer.n_heads))
    for true, other, bars in parts:
        errors = np.linalg.norm(true[:, None] - other[None], axis=(2, 3))
        rounding = 1e-14 * np.linalg.norm(true, axis=(1, 2))[:, None]
        wrong = np.maximum(wrong, errors / (np.linalg.norm(bars, axis=(1, 2)) + rounding))
    matched = linear_sum_assignment(np.minimum(wrong, 1e12))
    return float(wrong[matched].max())


def _of_function(case: Case, result: pa.QueryResult) -> float:
    sizes = next(phase.figures for phase in result.phases if phase.name == "sizes")
    rng, worst, layer, oracle = np.random.default_rng(11), 0.0, result.layer, case.make()
    last = pa.SoftmaxAttention(layer.attn, layer.value, "last", layer.bias)
    for spread in (0.7, 2.0):
        point, delta = (spread * sizes[name] / np.sqrt(case.n_dims) for name in ("point", "delta"))
        points = point * rng.standard_normal((20, 1, case.n_dims))
        X = np.concatenate([points + delta * rng.standard_normal((20, 3, case.n_dims)), points], 1)
        predicted, seen = last(X), np.asarray(oracle(X), dtype=np.float64)[:, -1]
        variances = result.noise**2 + np.zeros_like(predicted)
        for _ in range(8):
            attn, value = (
                array + error * rng.standard_normal(error.shape)
                for array, error in (
                    (layer.attn, result.attn_error),
                    (layer.value, result.value_error),
                )
            )
            drawn = pa.SoftmaxAttention(attn, value, "last", layer.bias)
            variances += (drawn(X) - predicted) ** 2 / 8
        # Rounding of float64 in these outputs themselves, and sizes that noise grew with.
        rounding = 1e-14 * np.abs(predicted).max()
        worst = max(
            worst,
            float(np.sqrt(np.mean((seen - predicted) ** 2) / (np.mean(variances) + rounding**2))),
        )
    return worst
