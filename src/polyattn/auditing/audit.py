"""audit: measure the layer, find the optimum, certify the data, compare."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import norm

from polyattn import interop
from polyattn.auditing.result import Audit, Implied
from polyattn.certify import Certificate, certify
from polyattn.certify.domains import Domain, as_domain
from polyattn.certify.domains.tokens import TokenDomain
from polyattn.certify.minimiser import Minimiser, minimise, rounding_unit
from polyattn.certify.outcomes import IDENTIFIABLE
from polyattn.errors import InvalidInput, InvalidType, require_choice, require_flag
from polyattn.fitting.result import FitResult
from polyattn.model import LinearAttention, SoftmaxAttention
from polyattn.numerics.arrays import ranges_of_rows
from polyattn.numerics.scaling import as_doubt, as_risk
from polyattn.sequences import MODES, SequenceBatch, Sequences
from polyattn.stats import Moments
from polyattn.stats.rows import Rows
from polyattn.targets import Targets, as_targets

# Tokens that are given to the layer together.
CHUNK_TOKENS = 1 << 16


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
    measured, best, certificate = _measure(audited, rows), minimise(rows), certify_rows(rows, where)
    return _compare(audited.coef, *measured, best, certificate)


# Outputs far larger than the targets overflow to infinity, which is refused at the end.
@np.errstate(over="ignore")
def _measure(audited: AuditedLayer, rows: Rows) -> tuple[float, float, float]:
    """(risk, rounding, visible) of the layer's own outputs, one pass in pieces.

    ``rounding``: what that may have done to the risk.  ``visible``: the part of the risk from rows
    that miss their targets by more than their own rounding.
    """
    target = rows.target_exponent or 0
    squared, sizes, visible = 0.0, 0.0, 0.0
    unit = rounding_unit(rows.n_features + int(rows.batch.lengths.max()), rows.n_rows)
    for first, stop in ranges_of_rows(rows.batch.offsets, CHUNK_TOKENS):
        part = rows.part(first, stop)
        # (e, rows), in the units of scaled targets.
        outputs, size = (
            np.ldexp(rows_of.T.astype(np.float64), -target) for rows_of in audited.evaluate(part)
        )
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
    visible = as_doubt(visible / rows.total_weight, target)
    return as_risk(risk, target), as_doubt(rounding, target), visible


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
    coef: NDArray | None, risk: float, rounding: float, visible: float, best: Minimiser,
    certificate: Certificate,
) -> Audit:  # fmt: skip
    rounding += best.rounding
    gap = risk - best.risk
    if -rounding <= gap < 0.0:
        gap = 0.0
    full = certificate.verdict_on_real_inputs == IDENTIFIABLE
    unit = rounding_unit(certificate.n_features, certificate.n_rows)
    # lambda_min less its rounding error; 0 where the data do not determine all coefficients.
    smallest, largest, safe = certificate.lambda_min, certificate.lambda_max, 0.0
    if full and smallest is not None and largest is not None:
        safe = max(smallest - unit * largest, 0.0)
    distance, norm_of_best, doubt = None, None, np.inf
    if coef is not None:
        distance = float(norm((coef - best.coef).ravel()))
        norm_of_best = float(norm(best.coef.ravel()))
        if safe > 0 and largest is not None:
            # The rounding of the coefficients, by the condition number of least squares.
            size = float(norm(coef.ravel())) + norm_of_best
            doubt = unit * _root_of_ratio(largest, safe) * (size + _root_of_ratio(best.risk, safe))
    implied = None
    if gap >= 0.0 or distance is not None:
        excess = max(gap, 0.0) + rounding
        limit = _root_of_ratio(excess, safe) if safe > 0 else np.inf
        implied = Implied(limit, certificate, excess)
    consistent = distance is None or bool(
        gap >= 0.0 and implied is not None and distance <= implied.distance + doubt
    )
    # A risk that is more than rounding may be above the least by as much as it is: by rounding of
    # more than a hundredth, or since directions that a proof sees are too small to be solved for.
    unsolved = full and best.rank < certificate.n_features
    hidden = visible != 0.0 and (unsolved or rounding > 0.01 * visible)
    return Audit(
        risk, best.risk, gap, rounding, distance, implied, consistent, certificate, hidden,
        norm_of_best,
    )  # fmt: skip


def _root_of_ratio(above: float, below: float) -> float:
    """sqrt(above / below), roots first: the ratio itself may leave the range of float64."""
    return float(np.sqrt(above) / np.sqrt(below))


@dataclass(frozen=True)
class AuditedLayer:
    """A layer as an audit sees it; what a black box does not say is None."""

    outputs: Callable[[SequenceBatch], Any]
    mode: str
    bias: bool
    coef: NDArray[np.float64] | None = None
    n_dims: int | None = None
    n_outputs: int | None = None
    # The layer with all signs removed: its outputs bound what is added up in those of the layer.
    unsigned: Callable[[SequenceBatch], Any] | None = None

    def evaluate(self, part: Rows) -> tuple[NDArray, NDArray]:
        """Outputs (rows, e) for some sequences, and sizes that rounding in them is relative to."""
        found = self.outputs(part.batch)
        try:
            # A black box may return anything.
            outputs = as_targets(found, part.batch, part.mode, part.n_outputs)
        except (InvalidInput, InvalidType) as error:
            message = f"the outputs of the layer do not fit the data (here called Y): {error}"
            raise type(error)(message) from None
        if self.unsigned is None:
            return outputs, np.abs(outputs)
        batch = SequenceBatch(np.abs(part.batch.values), part.batch.offsets)
        return outputs, as_targets(self.unsigned(batch), part.batch, part.mode)


def as_audited(layer: Any, mode: str | None, bias: bool | None) -> AuditedLayer:
    """Any kind of layer, its mode and bias checked against what was asked for."""
    module = None
    if interop.is_torch_module(layer):
        module, layer = layer, interop.torch_layer(layer, mode)
    elif hasattr(type(layer), "result_"):
        if hasattr(layer, "classes_"):
            raise InvalidType(
                "audit takes a regressor; of a classifier give its result_ as the layer and the "
                "indicators of the classes as Y."
            )
        layer = layer.result_
    if not isinstance(layer, LinearAttention | SoftmaxAttention | FitResult):
        return _black_box(layer, module, mode, bias)
    _require_own(layer, "mode", mode)
    if isinstance(layer, SoftmaxAttention):
        # It has no coefficients, but knows its mode and sizes.
        constant = layer.bias if bias is None else require_flag("bias", bias)
        return AuditedLayer(layer, layer.mode, constant, None, layer.n_dims, layer.n_outputs)
    _require_own(layer, "bias", bias)
    outputs: Any = layer
    if isinstance(layer, LinearAttention):
        sizes = np.abs(layer.attn), np.abs(layer.value)
        unsigned: Any = LinearAttention(*sizes, layer.mode, layer.bias)
    else:
        outputs, unsigned = layer.predict, replace(layer, coef=np.abs(layer.coef)).predict
    coef = layer.coef
    return AuditedLayer(outputs, layer.mode, layer.bias, coef, layer.n_dims, len(coef), unsigned)


def _require_own(layer: Any, name: str, asked: object) -> None:
    own = getattr(layer, name)
    if asked is not None and asked != own:
        raise InvalidInput(
            f"the layer has {name} {own!r}, but {name}={asked!r} was asked for; leave it out."
        )


def _black_box(layer: Any, module: Any, mode: str | None, bias: bool | None) -> AuditedLayer:
    """A torch module that nobody can read, or else any function of sequences."""
    if module is None and not callable(layer):
        raise InvalidType(
            "layer must be a LinearAttention, a SoftmaxAttention, a FitResult, a fitted regressor, "
            f"a torch module or a function of sequences; got {type(layer).__name__}."
        )

    def outputs(batch: SequenceBatch) -> Any:
        if module is not None:
            return interop.torch_outputs(module, batch)
        n, length = len(batch), batch.common_length
        return layer(list(batch) if length is None else batch.values.reshape(n, length, -1))

    chosen = require_choice("mode", "last" if mode is None else mode, MODES)
    return AuditedLayer(outputs, chosen, require_flag("bias", bias is not None and bias))
