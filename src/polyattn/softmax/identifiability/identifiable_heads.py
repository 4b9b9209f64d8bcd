"""Whether the heads of a layer can be known, from all inputs or from given ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
from scipy.linalg import norm

from polyattn.certify.outcomes import IDENTIFIABLE, NOT_IDENTIFIABLE, UNDECIDED
from polyattn.model import SoftmaxAttention
from polyattn.model.compare import TOLERANCE, merged_values, require_softmax
from polyattn.model.offsets import head_distances, visible_attn
from polyattn.numerics.parallel import single_threaded_blas
from polyattn.sequences import SequenceBatch, Sequences, as_batch
from polyattn.softmax.identifiability.other_layers import Unexamined, mirrored, rearranged
from polyattn.softmax.identifiability.visible import (
    HeadFinding,
    Matrix,
    attending_queries,
    hidden_directions,
    jacobian_rank,
    n_visible,
)

# Jacobians of up to this many parameters are decomposed.
MOST_PARAMETERS = 1500

# Heads are alike, and outputs the same, up to this.
ALIKE, SAME = 1e-9, 1e-9

# Alternatives that are tried on all inputs.
MOST_TRIED = 16

SENTENCES = {
    "opposite_heads": (
        "Every query sees at most two kinds of tokens, and these equally often: heads {heads} can "
        "be replaced, since A, -A and 0 with values V, V and -2V cancel there."
    ),
    "two_valued": (
        "Heads {heads} have equal values, and the queries are so few that other heads have the "
        "same logits there, in another order: they give the same outputs."
    ),
}

WORDS = {
    IDENTIFIABLE: "The heads are determined",
    NOT_IDENTIFIABLE: "The heads are not determined",
    UNDECIDED: "It is undecided whether the heads are determined",
}

TOO_MANY = (
    ": heads {heads} have equal values, and there are too many ways to give others the same "
    "logits at these queries to try all"
)


@dataclass(frozen=True, eq=False)
class HeadReport:
    """What can be known of the heads of a layer.

    Attributes
    ----------
    verdict : "identifiable" | "not_identifiable" | "undecided"
    findings : tuple of HeadFinding, reasons against
    n_parameters : int, parameters that some input could show
    rank : int | None
        How many independent changes of them the given inputs show; None if it was not computed
        or there is no clear gap.
    sentence : str, the verdict in words
    """

    verdict: str
    findings: tuple[HeadFinding, ...]
    n_parameters: int
    rank: int | None
    sentence: str

    def __str__(self) -> str:
        return " ".join([self.sentence, *(finding.sentence for finding in self.findings)])


@single_threaded_blas()
def identifiable_heads(layer: SoftmaxAttention, X: Sequences | None = None) -> HeadReport:
    """Whether heads are determined by the outputs, up to their order.

    With ``bias`` they never are entirely: the last column of ``attn`` and how the last rows of
    ``value`` are shared among heads are conventions (see ``canonical``) and do not count
    here.

    Parameters
    ----------
    layer : SoftmaxAttention
    X : sequences, optional
        The inputs on which outputs are known.  By default all real sequences.

    Returns
    -------
    HeadReport
        Findings are: ``equal_heads``, ``zero_value``; with X also ``one_token``, ``pinned``,
        ``constant_within``, ``flat``, ``few_queries``, ``opposite_heads``, ``two_valued``,
        ``too_few``.

    Guarantee: without X the verdict is a theorem, up to the tolerance with which heads are
    called equal.  With X each finding names other parameters that X does not tell from these;
    without findings the rank of the Jacobian decides, that is: *identifiable* means that no other
    layer near this one has the same outputs, nor one of as many heads that differs by the signs
    of heads or by the pairing of heads of equal value.  Undecided: no clear gap in its singular
    values, too many parameters or pairings, or no full rank where attention is so sharp that
    rounding may be the cause.
    Cost: with P visible parameters, O(P^2) per output until the rank is full.
    """
    require_softmax(layer)
    n_parameters = n_visible(layer)
    findings = list(_of_heads(layer))
    if X is None:
        verdict = NOT_IDENTIFIABLE if findings else IDENTIFIABLE
        sentence = f"{WORDS[verdict]} by all real sequences, up to their order."
        return HeadReport(verdict, tuple(findings), n_parameters, None, sentence)
    batch = as_batch(X, n_dims=layer.n_dims)
    everyone = tuple(range(layer.n_heads))
    unexamined: tuple[int, ...] = ()
    if batch.lengths.max() > 1:
        findings += hidden_directions(layer, batch)
        others, unexamined = _other_layers(layer, batch)
        findings += others
    else:
        sentence = "All sequences have one token, whose weight is 1 whatever attn is."
        findings.append(HeadFinding("one_token", sentence, everyone))
    n_equations = batch.n_rows(layer.mode) * layer.n_outputs
    if not findings and n_equations < n_parameters:
        sentence = f"These inputs give {n_equations} numbers for {n_parameters} parameters."
        findings.append(HeadFinding("too_few", sentence, everyone))
    verdict, rank, reason = NOT_IDENTIFIABLE, None, ""
    if not findings:
        verdict, rank, reason = _by_rank(layer, batch)
        if verdict == IDENTIFIABLE and unexamined:
            verdict, reason = UNDECIDED, TOO_MANY.format(heads=list(unexamined))
    sentence = f"{WORDS[verdict]} by these inputs, up to their order{reason}."
    return HeadReport(verdict, tuple(findings), n_parameters, rank, sentence)


def _of_heads(layer: SoftmaxAttention) -> Iterator[HeadFinding]:
    """What no input whatever can tell apart."""
    value = layer.value[:, : layer.n_dims]
    groups, _, largest = merged_values(head_distances([layer], TOLERANCE), value, TOLERANCE)
    for group in groups:
        if len(group) > 1:
            sentence = f"Heads {group} have equal attn: only the sum of their values is visible."
            yield HeadFinding("equal_heads", sentence, tuple(group))
    idle = [h for h, V in enumerate(value) if norm(V.ravel()) <= TOLERANCE * largest]
    if idle:
        sentence = f"Heads {idle} have zero value: nothing depends on their attn."
        yield HeadFinding("zero_value", sentence, tuple(idle))


def _by_rank(layer: SoftmaxAttention, batch: SequenceBatch) -> tuple[str, int | None, str]:
    """A verdict, a rank, and the reason, where there are no findings."""
    n_parameters = n_visible(layer)
    if n_parameters > MOST_PARAMETERS:
        return UNDECIDED, None, f": {n_parameters} parameters are too many for a numerical check"
    found = jacobian_rank(layer, batch)
    if found.rank == n_parameters:
        reason = (
            ": every small change of parameters changes the outputs, and so do other signs of "
            "heads and other pairings of heads of equal value (that no other layer far from this "
            "one has the same is not examined)"
        )
        return IDENTIFIABLE, found.rank, reason
    if found.sharp:
        heads = list(found.sharp)
        reason = f": heads {heads} are so sharp that rounding hides what some tokens would show"
    elif not found.complete:
        reason = ": those examined do not show all parameters, and there are too many more"
    elif found.rank is None:
        reason = ": some changes of parameters have effects close to rounding"
    else:
        unseen, heads = n_parameters - found.rank, list(found.involved)
        reason = f": {unseen} independent changes of heads {heads} do not change the outputs"
        return NOT_IDENTIFIABLE, found.rank, reason
    return UNDECIDED, found.rank, reason


def _other_layers(
    layer: SoftmaxAttention, batch: SequenceBatch
) -> tuple[list[HeadFinding], tuple[int, ...]]:
    """A finding for a layer far from this one with the same outputs, and heads not examined.

    Heads of other signs, and other pairings of heads of equal value, are tried on all inputs.
    The first of each kind that gives the same outputs is a finding.
    """
    attn, value = visible_attn(layer), layer.value
    # Divided by the power of two next to the largest entry.
    of_attn, of_value = (int(np.frexp(np.abs(heads).max())[1]) for heads in (attn, value))
    attn, value = np.ldexp(attn, -of_attn), np.ldexp(value, -of_value)
    if layer.bias:
        # The constant of the outputs belongs to no head.
        value[:, -1] = 0.0

    def outputs(attn: Matrix, value: Matrix) -> Matrix:
        heads = SoftmaxAttention(np.ldexp(attn, of_attn), value, layer.mode, layer.bias)
        return heads._rows(batch)

    queries = np.concatenate([*attending_queries(layer, batch)])
    others = chain(mirrored(attn, value, ALIKE), rearranged(attn, value, queries, ALIKE))
    findings: dict[str, HeadFinding] = {}
    unexamined: tuple[int, ...] = ()
    here: Matrix | None = None
    for count, other in enumerate(others):
        if isinstance(other, Unexamined) or count >= MOST_TRIED:
            unexamined = other.heads
        elif other.name not in findings:
            here = outputs(attn, value) if here is None else here
            there = outputs(other.attn, other.value)
            if np.abs(there - here).max() <= SAME * np.abs(here).max():
                heads = sorted(other.heads)
                sentence = SENTENCES[other.name].format(heads=heads)
                findings[other.name] = HeadFinding(other.name, sentence, tuple(heads))
    return list(findings.values()), unexamined
