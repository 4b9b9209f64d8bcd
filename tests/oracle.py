"""What is true, by slow and literal means: the other side of every comparison in these tests.

Nothing of polyattn is imported here.  Layers are plain arrays, a form is a dictionary with the
fields of ``polyattn.Form`` that differ from their defaults, sequences are arrays (n, d).  Loops go
over every index that the papers write.  Index letters: a output, i product of a value and a key,
l query coordinate, h head, t position, s token attended to.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from typing import Any

import numpy as np
from flint import fmpq, fmpq_mat
from hypothesis import strategies as st
from numpy.typing import NDArray

EPS = float(np.finfo(np.float64).eps)
MODES = ("last", "causal", "full")

Fields = Mapping[str, Any]
Layer = Mapping[str, Any]

# ------------------------------------------------------------------ linear attention of every form
#
#     y_t = sum_h sum_s w_h(t, s) (q_t^T A_h k_s) V_h^T v_s  +  W^T q_t  +  c
#
# with q_t = query(x_t), k_s = key(z_s), v_s = value(z_s), each with a last number 1 where there is
# a bias.  The tokens z are those of the sequence itself, or of the context.  Tokens and decays may
# be rationals, in arrays of objects: everything is then exact.

DEFAULTS: dict[str, Any] = {
    "mode": "last", "include_query": True, "mean": False, "window": None, "decay": None,
    "lags": None, "query": None, "key": None, "value": None, "skip": False, "intercept": False,
    "bias": False,
}  # fmt: skip


def fields_of(form: Any) -> dict[str, Any]:
    """The fields of a ``polyattn.Form``, or of anything that has them."""
    return {name: getattr(form, name) for name in DEFAULTS}


def forward(layer: Layer, X: NDArray, form: Fields, context: NDArray | None = None) -> NDArray:
    """The outputs (rows, e) of a layer at the predicted positions of one sequence.

    layer : attn (H, r, keys), value (H, values, e), and perhaps skip (r, e), intercept (e,), and
    head_scales (H,), which says by which scale of distances each head weighs
    """
    form = {**DEFAULTS, **form}
    attn, value = layer["attn"], layer["value"]
    tokens = X if context is None else context
    queries = seen(X, form["query"], form["bias"])
    keys = seen(tokens, form["key"], form["bias"])
    values = seen(tokens, form["value"], form["bias"])
    outputs = []
    for t in predicted(len(X), form["mode"]):
        y = np.zeros(value.shape[2])
        positions = attended(t, len(tokens), form, context is not None)
        for h in range(len(attn)):
            scale = 0 if layer.get("head_scales") is None else int(layer["head_scales"][h])
            for s in positions:
                score = queries[t] @ attn[h] @ keys[s]
                share = weights(t, s, form)[scale] / (len(positions) if form["mean"] else 1)
                y = y + share * score * (values[s] @ value[h])
        if layer.get("skip") is not None:
            y = y + queries[t] @ layer["skip"]
        if layer.get("intercept") is not None:
            y = y + layer["intercept"]
        outputs.append(y)
    return np.array(outputs)


def fields_of_layer(layer: Any) -> dict[str, Any]:
    """The arrays of a ``polyattn.LinearAttention``."""
    return {name: getattr(layer, name)
            for name in ("attn", "value", "skip", "intercept", "head_scales")}  # fmt: skip


def summaries(
    X: NDArray, form: Fields, context: NDArray | None = None
) -> list[tuple[NDArray, NDArray]]:
    """(S (m,), u (r,)) of all predicted positions: all that a layer sees of them.

    S holds sum_s w(t, s) v_s[c] k_s[b] for each scale and each of ``pairs``, then a constant 1
    with a skip or an intercept; u is the query, then a constant 1 with an intercept.
    """
    form = {**DEFAULTS, **form}
    tokens = X if context is None else context
    queries = seen(X, form["query"], form["bias"])
    keys = seen(tokens, form["key"], form["bias"])
    values = seen(tokens, form["value"], form["bias"])
    found = []
    for t in predicted(len(X), form["mode"]):
        positions = attended(t, len(tokens), form, context is not None)
        S: list[Any] = []
        for scale in range(n_scales(form)):
            for c, b in pairs(form, tokens.shape[1]):
                total: Any = 0
                for s in positions:
                    total = total + weights(t, s, form)[scale] * (values[s][c] * keys[s][b])
                S.append(total / len(positions) if form["mean"] and positions else total)
        u = list(queries[t])
        if form["skip"] or form["intercept"]:
            S.append(1)
        if form["intercept"]:
            u.append(1)
        kind = object if X.dtype == object else float
        found.append((np.array(S, dtype=kind), np.array(u, dtype=kind)))
    return found


def places(form: Fields, n_sums: int, n_queries: int) -> list[tuple[int, int]]:
    """The (i, l) whose product S[i] u[l] is a feature.

    The constant of an intercept is multiplied with the other constant alone, and that of S with
    the query only if there is a skip.
    """
    form = {**DEFAULTS, **form}
    constant_sum = n_sums - 1 if form["skip"] or form["intercept"] else None
    constant_query = n_queries - 1 if form["intercept"] else None
    return [
        (i, k)
        for i, k in np.ndindex(n_sums, n_queries)
        if (i == constant_sum if k == constant_query else i != constant_sum or form["skip"])
    ]


def design(
    X: Sequence[NDArray], form: Fields, contexts: Sequence[NDArray] | None = None
) -> NDArray:
    """The features of all predicted positions of all sequences, one row each: (rows, p)."""
    rows = []
    for number, x in enumerate(X):
        for S, u in summaries(x, form, None if contexts is None else contexts[number]):
            rows.append([S[i] * u[k] for i, k in places(form, len(S), len(u))])
    return np.array(rows)


def squared_sizes(form: Fields, n_dims: int, n_queries: int) -> NDArray[np.float64]:
    """What a squared coefficient counts in ||T||^2, (p,): 1, or 1/2 where T has it twice.

    n_dims : of the tokens attended to; n_queries : of u, with all its constants
    """
    form = {**DEFAULTS, **form}
    key_labels = labels(form["key"], n_dims, form["bias"])
    value_labels = labels(form["value"], n_dims, form["bias"])
    one_scale = []
    for c, b in pairs(form, n_dims):
        both = value_labels[c] in key_labels and key_labels[b] in value_labels
        one_scale.append(0.5 if both and value_labels[c] != key_labels[b] else 1.0)
    sums = one_scale * n_scales(form)
    if form["skip"] or form["intercept"]:
        sums.append(1.0)
    return np.array([sums[i] for i, _ in places(form, len(sums), n_queries)])


def coefficients(layer: Layer, n_dims: int, form: Fields) -> NDArray[np.float64]:
    """The folded coefficients (e, m, r'): y[a] = sum_(i, l) coefficients[a, i, l] S[i] u[l].

    n_dims : the coordinates of the tokens attended to
    """
    form = {**DEFAULTS, **form}
    attn, value = layer["attn"], layer["value"]
    found = pairs(form, n_dims)
    key_labels = labels(form["key"], n_dims, form["bias"])
    value_labels = labels(form["value"], n_dims, form["bias"])
    place = {frozenset([value_labels[c], key_labels[b]]): i for i, (c, b) in enumerate(found)}
    n_products = n_scales(form) * len(found)
    n_sums = n_products + (form["skip"] or form["intercept"])
    coef = np.zeros((value.shape[2], n_sums, attn.shape[1] + form["intercept"]))
    for h in range(len(attn)):
        scale = 0 if layer.get("head_scales") is None else int(layer["head_scales"][h])
        for c, b in np.ndindex(len(value_labels), len(key_labels)):
            i = len(found) * scale + place[frozenset([value_labels[c], key_labels[b]])]
            for a, k in np.ndindex(value.shape[2], attn.shape[1]):
                coef[a, i, k] += value[h, c, a] * attn[h, k, b]
    if layer.get("skip") is not None:
        coef[:, n_products, : attn.shape[1]] = layer["skip"].T
    if layer.get("intercept") is not None:
        coef[:, -1, -1] = layer["intercept"]
    return coef


def features_of(coef: NDArray, form: Fields) -> NDArray:
    """Coefficients (e, m, r') as (p, e), in the order of the features."""
    return np.array([coef[:, i, k] for i, k in places(form, *coef.shape[1:])])


def table_of(theta: NDArray, form: Fields, n_sums: int, n_queries: int) -> NDArray:
    """Coefficients (p, e) of features as (e, m, r'); the inverse of ``features_of``."""
    coef = np.zeros((theta.shape[1], n_sums, n_queries), dtype=theta.dtype)
    for row, (i, k) in zip(theta, places(form, n_sums, n_queries), strict=True):
        coef[:, i, k] = row
    return coef


def predicted(n_tokens: int, mode: str) -> list[int]:
    """The positions that have an output."""
    return [n_tokens - 1] if mode == "last" else list(range(n_tokens))


def attended(t: int, n_tokens: int, form: Fields, is_context: bool = False) -> list[int]:
    """The tokens that position t attends to, of ``n_tokens``."""
    form = {**DEFAULTS, **form}
    found = []
    for s in range(n_tokens):
        if form["mode"] == "causal" or not is_context:
            if form["mode"] != "full" and s > t:
                continue
            if not form["include_query"] and s == t:
                continue
            if form["window"] is not None and t - s >= form["window"]:
                continue
        found.append(s)
    return found


def weights(t: int, s: int, form: Fields) -> list[Any]:
    """w(t, s) of each scale, for a token s that position t attends to."""
    if form["lags"] is not None:
        found = [1 if t - s == lag else 0 for lag in _own_lags(form)]
        if form["window"] is None or form["window"] > form["lags"]:
            found.append(1 if t - s >= form["lags"] else 0)
        return found
    if form["decay"] is None:
        return [1]
    return [decay ** (t - s) for decay in _decays(form)]


def n_scales(form: Fields) -> int:
    """How many sets of heads weigh distances differently."""
    return len(weights(0, 0, {**DEFAULTS, **form}))


def pairs(form: Fields, n_dims: int) -> list[tuple[int, int]]:
    """(c, b) of a value and a key, each product of two numbers once, in whichever order."""
    form = {**DEFAULTS, **form}
    key_labels = labels(form["key"], n_dims, form["bias"])
    value_labels = labels(form["value"], n_dims, form["bias"])
    found, known = [], set()
    for c, b in np.ndindex(len(value_labels), len(key_labels)):
        product = frozenset([value_labels[c], key_labels[b]])
        if product not in known:
            known.add(product)
            found.append((c, b))
    return found


def seen(tokens: NDArray, given: Any, bias: bool) -> list[NDArray]:
    """What a map sees of each token, and a last number 1 with a bias."""
    if given is None:
        rows = [list(token) for token in tokens]
    elif callable(given):
        rows = [list(given(token[None])[0]) for token in tokens]
    elif np.ndim(given) == 2:
        rows = [list(token @ given) for token in tokens]
    else:
        rows = [[token[j] for j in coordinates(given, len(token))] for token in tokens]
    one = fmpq(1) if tokens.dtype == object else 1.0
    return [np.array([*row, one] if bias else row) for row in rows]


def coordinates(given: Any, n_dims: int) -> list[int]:
    """The coordinates that a number, a list or a slice names; negative ones from the end."""
    if isinstance(given, slice):
        return list(range(n_dims)[given])
    return [int(j) % n_dims for j in np.atleast_1d(given)]


def labels(given: Any, n_dims: int, bias: bool) -> list[Hashable]:
    """A name for each number that a map sees; numbers of the same name are always equal."""
    found: list[Hashable]
    if given is None:
        found = [("coordinate", j) for j in range(n_dims)]
    elif callable(given):
        found = [(given, i) for i in range(len(given(np.ones((1, n_dims)))[0]))]
    elif np.ndim(given) == 2:
        content = tuple(np.asarray(given).ravel().tolist())
        found = [(content, i) for i in range(np.shape(given)[1])]
    else:
        found = [("coordinate", j) for j in coordinates(given, n_dims)]
    return [*found, "constant"] if bias else found


def _own_lags(form: Fields) -> list[int]:
    first = 0 if form["include_query"] else 1
    stop = form["lags"] if form["window"] is None else min(form["lags"], form["window"])
    return list(range(first, stop))


def _decays(form: Fields) -> list[Any]:
    return list(form["decay"]) if np.ndim(form["decay"]) else [form["decay"]]


# ------------------------------------------------------------------ least squares
#
#     sum_r w_r ||y_r - P psi_r||^2 + ridge ||T||^2,      ||T||^2 = sum sizes * P^2


def least_squares(
    psi: NDArray, rows: NDArray, sizes: NDArray, ridge: float = 0.0, weights: NDArray | None = None
) -> NDArray[np.float64]:
    """The minimiser (p, e), of least norm where there are several, by numpy's lstsq."""
    root = np.sqrt(sizes)
    left, right = np.asarray(psi, dtype=float) / root, np.asarray(rows, dtype=float)
    if weights is not None:
        left, right = np.sqrt(weights)[:, None] * left, np.sqrt(weights)[:, None] * right
    if ridge > 0:
        left = np.concatenate([left, np.sqrt(ridge) * np.eye(len(root))])
        right = np.concatenate([right, np.zeros((len(root), right.shape[1]))])
    return np.linalg.lstsq(left, right, rcond=None)[0] / root[:, None]


def second_moment(psi: NDArray) -> NDArray[np.float64]:
    """Lambda_D = mean of psi psi^T (p, p), features without weights [yau2024: Lemma 2.3]."""
    return sum(np.outer(row, row) for row in psi) / len(psi)


@dataclass(frozen=True)
class ExactFit:
    """The same minimiser in rational arithmetic; nothing is rounded before ``numbers``.

    psi (rows, p), targets (rows, e), weights (rows,), ridge and sizes (p,) are rationals: every
    float64 is one.
    """

    psi: fmpq_mat
    targets: fmpq_mat
    weights: list[fmpq]
    ridge: fmpq
    sizes: list[fmpq]

    @classmethod
    def of(
        cls,
        X: Sequence[NDArray],
        rows: NDArray,
        form: Fields,
        ridge: float = 0.0,
        weights: NDArray | None = None,
        contexts: Sequence[NDArray] | None = None,
    ) -> ExactFit:
        """From sequences, targets (rows, e) and one weight per sequence; maps are no functions."""
        psi = exact_design(X, form, contexts)
        given = np.ones(len(X)) if weights is None else weights
        n_rows = [len(predicted(len(x), {**DEFAULTS, **form}["mode"])) for x in X]
        n_dims = (X if contexts is None else contexts)[0].shape[1]
        n_queries = len(summaries(X[0][-1:], form, contexts and contexts[0][-1:])[0][1])
        sizes = squared_sizes(form, n_dims, n_queries)
        return cls(
            psi, matrix(rows), [rational(w) for w in np.repeat(given, n_rows)], rational(ridge),
            [rational(size) for size in sizes],
        )  # fmt: skip

    @cached_property
    def rank(self) -> int:
        """The rank of the rows of positive weight."""
        return int(self._gram.rref()[1])

    @cached_property
    def coef(self) -> fmpq_mat:
        """The minimiser (p, e), of least norm where there are several."""
        gram, cross = self._gram, self._weighted.transpose() * self.targets
        if self.ridge > 0:
            return (gram + self.ridge * _diagonal(self.sizes)).solve(cross)
        if self.rank == gram.ncols():
            return gram.solve(cross)
        # P = S^-2 B c, B a basis of the row space: of least norm, and M P = b on pivot rows.
        reduced, rank = gram.rref()
        pivots = [next(c for c in range(gram.ncols()) if reduced[r, c] != 0) for r in range(rank)]
        if not pivots:
            return fmpq_mat(gram.ncols(), self.targets.ncols())
        entries, wanted = gram.tolist(), cross.tolist()
        basis = fmpq_mat([[row[c] for c in pivots] for row in entries])
        spanning = _diagonal([1 / size for size in self.sizes]) * basis
        square = fmpq_mat([entries[r] for r in pivots]) * spanning
        return spanning * square.solve(fmpq_mat([wanted[r] for r in pivots]))

    @cached_property
    def predicted(self) -> fmpq_mat:
        """Outputs of the minimiser on the rows, (rows, e)."""
        return self.psi * self.coef

    @cached_property
    def residual_power(self) -> fmpq:
        """sum w ||y - P psi||^2 of the minimiser."""
        left = (self.targets - self.predicted).tolist()
        pairs = zip(self.weights, left, strict=True)
        return sum((w * v * v for w, row in pairs for v in row), fmpq(0))

    @property
    def risk(self) -> fmpq:
        """The weighted mean of the squared residuals."""
        return self.residual_power / sum(self.weights, fmpq(0))

    @cached_property
    def _weighted(self) -> fmpq_mat:
        table = zip(self.weights, self.psi.tolist(), strict=True)
        return fmpq_mat([[w * v for v in row] for w, row in table])

    @cached_property
    def _gram(self) -> fmpq_mat:
        return self._weighted.transpose() * self.psi


def exact_design(
    X: Sequence[NDArray], form: Fields, contexts: Sequence[NDArray] | None = None
) -> fmpq_mat:
    """The features of all predicted positions as rationals; maps may not be functions."""
    exact = {**DEFAULTS, **form}
    for name in ("query", "key", "value"):
        if exact[name] is not None and np.ndim(exact[name]) == 2:
            exact[name] = rationals(exact[name])
    if exact["decay"] is not None:
        exact["decay"] = [rational(each) for each in _decays(exact)]
    tokens = [rationals(x) for x in X]
    found = design(tokens, exact, None if contexts is None else [rationals(z) for z in contexts])
    return fmpq_mat([[fmpq(entry) for entry in row] for row in found.tolist()])


def exact_rank(X: Sequence[NDArray], form: Fields, contexts: Any = None) -> int:
    """The rank of the features of all sequences, proved."""
    return int(exact_design(X, form, contexts).rref()[1])


def rational(value: float) -> fmpq:
    """A float64 or an integer as the rational number it is."""
    is_whole = isinstance(value, int | np.integer)
    return fmpq(int(value)) if is_whole else fmpq(*float(value).as_integer_ratio())


def rationals(array: NDArray) -> NDArray:
    """An array of objects that are rational."""
    return np.vectorize(rational, otypes=[object])(array)


def matrix(array: NDArray) -> fmpq_mat:
    """A table of float64 as rationals."""
    return fmpq_mat([[rational(value) for value in row] for row in array])


def numbers(exact: fmpq_mat) -> NDArray[np.float64]:
    """Rationals as the nearest float64."""
    rounded = [[nearest(value) for value in row] for row in exact.tolist()]
    return np.array(rounded, dtype=np.float64).reshape(exact.nrows(), exact.ncols())


def nearest(value: fmpq) -> float:
    """The nearest float64 (integer division of Python rounds correctly)."""
    return int(value.p) / int(value.q)


def _diagonal(entries: list[fmpq]) -> fmpq_mat:
    return fmpq_mat(np.diag(np.array(entries, dtype=object)).tolist())


# ------------------------------------------------------------------ heads


def symmetric(T: NDArray) -> NDArray[np.float64]:
    """All that data see of T[a, j, k, l] = sum_h V_h[j, a] A_h[l, k]: symmetric in (j, k)."""
    return (T + T.transpose(0, 2, 1, 3)) / 2


def forward_columns(V: NDArray, Q: NDArray, Z: NDArray) -> NDArray[np.float64]:
    """MHLA(Z) = sum_h V_h Z (Z^T Q_h Z), tokens in columns [yau2024: eq. 4].

    V (H, e, d), Q (H, d, d), Z (d, n); returns (e, n).  Ours: V_h^T, A_h^T, X^T.
    """
    return sum(V_h @ Z @ (Z.T @ Q_h @ Z) for V_h, Q_h in zip(V, Q, strict=True))


# ------------------------------------------------------------------ log-loss


def softmax(logits: NDArray) -> NDArray[np.float64]:
    """Along the last axis."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def chances(outputs: NDArray) -> NDArray[np.float64]:
    """Probabilities (K,) of one row of outputs: softmax, or of one output f 1 / (1 + exp(-f))."""
    return softmax(np.array([0.0, outputs[0]]) if len(outputs) == 1 else np.asarray(outputs))


def log_loss(
    theta: NDArray, psi: NDArray, labels: NDArray, weights: NDArray, ridge: float = 0.0
) -> float:
    """sum_i -w_i log(chance of label i) + ridge ||theta||^2; psi (rows, p), theta (p, e)."""
    total = ridge * float(np.sum(theta**2))
    for row, label, weight in zip(psi, labels, weights, strict=True):
        total -= weight * float(np.log(chances(row @ theta)[label]))
    return total


def log_loss_minimiser(
    psi: NDArray, labels: NDArray, weights: NDArray, ridge: float
) -> NDArray[np.float64]:
    """theta (p, e) of the least loss, ridge > 0, by Newton's method with all matrices.

    e = 1 for two classes, else their number.  The second derivative is sum_i w_i (psi_i psi_i^T)
    ⊗ (diag(c) - c c^T) + 2 ridge, of two classes with c (1 - c) in the place of that matrix.
    """
    n_classes = int(labels.max()) + 1
    n_outputs = 1 if n_classes == 2 else n_classes
    theta = np.zeros((psi.shape[1], n_outputs))
    for _ in range(200):
        gradient, hessian = 2 * ridge * theta, 2 * ridge * np.eye(theta.size)
        for row, label, weight in zip(psi, labels, weights, strict=True):
            c = chances(row @ theta)
            slope, curve = c - np.eye(n_classes)[label], np.diag(c) - np.outer(c, c)
            if n_outputs == 1:
                slope, curve = slope[1:], curve[1:, 1:]
            gradient = gradient + weight * np.outer(row, slope)
            hessian += weight * np.kron(np.outer(row, row), curve)
        step = np.linalg.solve(hessian, gradient.ravel()).reshape(theta.shape)
        before = log_loss(theta, psi, labels, weights, ridge)
        while log_loss(theta - step, psi, labels, weights, ridge) > before * (1 + 4 * EPS):
            step = step / 2
        theta = theta - step
        if np.linalg.norm(step) <= 1e-12 * np.linalg.norm(theta):
            break
    return theta


# ------------------------------------------------------------------ softmax attention


def softmax_weights(
    A: Any, X: NDArray, t: int, mode: str, frequencies: NDArray | None = None
) -> NDArray[np.float64]:
    """The weights (n,) with which token t attends to tokens 1..n; zero where it may not.

    frequencies : of rotary positions; A is then a pair (W_Q, W_K)
    """
    logits = []
    for s in attended(t, len(X), {"mode": mode}):
        if frequencies is None:
            logits.append(float(X[t] @ A @ X[s]))
        else:
            W_Q, W_K = A
            turns = rotation(frequencies, t), rotation(frequencies, s)
            logits.append(float((X[t] @ W_Q @ turns[0]) @ (X[s] @ W_K @ turns[1])))
    return np.append(softmax(np.array(logits)), np.zeros(len(X) - len(logits)))


def softmax_forward(
    attn: NDArray | Sequence[Any],
    value: NDArray,
    X: NDArray,
    mode: str,
    frequencies: NDArray | None = None,
) -> NDArray[np.float64]:
    """F(X) = sum_h softmax(X A_h X^T) X V_h at the predicted positions, (rows, e) [chen2024].

    attn (H, d, d), value (H, d, e), X (n, d).  With frequencies (r/2,) of rotary positions attn
    is a list of pairs W_Q, W_K (d, r).
    """
    outputs = np.zeros((len(X), value.shape[2]))
    for A, V in zip(attn, value, strict=True):
        for t in range(len(X)):
            shares = softmax_weights(A, X, t, mode, frequencies)
            for s in range(len(X)):
                outputs[t] += shares[s] * (X[s] @ V)
    return outputs[predicted(len(X), mode)]


def rotation(frequencies: NDArray, t: int) -> NDArray[np.float64]:
    """R_t (r, r): a row times R_t has coordinates i and i + r/2 turned by t * frequencies[i]."""
    half = len(frequencies)
    R = np.zeros((2 * half, 2 * half))
    for i, frequency in enumerate(frequencies):
        cosine, sine = np.cos(t * frequency), np.sin(t * frequency)
        R[i, i], R[i, i + half] = cosine, sine
        R[i + half, i], R[i + half, i + half] = -sine, cosine
    return R


def with_constant(X: NDArray) -> NDArray[np.float64]:
    """X (n, d) with a last coordinate that is always 1: what ``bias=True`` means."""
    return np.concatenate([X, np.ones((len(X), 1))], axis=1)


# ------------------------------------------------------------------ linearised attention


def key_rows(psi: NDArray, v: NDArray, t: int, mode: str, denominator: str) -> NDArray:
    """Z_t (F, c) of key features psi (n, F) and values v (n, c)."""
    some = attended(t, len(psi), {"mode": mode})
    total = sum(np.outer(psi[s], v[s]) for s in some)
    return total / (len(some) if denominator == "tokens" else sum(psi[s] for s in some)[:, None])


def window_row(q: NDArray, k: NDArray, v: NDArray, t: int, mode: str, window: int) -> NDArray:
    """Softmax attention of position t over the tokens at distances below ``window``."""
    near = [s for s in attended(t, len(k), {"mode": mode}) if abs(t - s) < window]
    return softmax(np.array([q[t] @ k[s] for s in near])) @ v[near]


def fit_of_features(
    positions: Sequence[tuple[NDArray, NDArray, NDArray]], ridge: float
) -> NDArray[np.float64]:
    """M (F, G) with the least sum ||o - phi^T M Z||^2 + ridge sum_i G_ii m_i^2.

    positions : (phi (F,), Z (G, c), o (c,)) of each; G is the Gram matrix of the features
    """
    rows = [np.outer(phi, Z[:, a]).ravel() for phi, Z, _ in positions for a in range(Z.shape[1])]
    features, targets = np.array(rows), np.concatenate([o for *_, o in positions])
    penalty = np.sqrt(ridge * np.sum(features**2, axis=0))
    both = np.vstack([features, np.diag(penalty)])
    found = np.linalg.lstsq(both, np.concatenate([targets, np.zeros(len(penalty))]), rcond=None)[0]
    return found.reshape(len(positions[0][0]), -1)


# ------------------------------------------------------------------ circuits
#
# Elhage et al., A Mathematical Framework for Transformer Circuits (2021).  Tokens are columns
# there: a query x and a key z have the logit x^T W_QK z, and a token z adds W_OV z.


def eigenvalue_score(W: NDArray) -> float:
    """sum_i lambda_i / sum_i |lambda_i| of a square matrix: 1 if it copies, -1 if it negates."""
    values = np.linalg.eigvals(W)
    return float((values.sum() / np.abs(values).sum()).real)


def effective_rank(W: NDArray) -> float:
    """exp of the entropy of the singular values as shares of their sum (Roy, Vetterli, 2007)."""
    shares = np.linalg.svd(W, compute_uv=False)
    shares = shares / shares.sum()
    return float(np.exp(-sum(p * np.log(p) for p in shares if p > 0)))


def composition(late: NDArray, early: NDArray) -> float:
    """||late early|| / (||late|| ||early||), Frobenius norms.

    Q-composition: late = W_QK^T; K-composition: W_QK; V-composition: W_OV; early = W_OV.
    """
    norms = np.linalg.norm(late) * np.linalg.norm(early)
    return float(np.linalg.norm(late @ early) / norms)


# ------------------------------------------------------------------ planted problems

#: Kinds of tokens: all but ``tall`` leave the answer undetermined.
KINDS = ("tall", "wide", "flat", "single", "boolean", "one_hot")


@dataclass(frozen=True)
class Planted:
    """Sequences, targets, and what a solver should find out about them.

    Targets are built backwards from the wanted coefficients theta.  With Phi = U S V^T,

        Y = Phi theta + residual,      U^T residual = 0,

    theta in the row space of Phi has the least squared error, and of those the least norm.
    """

    X: NDArray  # (N, n, 3)
    Y: NDArray  # (N, 2), or (N, n, 2) for causal and full
    coef: NDArray  # (2, m, r')
    risk: float
    n_features: int
    rank: int
    condition: float  # of the features, within their rank

    def tolerance(self, squared: bool = False) -> float:
        """A bound for relative errors; ``squared`` for methods that solve normal equations."""
        return 100 * EPS * self.n_features * self.condition ** (2 if squared else 1)


def planted(kind: str = "tall", form: Fields | None = None, noise: float = 0.1) -> Planted:
    """A planted problem of one of the KINDS; ``noise`` is the size of the residual."""
    form = {**DEFAULTS, **(form or {})}
    rng = np.random.default_rng(0)
    X = tokens(kind, rng)
    S, u = summaries(X[0], form)[0]
    root = np.sqrt(squared_sizes(form, 3, len(u)))
    phi = design(list(X), form) / root
    left, sigma, right = np.linalg.svd(phi, full_matrices=False)
    rank = int(np.count_nonzero(sigma > 1e-10 * sigma[0]))
    left, sigma, right = left[:, :rank], sigma[:rank], right[:rank]
    theta = right.T @ rng.standard_normal((rank, 2))
    unexplained = noise * rng.standard_normal((len(phi), 2))
    unexplained -= left @ (left.T @ unexplained)
    rows = phi @ theta + unexplained
    return Planted(
        X=X,
        Y=rows if form["mode"] == "last" else rows.reshape(*X.shape[:2], 2),
        coef=table_of(theta / root[:, None], form, len(S), len(u)),
        risk=float(np.sum(unexplained**2) / len(rows)),
        n_features=len(root),
        rank=rank,
        condition=float(sigma[0] / sigma[-1]),
    )


def tokens(kind: str, rng: np.random.Generator) -> NDArray[np.float64]:
    """Sequences (N, n, 3) of one of the KINDS; the papers' layer has 18 features of them."""
    if kind == "wide":
        return rng.standard_normal((2, 3, 3))
    if kind == "single":
        return rng.standard_normal((56, 1, 3))
    if kind in {"boolean", "one_hot"}:
        return some_tokens(kind, (56 * 4, 3), rng).reshape(56, 4, 3)
    X = rng.standard_normal((56, 4, 3))
    if kind == "flat":
        X[..., -1] = X[..., :-1].sum(axis=-1)
    return X


def relative_error(found: NDArray, expected: NDArray) -> float:
    """||found - expected|| / ||expected|| (absolute where the answer is zero)."""
    size = float(np.linalg.norm(expected))
    return float(np.linalg.norm(np.asarray(found) - expected)) / (size or 1.0)


def random_layer(
    form: Fields, n_dims: int, n_context_dims: int | None = None, n_heads: int = 2,
    n_outputs: int = 2, seed: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """Random attn, value, and what else a layer of this form has."""
    form = {**DEFAULTS, **form}
    other = n_dims if n_context_dims is None else n_context_dims
    n_queries = len(labels(form["query"], n_dims, form["bias"]))
    n_keys = len(labels(form["key"], other, form["bias"]))
    n_values = len(labels(form["value"], other, form["bias"]))
    rng = np.random.default_rng(seed)
    return {
        "attn": rng.standard_normal((n_heads, n_queries, n_keys)),
        "value": rng.standard_normal((n_heads, n_values, n_outputs)),
        "head_scales": rng.integers(n_scales(form), size=n_heads),
        "skip": rng.standard_normal((n_queries, n_outputs)) if form["skip"] else None,
        "intercept": rng.standard_normal(n_outputs) if form["intercept"] else None,
    }


# ------------------------------------------------------------------ forms, one choice at a time


def square(tokens: NDArray) -> NDArray:
    """A map of one's own: coordinates and their squares."""
    return np.concatenate([tokens, tokens**2], axis=1)


def some_matrix(n_dims: int, n_columns: int = 2) -> NDArray[np.float64]:
    """Some matrix (n_dims, n_columns) of numbers with few digits."""
    rng = np.random.default_rng([n_dims, n_columns])
    return rng.integers(-8, 9, size=(n_dims, n_columns)) / 8.0


#: Every choice by itself and the pairs that meet, for tokens of three coordinates; with "context"
#: tokens attend to sequences of that many coordinates.
FORMS: dict[str, dict[str, Any]] = {
    **{mode: {"mode": mode} for mode in MODES},
    **{f"bias-{mode}": {"mode": mode, "bias": True} for mode in MODES},
    **{f"others-{mode}": {"mode": mode, "include_query": False} for mode in MODES},
    **{f"mean-{mode}": {"mode": mode, "mean": True} for mode in MODES},
    "others-mean": {"mode": "full", "include_query": False, "mean": True},
    "skip": {"mode": "causal", "skip": True},
    "intercept": {"intercept": True},
    "skip-intercept": {"mode": "causal", "skip": True, "intercept": True},
    "skip-bias": {"skip": True, "bias": True},
    "intercept-bias": {"mode": "full", "intercept": True, "bias": True},
    "window-1": {"mode": "causal", "window": 1},
    "window-3": {"mode": "causal", "window": 3},
    "window-last": {"window": 3},
    "window-others": {"mode": "causal", "window": 3, "include_query": False, "mean": True},
    "window-long": {"mode": "causal", "window": 10**30, "mean": True},
    "decay": {"mode": "causal", "decay": 0.75},
    "decay-last": {"decay": 0.75},
    "decay-others": {"mode": "causal", "decay": 0.75, "include_query": False},
    "decay-window": {"mode": "causal", "decay": 0.75, "window": 3, "include_query": False},
    "decays": {"mode": "causal", "decay": (0.5, 1.0, 0.875), "mean": True},
    "lags-1": {"mode": "causal", "lags": 1},
    "lags-3": {"mode": "causal", "lags": 3},
    "lags-last": {"lags": 3, "mean": True},
    "lags-others": {"mode": "causal", "lags": 2, "include_query": False},
    "lags-window": {"mode": "causal", "lags": 2, "window": 4},
    "lags-no-rest": {"mode": "causal", "lags": 5, "window": 2},
    "coordinates": {"query": (0, 1, 2), "key": (0,), "value": (-1,)},
    "overlap": {"mode": "causal", "key": slice(0, 2), "value": (2, 1)},
    "disjoint": {"key": slice(0, -1), "value": (-1,)},
    "backwards": {"mode": "full", "query": slice(None, None, -1), "bias": True},
    "matrix": {"mode": "causal", "query": some_matrix(3), "key": some_matrix(3, 3)},
    "one-matrix": {"key": some_matrix(3, 3), "value": some_matrix(3, 3), "bias": True},
    "own-function": {"mode": "causal", "key": square, "value": square},
    **{f"context-{mode}": {"mode": mode, "context": 2} for mode in MODES},
    "context-bias": {"mode": "full", "bias": True, "mean": True, "context": 1},
    "context-maps": {"mode": "full", "key": some_matrix(2), "value": (1,), "context": 2},
    "context-decay": {
        "mode": "causal", "decay": (0.5, 0.875), "include_query": False, "context": 2,
    },
    "context-window": {
        "mode": "causal", "window": 2, "intercept": True, "skip": True, "context": 2,
    },
}  # fmt: skip


def split_context(fields: Mapping[str, Any]) -> tuple[dict[str, Any], int | None]:
    """The fields of a form of FORMS or ``forms``, and the coordinates of its context or None."""
    form = dict(fields)
    return form, form.pop("context", None)


# ------------------------------------------------------------------ strategies


@st.composite
def forms(draw: Any, n_dims: int = 3, exact: bool = False) -> dict[str, Any]:
    """Fields of a form of random choices that do not contradict each other; see FORMS.

    exact : without functions, so that all is rational
    """
    mode = draw(st.sampled_from(MODES))
    context = draw(st.sampled_from([None, None, None, 2]))
    counts = mode != "full" and (context is None or mode == "causal")
    others = mode == "causal" or context is None
    form: dict[str, Any] = {
        "mode": mode,
        "include_query": not others or draw(st.booleans()),
        "mean": draw(st.booleans()),
        "skip": draw(st.booleans()),
        "bias": draw(st.booleans()),
    }
    form["intercept"] = not (form["skip"] and form["bias"]) and draw(st.booleans())
    if counts:
        smallest = 1 if form["include_query"] else 2
        form["window"] = draw(st.sampled_from([None, None, smallest, 3]))
        by_distance = st.sampled_from([{}, {}, {"decay": 0.75}, {"decay": (0.5, 1.0)}, {"lags": 2}])
        form |= draw(by_distance)
    width = n_dims if context is None else context
    form |= {"query": draw(maps(n_dims, exact))}
    form |= {name: draw(maps(width, exact)) for name in ("key", "value")}
    return form if context is None else form | {"context": context}


def maps(n_dims: int, exact: bool = False) -> st.SearchStrategy[Any]:
    """What a form may see of tokens of so many coordinates."""
    some = st.lists(st.integers(0, n_dims - 1), min_size=1, max_size=n_dims, unique=True)
    options = [st.none(), some.map(tuple), st.integers(1, 3).map(lambda r: some_matrix(n_dims, r))]
    return st.one_of(*options, *([] if exact else [st.just(square)]))


@st.composite
def sequences(
    draw: Any, n_dims: int = 3, exact: bool = False, max_sequences: int = 6, max_tokens: int = 5
) -> list[NDArray[np.float64]]:
    """Sequences of equal or different lengths: normal, small integers, with zeros, repeated.

    exact : small integers only
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    lengths = draw(st.lists(st.integers(1, max_tokens), min_size=1, max_size=max_sequences))
    if draw(st.booleans()):
        lengths = [lengths[0]] * len(lengths)
    if exact or draw(st.booleans()):
        X = [rng.integers(-4, 5, size=(n, n_dims)).astype(np.float64) for n in lengths]
    else:
        X = [rng.standard_normal((n, n_dims)) for n in lengths]
    if draw(st.integers(0, 4)) == 0:
        X = [x * (np.arange(n_dims) > 0) for x in X]
    return X + X[:1] if draw(st.integers(0, 4)) == 0 else X


def contexts_for(
    X: Sequence[NDArray], form: Fields, n_context_dims: int | None, seed: int = 8
) -> list[NDArray[np.float64]] | None:
    """What the sequences attend to: as long as they in mode causal, and else of other lengths."""
    if n_context_dims is None:
        return None
    rng = np.random.default_rng(seed)
    longer = 0 if form["mode"] == "causal" else 2
    lengths = [len(x) + longer * (i % 2) for i, x in enumerate(X)]
    return [rng.integers(-4, 5, size=(n, n_context_dims)) / 2.0 for n in lengths]


# ------------------------------------------------------------------ what data determine
#
# Data determine a layer on a domain iff the features of the domain lie in the span of theirs: an
# exact rank says so.  A domain is "real", "boolean" or "one_hot".


def some_tokens(
    domain: str, shape: tuple[int, int], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Random tokens (n, d) of a domain, integers."""
    if domain == "boolean":
        return rng.choice([-1.0, 1.0], size=shape)
    if domain == "one_hot":
        return np.eye(shape[1])[rng.integers(shape[1], size=shape[0])]
    return rng.integers(-9, 10, size=shape).astype(np.float64)


def spanning(
    domain: str, form: Fields, n_dims: int, n_context_dims: int | None = None,
    lengths: tuple[int, int] = (1, 6), seed: int = 99,
) -> fmpq_mat:  # fmt: skip
    """Features of so many random sequences of a domain that they span those of all of it."""
    form, rng = {**DEFAULTS, **form}, np.random.default_rng(seed)
    width = n_dims if n_context_dims is None else n_context_dims
    n_queries = len(labels(form["query"], n_dims, form["bias"]))
    wanted = (n_scales(form) * len(pairs(form, width)) + 1) * (n_queries + 1)
    rows: list[list[fmpq]] = []
    if domain == "one_hot" and n_context_dims is None and lengths[0] <= 2 <= lengths[1]:
        every = [np.eye(n_dims)[[a, b]] for a in range(n_dims) for b in range(n_dims)]
        rows += exact_design(every, form).tolist()  # a pair of symbols may be drawn late
    while len(rows) < (2 if domain == "real" else 6) * wanted + 20:
        n = int(rng.integers(lengths[0], lengths[1] + 1))
        x = some_tokens(domain, (n, n_dims), rng)
        z = None if n_context_dims is None else [some_tokens(domain, (n, n_context_dims), rng)]
        rows += exact_design([x], form, z).tolist()
    return fmpq_mat(rows)


def rank_of(*tables: fmpq_mat) -> int:
    """The exact rank of the rows of all tables together."""
    return int(fmpq_mat([row for each in tables for row in each.tolist()]).numer_denom()[0].rank())


def wrong_claims(
    certificate: Any, psi: fmpq_mat, everywhere: fmpq_mat, real: fmpq_mat | None = None
) -> list[str]:
    """What exact arithmetic contradicts in a certificate of data whose numbers are exact.

    psi : the features of the data; everywhere : those of its domain, and ``real`` of all inputs
    """
    rank, found = rank_of(psi), []
    truths = {"verdict": rank_of(psi, everywhere) == rank}
    if real is not None:
        truths["verdict_on_real_inputs"] = rank_of(psi, real) == rank
    for name, determined in truths.items():
        verdict = getattr(certificate, name)
        if verdict != "undecided" and (verdict == "identifiable") != determined:
            found.append(f"{name} {verdict}")
    if certificate.dimension not in (None, rank_of(everywhere)):
        found.append(f"dimension {certificate.dimension}, not {rank_of(everywhere)}")
    exact = certificate.identifiable or certificate.method in ("exact", "count")
    if exact and certificate.rank not in (None, rank):
        found.append(f"rank {certificate.rank}, not {rank}")
    if certificate.verdict == "not_identifiable" and isinstance(certificate.direction, tuple):
        direction = fmpq_mat([[fmpq(entry)] for entry in certificate.direction])
        if (psi * direction).rank() != 0:
            found.append("a direction that the data see")
        if (everywhere * direction).rank() == 0:
            found.append("a direction that shows nowhere")
    return found


def witness_fails(
    witness: Any, X: Sequence[NDArray], form: Fields, contexts: Sequence[NDArray] | None = None
) -> list[str]:
    """What does not hold of a witness, by literal forward passes of both of its layers."""
    one, other = fields_of_layer(witness.layer_a), fields_of_layer(witness.layer_b)

    def apart(x: NDArray, z: NDArray | None) -> float:
        return float(np.abs(forward(one, x, form, z) - forward(other, x, form, z)).max())

    shown = apart(witness.input, witness.context)
    agreed = max(apart(x, None if contexts is None else contexts[i]) for i, x in enumerate(X))
    found = [] if abs(shown - witness.difference) <= 1e-6 * shown else ["difference"]
    return found + ["shows nothing"] * (shown < 0.1) + ["seen by the data"] * (agreed > 1e-6)


# ------------------------------------------------------------------ the papers' layer, all at once


def plain_design(X: NDArray, mode: str = "last") -> NDArray:
    """``design`` of the papers' form for many sequences of one length (N, n, d), in their dtype."""
    j, k = np.triu_indices(X.shape[2])
    products = X[:, :, j] * X[:, :, k]
    sums = {
        "last": lambda: products.sum(axis=1, keepdims=True),
        "causal": lambda: np.cumsum(products, axis=1),
        "full": lambda: np.repeat(products.sum(axis=1, keepdims=True), X.shape[1], axis=1),
    }[mode]()
    queries = X[:, -1:] if mode == "last" else X
    features = sums[..., :, None] * queries[..., None, :]
    return features.reshape(-1, len(j) * X.shape[2])


def left_out(
    psi: NDArray, rows: NDArray, groups: NDArray, sizes: NDArray, ridge: float,
    weights: NDArray | None = None,
) -> NDArray[np.float64]:  # fmt: skip
    """Residuals (rows, e) of rows, each predicted by the minimiser without its group."""
    found = np.empty(np.shape(rows))
    for group in np.unique(groups):
        own = groups == group
        kept = None if weights is None else weights[~own]
        theta = least_squares(psi[~own], rows[~own], sizes, ridge, kept)
        found[own] = rows[own] - psi[own] @ theta
    return found


def class_task(
    n_sequences: int, n_tokens: int, n_dims: int, n_classes: int, seed: int = 0,
    signal: float = 2.0, mode: str = "last",
) -> tuple[NDArray, NDArray]:  # fmt: skip
    """Tokens (N, n, d), and class numbers (N,) or (N, n) by the chances of a random layer."""
    rng = np.random.default_rng([seed, n_sequences, n_dims, n_classes])
    X = rng.standard_normal((n_sequences, n_tokens, n_dims))
    psi = plain_design(X, mode)
    outputs = psi @ rng.standard_normal((psi.shape[1], n_classes))
    outputs *= signal / outputs.std()
    labels = np.argmax(outputs + rng.gumbel(size=outputs.shape), axis=1)
    return X, labels if mode == "last" else labels.reshape(n_sequences, n_tokens)


# ------------------------------------------------------------------ how commands end


def parsed(ended: Any, code: int = 0) -> Any:
    """The JSON object on stdout of what click ran; nothing else may be there, nor on stderr."""
    assert ended.exit_code == code, ended.output
    assert ended.stderr == ""
    return json.loads(ended.stdout)


def printed(ended: Any, *words: object, code: int = 0) -> str:
    """What was printed for people, on one line; it holds the words."""
    assert ended.exit_code == code, ended.output
    assert ended.stderr == ""
    text = " ".join(ended.stdout.split())
    for word in words:
        assert str(word) in text, (word, text)
    return text


def refused(ended: Any, *words: object, code: int = 1) -> None:
    """Ended by a line on stderr that holds the words, behind how it is used if the code is 2."""
    assert ended.exit_code == code, ended.output
    assert isinstance(ended.exception, SystemExit)
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    assert ("Usage:" in ended.stderr) == (code == 2)
    assert code == 2 or len(ended.stderr.splitlines()) == 1, ended.stderr
    for word in words:
        assert str(word) in " ".join(ended.stderr.split()), (word, ended.stderr)


def wrong_uses(table: Mapping[str, str]) -> list[tuple[list[str], str]]:
    """Commands (words), and the word that each must be refused with.

    table : the wrong uses that follow a command, apart by "; "; behind " - " stands the word, and
    without that it is the name of the first option
    """
    found = []
    for command, uses in table.items():
        for use in uses.split("; "):
            options, _, word = f" {use}".partition(" - ")
            word = word or options.split()[0].strip("-")
            found.append(([*command.split(), *options.split()], word))
    return found


# ------------------------------------------------------------------ softmax layers that are learned


def softmax_outputs(layer: Any, X: Sequence[NDArray]) -> list[NDArray[np.float64]]:
    """Outputs of a ``polyattn.SoftmaxAttention`` without rotary positions, for each sequence."""
    tokens = [with_constant(x) for x in X] if layer.bias else X
    return [softmax_forward(layer.attn, layer.value, x, layer.mode) for x in tokens]


def softmax_slopes(layer: Any, X: Sequence[NDArray]) -> NDArray[np.float64]:
    """d outputs / d all that some input shows, (rows * e, P): attn by head, then value by head.

    With a bias the last column of attn is left out, and the last rows of value, of which inputs
    show the sum alone, are one at the end.
    """
    n_seen, e = layer.value.shape[1] - layer.bias, layer.value.shape[2]
    found = []
    for x in X:
        z = with_constant(x) if layer.bias else x
        for t in predicted(len(z), layer.mode):
            of_attn, of_value = [], []
            for A, V in zip(layer.attn, layer.value, strict=True):
                shares = softmax_weights(A, z, t, layer.mode)
                mean = shares @ z
                covariance = (shares * (z - mean).T) @ (z - mean)
                # d y_c / d A[a, b] is x_a (Cov(x) V)[b, c].
                of_attn.append(np.kron(z[t], (covariance @ V)[:n_seen].T))
                of_value.append(np.kron(mean[None, :n_seen], np.eye(e)))
            found.append(np.hstack([*of_attn, *of_value, *[np.eye(e)] * layer.bias]))
    return np.vstack(found)


def head_errors(found: Any, planted: Any) -> tuple[list[int], NDArray, NDArray]:
    """The heads of ``found`` in the order of ``planted``, and relative errors of attn and value.

    Of all orders that with the least largest error of attn; infinite if numbers of heads differ.
    """
    n_heads = len(planted.attn)
    if len(found.attn) != n_heads:
        return [], np.full(n_heads, np.inf), np.full(n_heads, np.inf)

    def relative(order: Sequence[int], name: str) -> NDArray[np.float64]:
        ours, theirs = getattr(found, name)[list(order)], getattr(planted, name)
        return np.array([relative_error(a, b) for a, b in zip(ours, theirs, strict=True)])

    order = list(min(permutations(range(n_heads)), key=lambda o: relative(o, "attn").max()))
    return order, relative(order, "attn"), relative(order, "value")


# ------------------------------------------------------------------ black boxes around attention


def changed_attention(
    layer: Any,
    X: NDArray,
    seen: NDArray | None = None,
    logits: Callable[[NDArray, NDArray], NDArray] = lambda Z, _X: Z,
    shares: Callable[[NDArray], NDArray] = lambda P: P,
    rounded: Callable[[NDArray], NDArray] = lambda Y: Y,
) -> NDArray:
    """softmax(X A X^T) X V of sequences X (B, n, d), with changes of what lies between.

    seen : (n, n), which tokens s the token t attends to; logits : of Z (B, n, n) and X; shares :
    of the weights (B, n, n); rounded : every number that is computed
    """
    X, outputs = rounded(X), 0
    for A, V in zip(layer.attn, layer.value, strict=True):
        Z = rounded(logits(rounded(X @ A) @ X.transpose(0, 2, 1), X))
        Z = Z if seen is None else np.where(seen, Z, -np.inf)
        outputs = outputs + rounded(rounded(shares(softmax(Z))) @ rounded(X @ V))
    return rounded(outputs)


def behind(n: int) -> NDArray[np.int_]:
    """How far token s stands before token t, (t, s)."""
    return np.subtract.outer(np.arange(n), np.arange(n))


def normalised(X: NDArray, kind: str | None, eps: float | None = None) -> NDArray:
    """Tokens (.., d) as transformers normalise them: "layer_norm", "rms_norm" or None."""
    if kind is None:
        return X
    if kind == "layer_norm":
        X = X - X.mean(axis=-1, keepdims=True)
    eps = {"layer_norm": 1e-5, "rms_norm": 1e-6}[kind] if eps is None else eps
    return X / np.sqrt(np.mean(X**2, axis=-1, keepdims=True) + eps)


def in_format(Y: NDArray, name: str) -> NDArray:
    """Numbers rounded to float64, float32, float16, or to bfloat16 in an array of float32."""
    if name != "bfloat16":
        return np.asarray(Y).astype(name)
    bits = np.ascontiguousarray(Y, np.float32).view(np.uint32)
    rounded = bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))
    return (rounded & np.uint32(0xFFFF0000)).view(np.float32)


# ------------------------------------------------------------------ heads given by projections


def projected(
    heads: Mapping[str, Any],
    X: NDArray,
    form: Fields,
    kind: str = "softmax",
    scale: float | None = None,
    frequencies: NDArray | None = None,
    context: NDArray | None = None,
) -> NDArray[np.float64]:
    """Outputs (rows, e) of one sequence by W_Q, W_K, W_V, W_O, as transformers compute them.

    heads : W_Q (H, d, r), W_K and W_V (fewer where neighbours share them), W_O (H, r, e); perhaps
    b_Q, b_K, b_V and b_O; of linear heads perhaps W_skip and head_scales
    scale : products of queries and keys are divided by it, by default by sqrt(r)
    """
    given = {name: each for name, each in heads.items() if each is not None}
    n_heads, _, width = given["W_Q"].shape
    with_last_row = {}
    for role in "QKV":
        weights = given[f"W_{role}"]
        last = given.get(f"b_{role}", np.zeros_like(weights[:, 0]))
        both = np.concatenate([weights, last[:, None]], axis=1)
        with_last_row[role] = np.repeat(both, n_heads // len(both), axis=0)
    queries = with_last_row["Q"] / (np.sqrt(width) if scale is None else scale)
    keys = with_last_row["K"]
    attn = np.array([q @ k.T for q, k in zip(queries, keys, strict=True)])
    value = np.array([v @ W for v, W in zip(with_last_row["V"], given["W_O"], strict=True)])
    constant = given.get("b_O", np.zeros(value.shape[2]))
    if kind == "softmax":
        logits = attn if frequencies is None else list(zip(queries, keys, strict=True))
        ones = with_constant(X)
        return softmax_forward(logits, value, ones, form["mode"], frequencies) + constant
    layer = {"attn": attn, "value": value, "head_scales": given.get("head_scales")}
    if "W_skip" in given:
        layer["skip"] = np.vstack([given["W_skip"], np.zeros_like(constant)])
    return forward(layer, X, {**form, "bias": True}, context) + constant


def random_heads(
    n_dims: int, n_heads: int, head_dim: int, value_dim: int | None = None, n_shared: int = 1,
    n_outputs: int | None = None, bias: bool = True, seed: int = 0,
) -> dict[str, NDArray]:  # fmt: skip
    """W_Q, ..., b_O of size one for ``projected``; ``n_shared`` heads share keys and values."""
    rng, few = np.random.default_rng(seed), n_heads // n_shared
    widths = {"Q": head_dim, "K": head_dim, "V": value_dim or head_dim}
    counts = {"Q": n_heads, "K": few, "V": few}
    heads = {
        f"W_{role}": rng.standard_normal((counts[role], n_dims, widths[role])) / np.sqrt(n_dims)
        for role in "QKV"
    }
    shape = (n_heads, widths["V"], n_outputs or n_dims)
    heads["W_O"] = rng.standard_normal(shape) / np.sqrt(n_dims)
    if bias:
        heads |= {f"b_{r}": rng.standard_normal((counts[r], widths[r])) for r in "QKV"}
        heads["b_O"] = rng.standard_normal(n_outputs or n_dims)
    return heads
