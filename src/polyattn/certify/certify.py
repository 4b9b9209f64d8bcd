"""certify: sequences -> features of the domain -> the verdict (``decide``) -> Certificate."""

from __future__ import annotations

from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np

from polyattn.certify.certificate import Certificate
from polyattn.certify.decide import Finding, by_span, decide
from polyattn.certify.digest import digest_source
from polyattn.certify.domains import CustomDomain, Domain, as_domain
from polyattn.certify.evidence import RANKED_COLUMNS, Evidence, require_inside
from polyattn.certify.one_hot.certify_symbols import certificate_of_ids
from polyattn.certify.outcomes import IDENTIFIABLE, NOT_IDENTIFIABLE
from polyattn.certify.verified.gram import Source as Basis
from polyattn.certify.verified.rounding import UNIT
from polyattn.certify.verified.spectrum import extremes, largest, second_moment
from polyattn.errors import InvalidInput, InvalidType, require_choice
from polyattn.form.form import Form, require_form
from polyattn.numerics.arrays import float64_holds
from polyattn.numerics.parallel import single_threaded_blas
from polyattn.sequences import Sequences
from polyattn.sources.source import Source, require_alone, require_no_checkpoint
from polyattn.sources.views import Inputs
from polyattn.stats import Moments, TriangularFactor
from polyattn.stats.opening import rows_of_source
from polyattn.stats.parts import Origin
from polyattn.stats.rows import Rows

METHODS = ("auto", "exact", "float")


@single_threaded_blas()
def certify(
    X: Sequences | Source | None = None,
    mode: str = "last",
    domain: str | Domain = "real",
    *,
    bias: bool = False,
    form: Form | None = None,
    context: Sequences | None = None,
    method: str = "auto",
    statistics: Moments | TriangularFactor | None = None,
    checkpoint: str | PathLike[str] | None = None,
    client: Any = None,
) -> Certificate:
    """Whether the data determine the layer: a verdict that can be relied on.

    Parameters
    ----------
    X : array (N, n, d), list of arrays (n_i, d), SequenceBatch, or a source (``polyattn.scan``)
    mode : "last" | "causal" | "full"
        Which positions are predicted, and what they attend to.
    domain : "real" | "boolean" | "one_hot" | Domain
        Where layers have to agree: ``domains.Real(lengths=...)``, ``Boolean``, ``OneHot``,
        ``Finite(sequences)`` or ``Sampled(draw)``.  Data must lie in a built-in domain.
    bias : bool
        Append a coordinate that is always 1 to every token.
    form : Form, optional
        The layer, instead of ``mode`` and ``bias``.
    context : sequences, optional
        What the sequences of X attend to, one for each of them, where these are others.
    method : "auto" | "exact" | "float"
        "auto" decides integers of any size (up to 64 bits), and floats that were not rounded,
        in exact arithmetic where floating point with proved rounding bounds does not; "exact"
        takes any numbers as the exact rationals they are.
    statistics : Moments or TriangularFactor
        Instead of X: certify from accumulated sums (their form is used).  They prove that data
        determine the layer, and the opposite only where rows are too few or features never occur.
    checkpoint : path, optional
        Of a source: a file in which its sums are kept; the same call goes on where one was
        interrupted.
    client : distributed.Client, optional
        Of a source: the workers of a Dask cluster make its sums and further passes, to the same
        bits; the digest, and exact arithmetic, read it here.

    Returns
    -------
    Certificate
        ``verdict`` is "identifiable", "not_identifiable" or "undecided".

    Guarantee: "identifiable" is a theorem about the numbers given: every minimiser of the
    empirical risk (over layers with enough heads; with fewer if the data come from such a
    layer) is the same function on the domain [yau2024: Lemmas 2.3, A.3, A.6, E.1].
    "not_identifiable" comes with a direction that the data do not see: exactly for integers and
    for floats that were not rounded; of rounded floats up to their rounding (of too few rows it
    is certain that there is one).  Floats look rounded if some have the last bit of their dtype
    set, and not all numbers of the coordinate are multiples of one power of two, of at most one
    bit more than the dtype has.
    Whatever rounding leaves open, or a sampler did not draw, is "undecided".
    Features that never occur in the data, or are always multiples of others, are found exactly;
    ``structure`` says which, and whether all others are determined.
    Other forms: domains where the algebra is known or was tried; of functions of tokens a verdict
    is about the coefficients, given the numbers that they return [yau2024: Lemma E.1].

    Cost: by floating point one pass of ``Moments`` and 2/3 p^3 flops, two passes more where that
    leaves doubt; exact about 2 p^3 flops.  Memory 3 p^2 numbers, whatever the number of sequences.
    """
    require_choice("method", method, METHODS)
    where, chosen = as_domain(domain), require_form(form, mode, bias)
    source: Basis
    if isinstance(X, Source):
        if statistics is not None:
            raise InvalidInput("give either X or statistics, not both.")
        require_alone(context=context)
        source = _rows_of_source(X, chosen, checkpoint, client)
    else:
        require_no_checkpoint(checkpoint, client)
        of_ids = certificate_of_ids(X, chosen, where, method, context, statistics)
        if of_ids is not None:
            return of_ids
        source = _basis(X, chosen, context, statistics, method)
    evidence = Evidence(source, where.space(source.layout))
    if checkpoint is not None and not evidence.space.is_whole:
        raise InvalidInput(
            "a checkpoint keeps the sums of all features, and here those of the domain are made; "
            "leave it out, or choose the domain 'real'."
        )
    premise = require_inside(evidence, where)
    found = decide(evidence, method)
    whole = where.spans_real_inputs(evidence.space)
    on_real = found.verdict if whole else NOT_IDENTIFIABLE
    dimension: int | None = evidence.space.dimension
    if isinstance(where, CustomDomain):
        found, dimension = by_span(evidence, found, where, method), None
    smallest, top = _spectrum(evidence, found)
    direction = None if found.direction is None else evidence.space.embed(found.direction)
    layout = source.layout
    return Certificate(
        verdict=found.verdict, verdict_on_real_inputs=on_real, domain=where,
        mode=layout.form.mode, bias=layout.form.bias, n_dims=source.n_dims,
        n_sequences=source.n_sequences, n_rows=source.n_rows,
        n_features=evidence.space.n_features, dimension=dimension,
        rank=found.rank, lambda_min=smallest, lambda_max=top, method=found.method,
        prime=found.prime, note=f"{found.note} {premise}".strip(),
        rounding=float(found.rounding), digest=digest_source(source),
        given_direction=direction, evidence=evidence,
        structure=found.structure, relations=found.relations,
        given_form=None if layout.form.is_plain else layout.form,
        n_context_dims=layout.n_context_dims,
        min_length=source.min_length, max_length=source.max_length or None,
    )  # fmt: skip


def _spectrum(evidence: Evidence, found: Finding) -> list[float | None]:
    """[lambda_min, lambda_max] in the units of the data; None where float64 cannot hold them."""
    space = evidence.space
    ends: list[float | None] = [0.0, None]
    if found.verdict != NOT_IDENTIFIABLE:
        if found.method == "gram" and space.is_whole and evidence.definite is not None:
            both = extremes(evidence.gram.matrix, evidence.definite)
            smallest, top = (end / evidence.gram.total_weight for end in both)
        else:
            smallest, top = extremes(second_moment(evidence.gram, space))
        # It may be positive, and below rounding.  Rounding may also show a negative one.
        lost = found.verdict == IDENTIFIABLE and smallest <= space.dimension * UNIT * top
        ends = [None if lost else max(smallest, 0.0), top]
    elif found.method != "count" or space.dimension <= RANKED_COLUMNS:
        # Counting many features makes no Gram matrix.
        ends[1] = largest(second_moment(evidence.gram, space))
    for at, end in enumerate(ends):
        if end is not None:
            with np.errstate(over="ignore", under="ignore"):
                restored = float(np.ldexp(end, 6 * evidence.token_exponent))
            held = np.isfinite(restored) and (restored > 0 or end == 0)
            ends[at] = restored if held else None
    return ends


def _rows_of_source(
    source: Source, form: Form, checkpoint: str | PathLike[str] | None, client: Any
) -> Rows:
    """The rows of a source, of which every sequence counts once."""
    rows = rows_of_source(Inputs(source, weighted=True), form, None, client, keep_integers=True)
    weights = rows.sequence_weights
    if weights is not None and not (weights[0] > 0 and np.all(weights == weights[0])):
        raise InvalidInput(
            f"the source holds weights from {weights.min():g} to {weights.max():g}, which certify "
            "does not use: every sequence counts once. Leave out the sequences of weight zero, "
            "and the weights of the others; or certify Moments of the source."
        )
    rows = replace(rows, sequence_weights=None)
    # Sums that float64 rounds first are made of the tokens themselves.
    held = all(float64_holds(each.values) for each in (rows.batch, rows.context) if each)
    return rows.come_from(Origin(source, checkpoint, client)) if held else rows


def _basis(
    X: Sequences | None, form: Form, context: Sequences | None, statistics: object, method: str
) -> Basis:
    if statistics is None:
        if X is None:
            raise InvalidInput("certify needs sequences X, or statistics=...")
        return Rows.build(X, None, form, context=context, keep_integers=True)
    if context is not None:
        raise InvalidInput("statistics hold their context already; leave out context.")
    if X is not None:
        raise InvalidInput("give either X or statistics, not both.")
    if not isinstance(statistics, Moments | TriangularFactor):
        raise InvalidType(
            f"statistics must be Moments or a TriangularFactor; got {type(statistics).__name__}."
        )
    if statistics.n_rows == 0:
        raise InvalidInput("the statistics are empty; call their update(X) first.")
    if method == "exact":
        raise InvalidInput("method='exact' needs the sequences X; sums are rounded already.")
    return statistics
