"""How far two good layers can be apart on a new input.

[yau2024: Lemmas A.7, E.2], corrected (docs/derivations/bounds.md).  For layers F, F' whose training
risk exceeds the optimal one by at most eps each, the mean over the data of ||F - F'||^2 is at most
4 eps, so for every input

    ||F(X) - F'(X)||^2  <=  4 eps psi^T Lambda_D^-1 psi  <=  4 eps ||psi||^2 / lambda_min.

The first is the leverage of the input: a bound for each input of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from polyattn.certify.evidence import Evidence
from polyattn.certify.noise import Noise
from polyattn.certify.outcomes import IDENTIFIABLE
from polyattn.certify.verified.gram import Definite, prove_definite
from polyattn.certify.verified.rounding import LEAST_POWER, SLACK, feature_depth, gamma
from polyattn.certify.verified.sizes import sizes_of_sums
from polyattn.certify.verified.spectrum import extremes
from polyattn.errors import InvalidInput, OutOfRange, require_choice
from polyattn.features.summaries import SeenSequences, SummaryBlock
from polyattn.features.unsigned import absolute_layout
from polyattn.form.layout import Layout
from polyattn.model.layer import outputs_with_context
from polyattn.numerics.scaling import exponent_for, rounded_up
from polyattn.sequences import SequenceBatch, Sequences
from polyattn.stats.magnitudes import by_diagonal

if TYPE_CHECKING:
    from polyattn.certify.certificate import Certificate

KINDS = ("leverage", "worst_case")
NO_NOISE = Noise()


def disagreement_bound(
    certificate: Certificate,
    X: Sequences,
    risk: float,
    optimal_risk: float,
    kind: str,
    context: Sequences | None = None,
    noise: Noise = NO_NOISE,
) -> Any:
    """Bounds of ||F(X) - F'(X)|| for all positions that are predicted."""
    require_choice("kind", kind, KINDS)
    if noise.is_given:
        if optimal_risk:
            raise InvalidInput(
                "give either optimal_risk or the noise; where the least risk is known, the noise "
                "adds nothing to it."
            )
        optimal_risk = _beside(noise, certificate)
    for name, value in (("risk", risk), ("optimal_risk", optimal_risk)):
        if not (isinstance(value, int | float | np.number) and 0 <= value < np.inf):
            raise InvalidInput(f"{name} must be a number >= 0; got {value!r}.")
    if risk < optimal_risk:
        source = " as the noise tells of it with this confidence" if noise.is_given else ""
        raise InvalidInput(
            f"risk must be at least optimal_risk, the least of any layer{source}; got {risk!r} and "
            f"{optimal_risk!r}."
        )
    excess = float(risk) - float(optimal_risk)
    evidence = certificate.require_evidence("a bound")

    def compute(batch: SequenceBatch, attended: SequenceBatch | None) -> NDArray[np.float64]:
        certificate.domain.require_inside(batch)
        if attended is not None:
            certificate.domain.require_inside(attended, "context")
        if certificate.verdict != IDENTIFIABLE:
            return np.full((batch.n_rows(certificate.mode), 1), np.inf)
        if excess == 0.0:
            return np.zeros((batch.n_rows(certificate.mode), 1))
        return _bounds(evidence, batch, attended, excess, kind)[:, None]

    shaped = outputs_with_context(X, context, certificate.layout, compute)
    return [rows[:, 0] for rows in shaped] if isinstance(shaped, list) else shaped[..., 0][()]


def _beside(noise: Noise, certificate: Certificate) -> float:
    """A lower bound of the least risk on the data of the certificate."""
    evidence = certificate.require_evidence("a bound")
    # Where nothing is determined, features may be too many for a Gram matrix.
    weighted = certificate.identifiable and evidence.gram.total_weight != certificate.n_rows
    if weighted:
        raise InvalidInput(
            "the noise of weighted sums is not that of their positions; give optimal_risk, which a "
            "fit to the same sums returns."
        )
    return noise.least_risk(evidence.space.dimension, certificate.n_rows)


def _bounds(
    evidence: Evidence,
    batch: SequenceBatch,
    context: SequenceBatch | None,
    excess: float,
    kind: str,
) -> NDArray[np.float64]:
    """2 sqrt(eps psi^T Lambda^-1 psi) of all rows, or its worst case; never below the truth.

    Squares of features are of sixth degree, and leave float64 long before the bound does: every
    row is taken in units of its own, and roots are multiplied.
    """
    proof, gram = evidence.definite, evidence.gram
    layout = evidence.space.layout
    bounds = np.full(batch.n_rows(layout.form.mode), np.inf)
    if proof is None:
        return bounds  # full rank is proved, but no float64 inverse is
    if kind == "worst_case":
        # One scale for all features, and a margin near lambda_min, if that can be proved.
        scale = np.full(len(gram.powers), gram.scale.min())
        smallest, _ = extremes(gram.matrix)
        proof = prove_definite(gram, scale, 0.99 * smallest * scale[0] ** 2) or proof
    seen = _seen(layout, batch, context)
    attended = batch if context is None else context
    depth = feature_depth(layout, int(attended.lengths.max()))
    factor = 2.0 * np.sqrt(excess) * np.sqrt(gram.total_weight * SLACK)
    for block, sized in _with_sizes(seen):
        # A query is one of the tokens attended to in the papers' layer: where it is not zero,
        # neither is their Gram matrix, unless squares vanish beside those of other rows.
        largest = np.abs(block.sums).max(axis=0)
        vanished = (largest < LEAST_POWER) & (layout.is_plain | (largest > 0))
        if np.any(vanished & np.any(block.queries, axis=0)):
            raise OutOfRange(
                "X holds sequences, or beginnings of sequences, whose tokens are below 1e-140 of "
                "the largest in X; squares of both do not fit float64. Ask for their bounds apart."
            )
        (sums, of_sums), (queries, of_queries) = map(_at_one, (block.sums, block.queries))
        phi = proof.scale[:, None] * evidence.space.features(sums, queries)
        sizes = _sizes(layout, sums, queries, sized, of_sums, of_queries)
        doubt = evidence.space.features(*sizes)
        doubt *= gamma(depth) * proof.scale[:, None]
        phi, of_phi = _at_one(phi)
        doubt *= np.ldexp(1.0, -of_phi)
        exponents = of_sums + of_queries + of_phi + 3 * (seen.exponent - evidence.token_exponent)
        if kind == "leverage":
            lengths = _solved(proof, phi, doubt)
        else:
            lengths = np.linalg.norm(np.abs(phi) + doubt, axis=0) / np.sqrt(proof.margin)
        bounds[block.first : block.stop] = rounded_up(factor * lengths, exponents)
    return bounds


def _seen(layout: Layout, batch: SequenceBatch, context: SequenceBatch | None) -> SeenSequences:
    """The sequences in units in which their largest column is near one."""
    sizes = [layout.columns.sizes(batch)]
    if context is not None:
        sizes.append(layout.pair_columns.sizes(context))
    largest = float(np.concatenate(sizes).max())
    return SeenSequences(layout, batch, context, exponent_for(largest) or 0)


def _with_sizes(seen: SeenSequences) -> Iterator[tuple[SummaryBlock, SummaryBlock | None]]:
    """Blocks of summaries, and the same of absolute values where sizes need them."""
    others: Iterator[SummaryBlock | None] = repeat(None)
    if not by_diagonal(seen.layout):
        others = replace(seen, layout=absolute_layout(seen.layout)).blocks()
    return zip(seen.blocks(), others, strict=False)


def _sizes(
    layout: Layout,
    sums: NDArray,
    queries: NDArray,
    sized: SummaryBlock | None,
    of_sums: NDArray[np.intp],
    of_queries: NDArray[np.intp],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What rounding in sums and queries is relative to, in the units of their rows."""
    if sized is None:
        return sizes_of_sums(layout, sums), np.abs(queries)
    return np.ldexp(sized.sums, -of_sums), np.ldexp(sized.queries, -of_queries)


def _at_one(columns: NDArray) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Columns divided by powers of two so that the largest entry of each is near one."""
    sizes = np.maximum(columns.max(axis=0), -columns.min(axis=0))
    # The power itself has to be a float64, and a product is faster than ldexp.
    exponents = np.clip(np.frexp(sizes)[1], -1000, 1000).astype(np.intp)
    return columns * np.ldexp(1.0, -exponents), exponents


def _solved(proof: Definite, scaled: NDArray, doubt: NDArray) -> NDArray[np.float64]:
    """A bound of the root of z^T M^-1 z for columns z, given M >= R^T R + margin I.

    For any w, z = R^T w + r, so ||M^-1/2 z|| <= ||w|| + ||r|| / sqrt(margin): the solver of the
    triangular system is not trusted, its residual is.
    """
    w = solve_triangular(proof.factor, scaled, trans=1, check_finite=False)
    size = len(scaled)
    residual = np.linalg.norm(scaled - proof.factor.T @ w, axis=0) + np.linalg.norm(doubt, axis=0)
    lengths = np.linalg.norm(w, axis=0)
    frobenius = np.linalg.norm(proof.factor)
    residual += gamma(size + 4) * (np.linalg.norm(scaled, axis=0) + frobenius * lengths)
    return np.asarray(lengths + residual / np.sqrt(proof.margin))
