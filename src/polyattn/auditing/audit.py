"""audit: measure the layer, find the optimum, certify the data, compare; or look into heads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import norm

from polyattn.auditing.audit_heads import audit_heads, softmax_layers
from polyattn.auditing.head_audit import HeadAudit
from polyattn.auditing.layers import AuditedLayer, as_audited
from polyattn.auditing.result import Audit, Implied
from polyattn.certify import Certificate, certify
from polyattn.certify.domains import Domain, as_domain
from polyattn.certify.domains.tokens import TokenDomain
from polyattn.certify.minimiser import Minimiser, minimise, rounding_unit
from polyattn.certify.outcomes import IDENTIFIABLE
from polyattn.certify.structure import seen_part
from polyattn.certify.verified.rounding import longest
from polyattn.errors import InvalidInput
from polyattn.features.symbol_counts import require_dense_ids
from polyattn.form.form import Form
from polyattn.form.layout import Layout
from polyattn.model.forward import coef_forward
from polyattn.numerics.arrays import ranges_of_rows
from polyattn.numerics.parallel import require_physical_memory
from polyattn.numerics.random_state import RandomState, require_generator
from polyattn.numerics.scaling import (
    as_doubt,
    as_risk,
    exponent_for,
    largest_magnitude,
    scaled,
)
from polyattn.sequences import SequenceBatch, Sequences, names_of, require_same_names
from polyattn.sources.source import Source
from polyattn.stats import Moments
from polyattn.stats.rows import Rows
from polyattn.targets import Targets

# Tokens that are given to the layer together.
CHUNK_TOKENS = 1 << 16


@overload
def audit(
    layer: Any, X: Sequences | Source, Y: Targets, *, domain: str | Domain = ...,
    mode: str | None = ..., bias: bool | None = ..., sample_weight: ArrayLike | None = ...,
    form: Form | None = ..., context: Sequences | None = ...,
) -> Audit: ...  # fmt: skip
@overload
def audit(
    layer: Any, X: Any, Y: None = ..., *, domain: str | Domain = ..., mode: str | None = ...,
    bias: bool | None = ..., sample_weight: ArrayLike | None = ..., form: Form | None = ...,
    context: Sequences | None = ..., X_test: Any = ..., random_state: RandomState = ...,
) -> Any: ...  # fmt: skip
def audit(
    layer: Any,
    X: Any,
    Y: Targets | None = None,
    *,
    domain: str | Domain = "real",
    mode: str | None = None,
    bias: bool | None = None,
    sample_weight: ArrayLike | None = None,
    form: Form | None = None,
    context: Sequences | None = None,
    X_test: Any = None,
    random_state: RandomState = 0,
) -> Audit | HeadAudit:
    """How good a layer is, how good it could be, and whether the data determine it.

    Of softmax layers without targets: how much of each head attention of low order explains.

    Parameters
    ----------
    layer : LinearAttention, FitResult, fitted regressor, torch module, or any function
        Modules of ``interop.to_torch`` are read; other modules and functions are black boxes.
        So is a SoftmaxAttention, but one that knows its mode and bias: what is found is how much
        better or worse it is than linear attention.
        A function is given arrays (B, n, d), or lists of arrays (n_i, d) if lengths differ, and
        returns outputs in the form of Y; a second argument is the context, where there is one.
        A fit by log-loss is refused, since all is measured by squared error.
        Without Y: a SoftmaxAttention, ``interop.Projections`` of one, or a list of these.
    X, Y : sequences and targets, as for ``fit``; a source holds both
        Of a list of layers X is a list, with the sequences that each of them is given.
    domain : as for ``certify``
    mode, bias : what a black box is compared with ("last" and False unless given)
        Layers know theirs.
    sample_weight : array (N,), one weight per sequence
    form : Form, optional
        What a black box is compared with, instead of ``mode`` and ``bias``.
    context : sequences, optional
        What the sequences of X attend to, one for each of them, where these are others.
    X_test : sequences, or a list of them, one for each layer; without Y only
        What shares of heads are measured on.  By default a quarter of X is held out.
    random_state : int, Generator or None
        Which sequences are held out, without Y.

    Returns
    -------
    Audit
        risk, optimal_risk, gap, distance, certificate, and ``sentence`` for people.
    HeadAudit
        Without Y: shares of each head, and of each layer, by order.

    Guarantee: the optimum is found without the solvers of ``fit``, from a triangular factor of
    the data; its risk is right up to ``rounding``.
    Distances count what the data see: outputs on them, and coefficients without what changes no
    output (docs/derivations/minimum_norm.md).
    Cost: a pass with 2 p^2 flops per predicted position, ``certify``, and one forward pass.
    Memory a few p^2 numbers, whatever the number of sequences.
    Of heads, see ``HeadAudit`` and docs/derivations/heads_by_order.md.
    """
    with_targets = Y is not None or (isinstance(X, Source) and bool(X.n_outputs))
    if not with_targets:
        layers = softmax_layers(layer)
        _refuse_without_targets(
            domain=None if domain == "real" else domain, mode=mode, bias=bias,
            sample_weight=sample_weight, form=form, context=context,
        )  # fmt: skip
        return audit_heads(layers, X, X_test, random_state, isinstance(layer, list | tuple))
    if X_test is not None:
        raise InvalidInput("X_test belongs to an audit of heads, without Y; leave one of them out.")
    require_generator(random_state)
    return _audit_with_targets(layer, X, Y, domain, mode, bias, sample_weight, form, context)


def _refuse_without_targets(**given: object) -> None:
    for name, value in given.items():
        if value is not None:
            raise InvalidInput(f"{name} belongs to an audit with targets Y; leave it out.")


def _audit_with_targets(
    layer: Any, X: Sequences | Source, Y: Targets | None, domain: str | Domain, mode: str | None,
    bias: bool | None, sample_weight: ArrayLike | None, form: Form | None,
    context: Sequences | None,
) -> Audit:  # fmt: skip
    """A layer of any kind against the best linear attention layer."""
    where = as_domain(domain)
    if isinstance(X, SequenceBatch):
        require_dense_ids(X, "an audit")
    audited = as_audited(layer, mode, bias, form)
    layout = None
    if audited.n_dims is not None:
        layout = Layout.of(audited.form, audited.n_dims, audited.n_context_dims)
    require_same_names(names_of(X), names_of(layer))
    rows = Rows.build(
        X, Y, audited.form, sample_weight, context, layout=layout, n_outputs=audited.n_outputs
    )
    if rows.total_weight == 0.0:
        raise InvalidInput("sample_weight is zero everywhere; at least one must be positive.")
    # Those of the layer, of the optimum, their difference, and what they are made of.
    require_physical_memory(
        40 * rows.n_features * rows.n_outputs,
        f"an audit compares coefficients, {rows.n_features:,} for each output, and",
        "Reduce the number of coordinates or of outputs.",
    )
    best, certificate = minimise(rows), certify_rows(rows, where)
    return _compare(audited.coef, _measure(audited, rows, best), best, certificate)


class Measured(NamedTuple):
    """What the outputs of a layer on the data say of it.

    rounding : what that may have done to the risk
    visible : the part of the risk from rows that miss their targets by more than their rounding
    apart : root mean square of the difference to the outputs of the optimum
    size : root mean square of the outputs of the optimum
    """

    risk: float
    rounding: float
    visible: float
    apart: float
    size: float


# Outputs far larger than the targets overflow to infinity, which is refused at the end.
@np.errstate(over="ignore")
def _measure(audited: AuditedLayer, rows: Rows, best: Minimiser) -> Measured:
    """The outputs of the layer beside the targets and those of the optimum: one pass in pieces."""
    target = rows.target_exponent or 0
    squared, sizes, visible, apart, power = 0.0, 0.0, 0.0, 0.0, 0.0
    of_best = exponent_for(largest_magnitude(best.coef)) or 0
    coef = scaled(best.coef, -of_best)
    unit = rounding_unit(rows.n_features + longest(rows), rows.n_rows)
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
        least = coef_forward(part.batch, coef, rows.layout, part.context, of_best - target).T
        apart += float(np.sum(weights * np.sum((outputs - least) ** 2, axis=0)))
        power += float(np.sum(weights * np.sum(least**2, axis=0)))
        # Half of the digits of a row are more than rounding in it can move.
        visible += float(np.sum(missed[missed > unit * whole]))
    risk = squared / rows.total_weight
    doubt = unit * float(np.sqrt(sizes / rows.total_weight))
    rounding = (2.0 * float(np.sqrt(risk)) + doubt) * doubt
    visible = as_doubt(visible / rows.total_weight, target)
    roots = (float(np.ldexp(np.sqrt(each / rows.total_weight), target)) for each in (apart, power))
    return Measured(as_risk(risk, target), as_doubt(rounding, target), visible, *roots)


def certify_rows(rows: Rows, domain: str | Domain = "real") -> Certificate:
    """The certificate of these positions with these weights."""
    domain = as_domain(domain)
    weights, form = rows.sequence_weights, rows.form
    if weights is None:
        return certify(rows.batch, form=form, domain=domain, context=rows.context)
    numbers = np.flatnonzero(weights > 0)
    if rows.n_positive < rows.n_features:
        # Too few whatever they weigh.
        context = None if rows.context is None else rows.context.chosen(numbers)
        return certify(rows.batch.chosen(numbers), form=form, domain=domain, context=context)
    if isinstance(domain, TokenDomain):
        for batch, name in ((rows.batch, "X"), (rows.context, "context")):
            for some in [] if batch is None else _some_at_a_time(batch, numbers):
                domain.require_inside(some, name)
    return certify(statistics=Moments.of(rows), domain=domain)


def _some_at_a_time(batch: SequenceBatch, numbers: NDArray[np.intp]) -> Iterator[SequenceBatch]:
    """The sequences with these numbers, or all at once where they are all."""
    if len(numbers) == len(batch):
        yield batch
        return
    for first, stop in ranges_of_rows(batch.offsets, CHUNK_TOKENS):
        chosen = numbers[np.searchsorted(numbers, first) : np.searchsorted(numbers, stop)]
        if len(chosen):
            yield batch.chosen(chosen)


def _compare(
    coef: NDArray | None, measured: Measured, best: Minimiser, certificate: Certificate
) -> Audit:
    risk, visible = measured.risk, measured.visible
    rounding = measured.rounding + best.rounding
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
        seen = best.seen_of(coef - best.coef, certificate.layout)
        distance = float(norm(_seen(seen, certificate).ravel()))
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
    unsolved = full and best.rank < (certificate.rank or certificate.n_features)
    hidden = visible != 0.0 and (unsolved or rounding > 0.01 * visible)
    return Audit(
        risk, best.risk, gap, rounding, distance, implied, consistent, certificate, hidden,
        norm_of_best, measured.apart, measured.size,
    )  # fmt: skip


def _seen(difference: NDArray, certificate: Certificate) -> NDArray[np.float64]:
    """The part of a difference of coefficients (e, m, r) that data of this structure can show."""
    evidence, relations = certificate.evidence, certificate.relations
    if evidence is None or not certificate.domain.spans_real_inputs(evidence.space):
        return difference
    if relations is None and evidence.space.is_whole:
        return difference
    layout = certificate.layout
    flat = layout.select(difference.reshape(len(difference), -1).T)
    return seen_part(flat, evidence.space, relations)


def _root_of_ratio(above: float, below: float) -> float:
    """sqrt(above / below), roots first: the ratio itself may leave the range of float64."""
    return float(np.sqrt(above) / np.sqrt(below))
