"""How far two good layers can be apart on a new input.

Corrected Lemma A.7 of yau2024 (docs/derivations/bounds.md).  For layers F, F' whose training risk
exceeds the optimal one by at most eps each, the mean over the data of ||F - F'||^2 is at most
4 eps, so for every input

    ||F(X) - F'(X)||^2  <=  4 eps psi^T Lambda_D^-1 psi  <=  4 eps ||psi||^2 / lambda_min.

The first is the leverage of the input: a bound for each input of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from polyattn.certify.domains.tokens import TokenDomain
from polyattn.certify.evidence import Evidence
from polyattn.certify.finding import IDENTIFIABLE
from polyattn.certify.verified.definite import Definite, prove_definite
from polyattn.certify.verified.rounding import SLACK, feature_depth, gamma
from polyattn.certify.verified.spectrum import extremes
from polyattn.errors import InvalidInput, require_choice
from polyattn.features.summaries import Tokens, summary_blocks
from polyattn.model.layer import shape_rows, single_or_batch
from polyattn.sequences import SequenceBatch, Sequences

if TYPE_CHECKING:
    from polyattn.certify.certificate import Certificate

FORMS = ("leverage", "worst_case")


def disagreement_bound(
    certificate: Certificate, X: Sequences, risk: float, optimal_risk: float, form: str
) -> Any:
    """Bounds of ||F(X) - F'(X)|| for all positions that are predicted."""
    require_choice("form", form, FORMS)
    excess = _excess(risk, optimal_risk)
    evidence = certificate.require_evidence("a bound")
    batch, single = single_or_batch(X, certificate.n_dims)
    if isinstance(certificate.domain, TokenDomain):
        certificate.domain.require_inside(batch)
    if certificate.verdict != IDENTIFIABLE:
        bounds = np.full(batch.n_rows(certificate.mode), np.inf)
    elif excess == 0.0:
        bounds = np.zeros(batch.n_rows(certificate.mode))
    else:
        bounds = 2.0 * np.sqrt(excess * _leverages(evidence, batch, certificate, form))
    as_list = isinstance(X, list | tuple | SequenceBatch)
    shaped = shape_rows(bounds[:, None], batch, certificate.mode, as_list)
    without = [rows[:, 0] for rows in shaped] if isinstance(shaped, list) else shaped[..., 0]
    return without[0] if single else without


def _excess(risk: float, optimal_risk: float) -> float:
    for name, value in (("risk", risk), ("optimal_risk", optimal_risk)):
        if not (isinstance(value, int | float | np.number) and 0 <= value < np.inf):
            raise InvalidInput(f"{name} must be a number >= 0; got {value!r}.")
    if risk < optimal_risk:
        raise InvalidInput(
            f"risk must be at least optimal_risk, the least of any layer; got {risk!r} and "
            f"{optimal_risk!r}."
        )
    return float(risk) - float(optimal_risk)


def _leverages(
    evidence: Evidence, batch: SequenceBatch, certificate: Certificate, form: str
) -> NDArray[np.float64]:
    """psi^T Lambda^-1 psi of all rows, or its worst case; never below the truth."""
    proof = evidence.definite
    if form == "worst_case" and proof is not None:
        proof = _uniform_proof(evidence) or proof
    leverages = np.full(batch.n_rows(certificate.mode), np.inf)
    if proof is None:
        return leverages  # full rank is proved, but no float64 inverse is
    tokens = Tokens(batch, certificate.bias, evidence.token_exponent)
    depth = feature_depth(int(batch.lengths.max()))
    for block in summary_blocks(tokens, certificate.mode):
        phi = evidence.space.features(block.pairs, block.queries)
        doubt = gamma(depth) * evidence.space.magnitudes(block.pairs, block.queries)
        doubt *= proof.scale[:, None]
        scaled = proof.scale[:, None] * phi
        bound = _solved if form == "leverage" else _worst
        leverages[block.first : block.stop] = (
            evidence.gram.total_weight * SLACK * bound(proof, scaled, doubt)
        )
    return leverages


def _solved(proof: Definite, scaled: NDArray, doubt: NDArray) -> NDArray[np.float64]:
    """A bound of z^T M^-1 z for columns z, given M >= R^T R + margin I.

    For any w, z = R^T w + r, so ||M^-1/2 z|| <= ||w|| + ||r|| / sqrt(margin): the solver of the
    triangular system is not trusted, its residual is.
    """
    w = solve_triangular(proof.factor, scaled, trans=1, check_finite=False)
    size = len(scaled)
    residual = np.linalg.norm(scaled - proof.factor.T @ w, axis=0) + np.linalg.norm(doubt, axis=0)
    lengths = np.linalg.norm(w, axis=0)
    frobenius = np.linalg.norm(proof.factor)
    residual += gamma(size + 4) * (np.linalg.norm(scaled, axis=0) + frobenius * lengths)
    return (lengths + residual / np.sqrt(proof.margin)) ** 2


def _worst(proof: Definite, scaled: NDArray, doubt: NDArray) -> NDArray[np.float64]:
    return np.sum((np.abs(scaled) + doubt) ** 2, axis=0) / proof.margin


def _uniform_proof(evidence: Evidence) -> Definite | None:
    """A proof with one scale for all features and a margin near lambda_min, if one succeeds."""
    gram = evidence.gram
    scale = np.full(len(gram.powers), gram.scale.min())
    smallest, _ = extremes(gram.matrix)
    return prove_definite(gram, scale, 0.99 * smallest * scale[0] ** 2)
