"""audit: measure the layer, find the optimum, certify the data, compare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import norm

from polyattn.auditing.audited import AuditedLayer, as_audited
from polyattn.auditing.result import Audit, Implied
from polyattn.certify import Certificate, certify
from polyattn.certify.domains import Domain, as_domain
from polyattn.certify.domains.tokens import TokenDomain
from polyattn.certify.minimiser import Minimiser, minimise, rounding_unit
from polyattn.certify.verdict import IDENTIFIABLE
from polyattn.errors import InvalidInput
from polyattn.numerics.arrays import ranges_of_rows
from polyattn.numerics.scaling import as_doubt, as_risk
from polyattn.sequences import SequenceBatch, Sequences
from polyattn.stats import Moments
from polyattn.stats.rows import Rows
from polyattn.targets import Targets

# Tokens that are given to the layer together.
CHUNK_TOKENS = 1 << 16

# Rounding beyond this share of a risk hides whether that is the least.
MOST_HIDDEN = 0.01


def audit(
    layer: Any,
    X: Sequences,
    Y: Targets,
    *,
    domain: str | Domain = "real",
    mode: str | None = None,
    bias: bool | None = None,
    sample_weight: ArrayLike | None = None,
) -> Audit:
    """How good a layer is, how good it could be, and whether the data determine it.

    Parameters
    ----------
    layer : LinearAttention, FitResult, fitted regressor, torch module, or any function
        Modules of ``interop.to_torch`` are read; other modules and functions are black boxes.
        So is a SoftmaxAttention, but one that knows its mode and bias: what is found is how much
        better or worse it is than linear attention.
        A function is given arrays (B, n, d), or lists of arrays (n_i, d) if lengths differ, and
        returns outputs in the form of Y.
    X, Y : sequences and targets, as for ``fit``
    domain : as for ``certify``
    mode, bias : what a black box is compared with ("last" and False unless given)
        Layers know theirs.
    sample_weight : array (N,), one weight per sequence

    Returns
    -------
    Audit
        risk, optimal_risk, gap, distance, certificate, and ``sentence`` for people.

    Guarantee: the optimum is found without the solvers of ``fit``, from a triangular factor of
    the data; its risk is right up to ``rounding``.
    Cost: a pass with 2 p^2 flops per predicted position, ``certify``, and one forward pass.
    Memory a few p^2 numbers, whatever the number of sequences.
    """
    where = as_domain(domain)
    audited = as_audited(layer, mode, bias)
    rows = Rows.build(
        X, Y, audited.mode, audited.bias, sample_weight, audited.n_dims, audited.n_outputs
    )
    if rows.total_weight == 0.0:
        raise InvalidInput("sample_weight is zero everywhere; at least one must be positive.")
    return _compare(audited, _measure(audited, rows), minimise(rows), certify_rows(rows, where))


@dataclass(frozen=True)
class _Measured:
    """The risk of the outputs, what rounding may have done to it, and which part is no rounding.

    ``visible``: the part from rows that miss their targets by more than their own rounding.
    """

    risk: float
    rounding: float
    visible: float


# Outputs far larger than the targets overflow to infinity, which is refused at the end.
@np.errstate(over="ignore")
def _measure(audited: AuditedLayer, rows: Rows) -> _Measured:
    """The risk of the layer's own outputs, one pass in pieces."""
    target = rows.target_exponent or 0
    squared, sizes, visible = 0.0, 0.0, 0.0
    unit = rounding_unit(rows.n_features + int(rows.batch.lengths.max()), rows.n_rows)
    for first, stop in ranges_of_rows(rows.batch.offsets, CHUNK_TOKENS):
        part = rows.part(first, stop)
        outputs = _scaled_columns(audited.rows_of_outputs(part), target)
        unsigned = audited.rows_of_sizes(part)
        size = np.abs(outputs) if unsigned is None else _scaled_columns(unsigned, target)
        wanted = part.scaled_targets(0, part.n_rows)
        weights = 1.0 if part.row_weights is None else part.row_weights
        missed = weights * np.sum((wanted - outputs) ** 2, axis=0)
        whole = weights * np.sum((np.abs(wanted) + size) ** 2, axis=0)
        squared += float(np.sum(missed))
        sizes += float(np.sum(whole))
        # Half of the digits of a row are more than rounding in it can move.
        visible += float(np.sum(missed[missed > unit * whole]))
    risk = squared / rows.total_weight
    doubt = unit * float(np.sqrt(sizes / rows.total_weight))
    rounding = (2.0 * float(np.sqrt(risk)) + doubt) * doubt
    return _Measured(
        as_risk(risk, target),
        as_doubt(rounding, target),
        as_doubt(visible / rows.total_weight, target),
    )


def _scaled_columns(outputs: NDArray, target_exponent: int) -> NDArray[np.float64]:
    """Outputs (rows, e) as (e, rows), in the units of scaled targets."""
    return np.ldexp(outputs.T.astype(np.float64), -target_exponent)


def certify_rows(rows: Rows, domain: str | Domain = "real") -> Certificate:
    """The certificate of these positions with these weights."""
    domain = as_domain(domain)
    weights = rows.sequence_weights
    if weights is None:
        return certify(rows.batch, rows.mode, domain, bias=rows.bias)
    positive = [sequence for sequence, w in zip(rows.batch, weights, strict=True) if w > 0]
    if rows.n_positive < rows.n_features:
        # Too few whatever they weigh.
        return certify(positive, rows.mode, domain, bias=rows.bias)
    if isinstance(domain, TokenDomain):
        domain.require_inside(SequenceBatch.from_sequences(positive))
    return certify(statistics=Moments.of(rows), domain=domain)


def _compare(
    audited: AuditedLayer, measured: _Measured, best: Minimiser, certificate: Certificate
) -> Audit:
    rounding = measured.rounding + best.rounding
    gap = measured.risk - best.risk
    if -rounding <= gap < 0.0:
        gap = 0.0
    distance, norm_of_best, doubt = None, None, 0.0
    smallest = _safe_lambda_min(certificate)
    if audited.coef is not None:
        distance = float(norm((audited.coef - best.coef).ravel()))
        norm_of_best = float(norm(best.coef.ravel()))
        doubt = _distance_rounding(audited.coef, best, certificate, smallest)
    implied = None
    if gap >= 0.0 or distance is not None:
        excess = max(gap, 0.0) + rounding
        limit = _root_of_ratio(excess, smallest) if smallest > 0 else np.inf
        implied = Implied(limit, certificate, excess)
    consistent = distance is None or (
        gap >= 0.0 and implied is not None and distance <= implied.distance + doubt
    )
    return Audit(
        measured.risk, best.risk, gap, rounding, distance, implied, consistent, certificate,
        hidden=_is_hidden(measured, best, rounding, certificate),
        optimal_norm=norm_of_best,
    )  # fmt: skip


def _is_hidden(
    measured: _Measured, best: Minimiser, rounding: float, certificate: Certificate
) -> bool:
    """Whether a risk that is more than rounding may be above the least by as much as it is.

    Either by rounding, or since directions that a proof sees are too small to be solved for.
    """
    if measured.visible == 0.0:
        return False
    full = certificate.verdict_on_real_inputs == IDENTIFIABLE
    unsolved = full and best.rank < certificate.n_features
    return unsolved or rounding > MOST_HIDDEN * measured.visible


def _safe_lambda_min(certificate: Certificate) -> float:
    """lambda_min less its rounding error; 0 where the data do not determine all coefficients."""
    smallest, largest = certificate.lambda_min, certificate.lambda_max
    determined = certificate.verdict_on_real_inputs == IDENTIFIABLE
    if not determined or smallest is None or largest is None:
        return 0.0
    return max(smallest - rounding_unit(certificate.n_features, certificate.n_rows) * largest, 0.0)


def _distance_rounding(
    coef: NDArray, best: Minimiser, certificate: Certificate, smallest: float
) -> float:
    """The rounding of the coefficients, by the condition number of least squares."""
    if smallest == 0.0 or certificate.lambda_max is None:
        return np.inf
    condition = _root_of_ratio(certificate.lambda_max, smallest)
    size = float(norm(coef.ravel())) + float(norm(best.coef.ravel()))
    residual = _root_of_ratio(best.risk, smallest)
    unit = rounding_unit(certificate.n_features, certificate.n_rows)
    return unit * condition * (size + residual)


def _root_of_ratio(above: float, below: float) -> float:
    """sqrt(above / below), roots first: the ratio itself may leave the range of float64."""
    return float(np.sqrt(above) / np.sqrt(below))
