"""Normalisation before attention: an invertible change of tokens, once its eps is known.

    rms_norm     z = x / sqrt(mean(x^2) + eps)
    layer_norm   z = (x - mean(x)) / sqrt(var(x) + eps)

Behind it z has a norm below sqrt(d), and every such z (of layer_norm: with coordinates that sum to
zero) is the image of x = z sqrt(eps / (1 - mean(z^2))).  So attention behind a normalisation can be
queried like any other, with tokens inside a ball.  A scale and a shift of the coordinates that
follow the normalisation belong to the layer: attn, value and the constant coordinate hold them.

What large tokens show is the direction of x alone: answers do not change with their size, but for
the token itself where a residual connection adds it.  Small ones show eps,

    f(t u) - b = t / sqrt(t^2 + eps) u S,      mean(u^2) = 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.model.softmax import SoftmaxAttention
from polyattn.softmax.queries.layers import of_tokens
from polyattn.softmax.queries.oracle import Oracle
from polyattn.softmax.queries.outcomes import Stopped

NORMALISATIONS = ("layer_norm", "rms_norm")

# Random tokens, and their size: so large that eps does not matter.
N_TOKENS, LARGE = 6, 2.0**6

# What may be left where answers should be alike: a part of them, and roundings of the largest.
TOLERANCE, ROUNDINGS = 1e-5, 64

# The same of answers of fewer bits than float32 has, to tokens of size one: rounded beside a larger
# token that is added, they hide attention.  No test adds up more than six errors of half a unit.
FINE, FEW_ROUNDINGS = 24, 4

# Sizes at which eps is looked for, in steps of this factor; smaller ones show none.
STEP, N_STEPS = 2.0**-4, 24

# How far from the root of eps sizes are that confirm the form, and what may be left, in roundings.
CONFIRMING, CONFIRMED = (2.0**-5, 2.0**-2, 1.0, 2.0**4), 1e3

# The relative error of eps, in those of the norm of answers at half its root.
AMPLIFIED = 4.0


@dataclass(frozen=True)
class Normalisation:
    """Normalisation of tokens of d coordinates, by the kind and the eps of it."""

    kind: str
    eps: float
    n_dims: int

    def __call__(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Tokens (..., d), normalised; of layer_norm with a mean of zero."""
        # In units of the largest coordinate, so that no square overflows.
        size = np.maximum(np.abs(X).max(axis=-1, keepdims=True), 1.0)
        Z = X / size
        if self.kind == "layer_norm":
            Z = Z - Z.mean(axis=-1, keepdims=True)
        square = np.mean(Z**2, axis=-1, keepdims=True) + self.eps / size / size
        return np.asarray(Z / np.sqrt(square))

    def inverse(self, Z: NDArray[np.float64]) -> NDArray[np.float64]:
        """Tokens whose normalised form is Z (..., d), of mean squares below one."""
        return Z * np.sqrt(self.eps / (1 - np.mean(Z**2, axis=-1, keepdims=True)))

    @property
    def basis(self) -> NDArray[np.float64]:
        """Orthonormal columns (d, k): where normalised tokens lie."""
        if self.kind == "rms_norm":
            return np.eye(self.n_dims)
        # The reflection that takes e_0 to the diagonal; its other columns are orthogonal to that.
        diagonal = np.full(self.n_dims, self.n_dims**-0.5)
        diagonal[0] += 1.0
        return np.eye(self.n_dims)[:, 1:] - np.outer(diagonal, diagonal[1:]) / diagonal[0]


@dataclass(frozen=True)
class Coordinates:
    """Normalised tokens in k coordinates of a unit: z = unit * u basis^T, |z| < sqrt(d).

    The unit is a sixteenth: tokens of norm up to 16 sqrt(d) are inside.
    """

    normalisation: Normalisation
    unit: float = 2.0**-4

    @property
    def largest(self) -> float:
        """The norm below which tokens u must stay."""
        return float(np.sqrt(self.normalisation.n_dims)) / self.unit

    @property
    def n_dims(self) -> int:
        """k, the coordinates of a token u."""
        return int(self.normalisation.basis.shape[1])

    def tokens(self, U: NDArray[np.float64]) -> NDArray[np.float64]:
        """What to give to the oracle (..., d) for U (..., k)."""
        if float(np.linalg.norm(U, axis=-1).max()) >= self.largest:
            raise ValueError("a token has no normalised form of its size")
        return self.normalisation.inverse(self.unit * U @ self.normalisation.basis.T)

    def of_normalised(self, layer: SoftmaxAttention) -> SoftmaxAttention:
        """The layer of tokens z (..., d) that is ``layer`` for u (..., k): of least norm."""
        return of_tokens(layer, self.outwards(layer.bias))

    def outwards(self, bias: bool) -> NDArray[np.float64]:
        """The matrix (d, k) with u = z outwards; (d + 1, k + 1) beside a constant coordinate."""
        outwards = np.zeros((self.normalisation.n_dims + bias, self.n_dims + bias))
        outwards[: self.normalisation.n_dims, : self.n_dims] = self.normalisation.basis / self.unit
        outwards[self.normalisation.n_dims :, self.n_dims :] = 1.0
        return outwards


@dataclass(frozen=True)
class Prepared:
    """What happens to a token beside attention: normalisation before, and itself added after.

    eps_error : relative standard error of the eps
    """

    normalisation: Normalisation
    residual: bool
    eps_error: float


def find_normalisation(oracle: Oracle, wanted: str) -> Prepared | None:
    """The normalisation before attention, and whether the token itself is added; None without.

    ``wanted`` is one of NORMALISATIONS, or "auto".  Raises Stopped where it is another one, where
    another map of the token is added, or where eps cannot be seen.
    Cost: 4 N_TOKENS queries, 2 N_STEPS to find eps, and 12 N_TOKENS to measure and confirm it.
    """
    rng = np.random.default_rng(0)
    tokens = LARGE * rng.standard_normal((N_TOKENS, oracle.n_dims))
    residual, roundings = _token_added(oracle, tokens, ROUNDINGS), ROUNDINGS
    if residual is None and oracle.bits < FINE:
        tokens, roundings = tokens / LARGE, FEW_ROUNDINGS
        residual = _token_added(oracle, tokens, roundings)
    if residual is None:
        return None
    both = _alone(oracle, np.concatenate([tokens, 3 * np.abs(tokens).max() + tokens]), residual)
    largest = np.append(both, 4 * tokens) if residual else both
    error = _rounding(oracle, largest, roundings)
    centred = _alike(both[:N_TOKENS], both[N_TOKENS:], both, error)
    kind = "layer_norm" if centred else "rms_norm"
    if wanted not in ("auto", kind):
        raise Stopped(
            "other_structure",
            f"Tokens are normalised, but not by {wanted!r}: what is added to all coordinates of a "
            f"token alike makes {'no' if centred else 'a'} difference, as in {kind!r}.",
            f"Call again with normalisation={kind!r}, or leave it out.",
        )
    form = Normalisation(kind, 0.0, oracle.n_dims)
    if len(form.basis.T) < 2:
        raise Stopped(
            "not_recovered",
            "Behind the normalisation tokens have fewer than two coordinates: heads do not show.",
            "More coordinates are needed.",
        )
    units = form(rng.standard_normal((N_TOKENS, oracle.n_dims)))
    found = _find_eps(oracle, units, residual)
    if found is None:
        return None
    return Prepared(Normalisation(kind, found[0], oracle.n_dims), residual, found[1])


def _token_added(oracle: Oracle, tokens: NDArray, roundings: int) -> bool | None:
    """Whether the token itself is in answers that otherwise do not change with its size.

    None where they change in another way.
    """
    answers = oracle(np.concatenate([tokens, 2 * tokens, 4 * tokens])[:, None])
    first, second, third = answers.reshape(3, *tokens.shape[:1], -1)
    error, grown = _rounding(oracle, answers, roundings), second - first
    # What does not grow must differ between tokens: a constant one is that of a linear map.
    fixed = first - grown
    varied = float(np.abs(fixed - fixed.mean(axis=0)).max())
    if varied <= error:
        # Answers that double with the token, to the last bit, hide nothing.
        if roundings == FEW_ROUNDINGS and varied > 0:
            raise Stopped(
                "not_recovered",
                f"Answers of {oracle.bits} significant bits are too coarse to tell whether tokens "
                "are normalised before attention: beside the token they hold little else.",
                "Let the oracle answer in float32 or float64.",
            )
        return None
    if _alike(second, first, fixed, error) and _alike(third, first, fixed, error):
        return False
    if not _alike(third - second, 2 * grown, fixed, error):
        return None
    added = np.ldexp(tokens, -(oracle.answer_exponent or 0))
    if grown.shape != added.shape or not _alike(grown, added, fixed, error):
        raise Stopped(
            "not_attention",
            "Tokens are normalised, and another linear map of the token itself is added, which is "
            "no residual connection.",
        )
    return True


def _find_eps(oracle: Oracle, units: NDArray, residual: bool) -> tuple[float, float] | None:
    """The eps of a normalisation and its relative error, from ``units`` (N, d) of mean square one.

    None when answers to small tokens are not those behind a normalisation.
    """
    sizes = LARGE * STEP ** np.arange(N_STEPS)
    seen = _odd_part(oracle, sizes[:, None, None] * units[:1], residual)[0][:, 0]
    strength = float(np.linalg.norm(seen[0]))
    everything = _alone(oracle, LARGE * units[:1], residual)
    if strength <= 1e-8 * float(np.linalg.norm(everything)) or strength == 0:
        raise Stopped(
            "not_recovered",
            "The values of all heads add up to zero: one token does not show the eps of the "
            "normalisation.",
        )
    shares = seen @ seen[0] / strength**2
    below = np.flatnonzero(shares < 0.5)
    if not len(below):
        raise Stopped(
            "not_recovered",
            "Tokens are normalised without an eps, as far as can be seen: attention can be "
            "queried with tokens of one size only.",
            "Give the attention behind the normalisation, or set an eps.",
        )
    share, near = float(shares[below[0]]), float(sizes[below[0]])
    if share < STEP / 4:
        return None
    root = near * np.sqrt(1 / share**2 - 1)
    scales = root * np.array([0.5, 2.0, *CONFIRMING])
    odd, largest = _odd_part(oracle, scales[:, None, None] * units, residual)
    norms = np.linalg.norm(odd.reshape(len(scales), -1), axis=1)
    ratio = (norms[0] / norms[1] * scales[1] / scales[0]) ** 2
    eps = float((scales[1] ** 2 - ratio * scales[0] ** 2) / (ratio - 1))
    if not eps > 0:
        return None
    shares = scales / np.sqrt(scales**2 + eps)
    left = odd - (shares / shares[1])[:, None, None] * odd[1]
    if float(np.abs(left).max()) > CONFIRMED * _rounding(oracle, largest):
        return None
    error = max(_rounding(oracle, largest) / ROUNDINGS, float(np.sqrt(np.mean(left**2))))
    return eps, AMPLIFIED * error / float(norms[0])


def _odd_part(oracle: Oracle, tokens: NDArray, residual: bool) -> tuple[NDArray, NDArray]:
    """(f(x) - f(-x)) / 2 for tokens (S, N, d) without the token itself, and all answers."""
    flat = tokens.reshape(-1, tokens.shape[-1])
    plus, minus = np.split(_alone(oracle, np.concatenate([flat, -flat]), residual), 2)
    return ((plus - minus) / 2).reshape(*tokens.shape[:2], -1), np.stack([plus, minus])


def _alone(oracle: Oracle, tokens: NDArray, residual: bool) -> NDArray[np.float64]:
    """Answers (N, e) to one token each (N, d), less the token where it is added."""
    answers = oracle(tokens[:, None])
    return answers - np.ldexp(tokens, -(oracle.answer_exponent or 0)) if residual else answers


def _alike(left: NDArray, right: NDArray, beside: NDArray, error: float) -> bool:
    """Whether two arrays agree, up to a part of the size of ``beside`` and an error."""
    return float(np.abs(left - right).max()) <= TOLERANCE * float(np.abs(beside).max()) + error


def _rounding(oracle: Oracle, answers: NDArray, roundings: int = ROUNDINGS) -> float:
    """Some roundings of the largest of these answers."""
    return roundings * 2 * 0.5**oracle.bits * float(np.abs(answers).max())
