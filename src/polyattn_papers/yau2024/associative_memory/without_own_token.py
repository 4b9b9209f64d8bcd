"""The best layer for targets without the query token's own term, exactly in the population.

The targets sum over the stored pairs alone, y = V^T K q [yau2024: equation 14], with keys K and
values V (d, d) in rows; the true layer gives y + |q|^2 zeta [yau2024: equation 5].  Which layer
fits y best?  This is ours; the paper does not say.

Rotating all keys and the query by one orthogonal matrix, all values and zeta by another, leaves the
distribution as it is, and the loss is convex in the coefficients: so there is a best layer with the
same symmetry.  Of the features G x only four combinations have it, with G the token Gram of all
d + 1 tokens in blocks of keys (k) and values (v):

    F = a G_vk q + b tr(G_kk) zeta + c G_vv zeta + e tr(G_vv) zeta.

Odd powers of zeta vanish in the mean, so the risk splits into what F keeps of y and what it lets
through of zeta, with s = |q|^2:

    (a - 1)^2 E|y|^2
        + E|(a s + b (|K|^2 + s) + c (V^T V + |zeta|^2) + e (|V|^2 + |zeta|^2)) zeta|^2,

a quadratic form in (a, b, c, e) whose moments are those of chi-square and Wishart variables.  For
orthogonal keys and values |K|^2 + s = d + 1, so -tr(G_kk) zeta / (d + 1) makes up for the missing
term without any error; for Gaussian ones nothing does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class BestLayer:
    """``weights`` (a, b, c, e) of the best layer, its distance from the true one, its risk."""

    weights: NDArray[np.float64]
    distance: float
    risk: float


def best_layer(n_keys: int, unitary: float) -> BestLayer:
    """The layer of least risk on sequences with d keys, a share ``unitary`` of them orthogonal.

    Guarantee: it is the only one where ``unitary < 1``.  With one key the last two features are
    the same, and their weights equal.
    """
    orthogonal, gaussian = _orthogonal(n_keys), _gaussian(n_keys)
    let_through = unitary * orthogonal.let_through(n_keys)
    let_through += (1.0 - unitary) * gaussian.let_through(n_keys)
    power = unitary * orthogonal.power + (1.0 - unitary) * gaussian.power
    kept = np.zeros((4, 4))
    kept[0, 0] = power
    weights = np.linalg.lstsq(kept + let_through, kept[0])[0]
    risk = (weights[0] - 1) ** 2 * power + weights @ let_through @ weights
    return BestLayer(weights, _distance(weights, n_keys), float(risk))


@dataclass(frozen=True)
class _Moments:
    """Means of s = |q|^2, t = |K|^2 + s, the Wishart matrix W = V^T V, its trace n, and products.

    Letters stand for means of products, with E W = w I; ``power`` is E|y|^2.
    """

    s: float
    ss: float
    t: float
    st: float
    tt: float
    w: float
    ww: float
    n: float
    nn: float
    nw: float
    power: float

    def let_through(self, d: int) -> NDArray[np.float64]:
        """E of the products of s zeta, t zeta, (W + |zeta|^2) zeta and (n + |zeta|^2) zeta."""
        # E |zeta|^2, |zeta|^4, |zeta|^6.
        two, four, six = d, d * (d + 2), d * (d + 2) * (d + 4)
        by_wishart, by_trace = self.w * two + four, self.n * two + four
        both = self.nw * two + (self.n + self.w) * four + six
        return np.array([
            [self.ss * two, self.st * two, self.s * by_wishart, self.s * by_trace],
            [self.st * two, self.tt * two, self.t * by_wishart, self.t * by_trace],
            [self.s * by_wishart, self.t * by_wishart,
             self.ww * two + 2 * self.w * four + six, both],
            [self.s * by_trace, self.t * by_trace, both,
             self.nn * two + 2 * self.n * four + six],
        ])  # fmt: skip


def _orthogonal(d: int) -> _Moments:
    t = d + 1
    return _Moments(s=1, ss=1, t=t, st=t, tt=t**2, w=1, ww=1, n=d, nn=d**2, nw=d, power=1)


def _gaussian(d: int) -> _Moments:
    """|q|^2 and the rest r of |K|^2 are independent chi-squares, of d and d^2 - d degrees."""
    s, ss = d, d * (d + 2)
    r, rr = d**2 - d, (d**2 - d) * (d**2 - d + 2)
    nn = d**2 * (d**2 + 2)
    return _Moments(
        s=s, ss=ss, t=2 * s + r, st=2 * ss + s * r, tt=4 * ss + 4 * s * r + rr,
        w=d, ww=d * (2 * d + 1), n=d**2, nn=nn, nw=nn / d, power=d * (ss + (d - 1) * s),
    )  # fmt: skip


def _distance(weights: NDArray[np.float64], d: int) -> float:
    """The norm of the coefficients beside those of the true layer, (1, 0, 0, 0)."""
    a, b, c, e = weights
    of_one_output = d * ((a - 1) ** 2 + b**2) + (c + e) ** 2 + (d - 1) * (c**2 + e**2)
    return float(np.sqrt(d * of_one_output))
