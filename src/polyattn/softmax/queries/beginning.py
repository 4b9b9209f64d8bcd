"""Pairs of tokens of sizes at which attention has an effect: what comes before heads.

S and b, how exact the answers are, what lies around attention, and sizes for logits of order one.
"""

from __future__ import annotations

import numpy as np

from polyattn.softmax.queries.findings import QueryFindings
from polyattn.softmax.queries.outcomes import Stopped
from polyattn.softmax.queries.pairs import NOISY, Pairs
from polyattn.softmax.queries.precision import FORMATS
from polyattn.softmax.queries.rotary import RATIO
from polyattn.softmax.queries.sizes import LIMIT, calibrate
from polyattn.softmax.queries.structure import look_for_normalisation
from polyattn.softmax.queries.sum_of_values import SumOfValues, measure_sum, require_linear
from polyattn.softmax.queries.symmetry import require_positions, require_symmetry
from polyattn.softmax.queries.turned_pairs import (
    BASE_SIZE,
    PARTS,
    RATIO_WITH_BIAS,
    WITH_NOISE,
    TurnedPairs,
)

# Size of tokens that fit whatever their direction, relative to the largest norm.
HALF = 0.45


def sized(findings: QueryFindings, rng: np.random.Generator) -> Pairs:
    """Pairs of tokens of sizes at which attention has an effect, if there is one at any."""
    pairs, box = _begin(findings, rng), findings.oracle
    if pairs.delta_size >= 2.0**LIMIT and not findings.bias:
        # Larger tokens from now on; the units of answers are chosen anew.
        box.token_exponent, box.answer_exponent = int(np.log2(pairs.delta_size)), None
        pairs = _begin(findings, rng)
    if pairs.delta_size > 2.0**LIMIT:
        raise Stopped(
            "saturated",
            f"Attention has an effect on tokens of size {pairs.delta_size:.0e} and more only, "
            "beside which the constant coordinate of bias=True is lost.",
        )
    if findings.structure.turns and not findings.structure.seen:
        require_positions(pairs)
    if pairs.flat or (findings.structure.turns and findings.structure.found is None):
        require_symmetry(pairs, findings.structure)
    if pairs.largest_tried is not None:
        findings.no_effect_up_to = 2.0**pairs.largest_tried
    return pairs


def _begin(findings: QueryFindings, rng: np.random.Generator) -> Pairs:
    """S, b and how exact the answers are, by one-token sequences; then sizes for the logits."""
    findings.recorder.present = "sum of values"
    if findings.structure.pending:
        look_for_normalisation(findings.oracle, findings.structure)
    try:
        findings.total = total = measure_sum(findings.oracle, findings.bias, rng)
        findings.record(
            relative_noise=total.noise, repeat_error=total.repeat_error, answers=FORMATS[total.bits]
        )
        findings.recorder.present = "sizes"
        require_linear(findings.oracle, total, rng)
    except Stopped as stop:
        if stop.outcome.name == "not_attention":
            look_for_normalisation(findings.oracle, findings.structure)
        raise
    pairs = _pairs(findings, total, rng)
    if np.isfinite(findings.oracle.token_limit) and not findings.structure.turns:
        # Tokens that may go both ways show it at any size, before sizes are chosen for one way.
        pairs.point_size = pairs.delta_size = HALF * findings.oracle.token_limit
        require_symmetry(pairs, findings.structure)
    calibrate(pairs)
    findings.record(point=pairs.point_size, delta=pairs.delta_size, attention=not pairs.flat)
    return pairs


def _pairs(findings: QueryFindings, total: SumOfValues, rng: np.random.Generator) -> Pairs:
    """Pairs of tokens, as positions and a largest norm of tokens require."""
    box, bias = findings.oracle, findings.bias
    if not findings.structure.turns:
        return Pairs(box, bias, total, rng)
    if np.isfinite(box.token_limit):
        parts = WITH_NOISE if total.noise > NOISY else PARTS
        return TurnedPairs(box, bias, total, rng, parts=parts, base_size=BASE_SIZE)
    if bias:
        return TurnedPairs(box, bias, total, rng, ratio=RATIO_WITH_BIAS)
    # Quadratic terms below the noise are small enough; larger tokens may overflow.
    ratio = float(2.0 ** np.ceil(np.log2(min(RATIO, 2 / np.sqrt(total.noise)))))
    return Pairs(box, bias, total, rng, ratio=ratio)
