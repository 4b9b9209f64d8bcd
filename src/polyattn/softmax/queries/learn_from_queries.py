"""learn_from_queries: a softmax attention layer from a black box that answers chosen inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import require_choice, require_flag, require_integer
from polyattn.numerics.random_state import RandomState, require_generator
from polyattn.outcome import Outcome
from polyattn.sequences import MODES
from polyattn.softmax.queries.findings import QueryFindings, assemble, standard_errors
from polyattn.softmax.queries.heads_by_copies import Places, heads_by_copies, measure_places
from polyattn.softmax.queries.heads_by_pairs import heads_by_pairs
from polyattn.softmax.queries.of_module import as_oracle
from polyattn.softmax.queries.oracle import Oracle, measure_sum, require_linear
from polyattn.softmax.queries.outcomes import (
    QueryName,
    Stopped,
    concluded,
    unfinished,
    with_clipping,
)
from polyattn.softmax.queries.pairs import LIMIT, Pairs, calibrate
from polyattn.softmax.queries.precision import FORMATS
from polyattn.softmax.queries.result import QueryResult
from polyattn.softmax.queries.symmetry import require_symmetry
from polyattn.softmax.queries.validate import validate
from polyattn.softmax.recorder import Callback, OutOfTime, end_after, until

# Layers that are right but for precision before that is accepted as the outcome.
MOST_CLOSE = 2

# Random first differences that are tried in each strategy.
N_ATTEMPTS = 2

# Heads that copies of tokens can separate in float64.
MOST_BY_COPIES = 6


def learn_from_queries(
    oracle: Callable[[NDArray[np.float64]], Any],
    n_dims: int | None = None,
    n_heads: int | str | None = None,
    bias: bool = False,
    max_queries: int | None = None,
    random_state: RandomState = 0,
    batch_size: int = 1024,
    mode: str = "auto",
    callback: Callback | None = None,
    max_seconds: float | None = None,
) -> QueryResult:
    """Recover a softmax attention layer from its answers to chosen sequences.

        F(X) = sum_i softmax(X A_i X^T) X V_i

    One-token sequences give S = sum_i V_i.  Sequences [x' + delta, x'] give, at their last row,
    x' S + sum_i sigmoid(x' A_i delta) delta V_i: heads are separated for one delta and followed to
    d of them, or by copies of tokens where outputs are few: docs/derivations/softmax_queries.md.

    Parameters
    ----------
    oracle : callable (B, n, d) -> (B, n, e), or torch module
        A full or a causal layer; heads are read from the last row, and the mode from the others.
        Of a module a copy is queried, in float64 and evaluation mode: ``nn.MultiheadAttention``
        as self-attention, of an ``nn.TransformerEncoderLayer`` its attention, any other called
        with one tensor.
    n_dims : int, optional
        d, the coordinates of a token; needed where the oracle does not say it.
    n_heads : int, None or "auto"
        Number of heads, if known.  It is found in any case; another one is an outcome of its own.
    bias : bool
        The layer has a constant coordinate 1 beside each token.  The last column of attn is then
        invisible and set to zero; of the last rows of value only the sum is visible, and every
        head gets an equal share.
    max_queries : int, optional
        Budget of sequences; when it does not suffice the outcome is "budget", with what was
        learned.
    random_state : int, Generator or None
        Decides all queries.
    batch_size : int
        Most sequences of one call of the oracle.
    mode : "auto" | "full" | "causal" | "last"
        Of the layer that is returned; the heads are the same.  ``auto``: the one in which the layer
        answers the other rows of held-out sequences, and ``last`` where neither ``full`` nor
        ``causal`` does, or the run ended before them.  Modules of ``to_torch`` have their own.
        Where the other rows are not those of the mode, the outcome is "other_rows_differ"; in mode
        ``last`` they are not looked at.
    callback : callable, optional
        Receives (phase, number of heads so far, number of queries) after every call of the oracle.
    max_seconds : float, optional
        After so long the outcome is "out_of_time", with what was learned.  A call of the oracle
        that has begun is waited for.

    An interrupt (Ctrl-C, SIGINT) ends the run with the best layer so far.

    Returns
    -------
    QueryResult

    Guarantee: ``recovered`` means that one-token answers are linear up to rounding (what is left
    is rough and does not grow with the tokens) and depend on no other query, that fresh random
    sequences of lengths 2 to 9 in three sizes agreed up to 1e-7 of the effect of attention, or up
    to what measured noise and error bars explain (in modes full and causal the other rows, too, up
    to a few times that), and that error bars of attn and value are at most 1.5e-4 of every head;
    "recovered_to_precision" that they are at most 0.1 where answers are rounded.
    Identifiable, and so recoverable, are the A_i and V_i up to the order of heads, heads with
    equal A_i merged, heads with V_i = 0 left out.

    Cost: about d (D + H + 6) queries of two tokens with D = d (+ 1 with biases), and at most about
    (r + 12)(D + 2 H + 12) + d (r + H + 6) when the A_i have rank r; two to three times as many
    for answers of float32, more for rougher ones; with fewer outputs than heads
    1.3 d H (D + e) / e queries of 48 tokens.
    Memory: one batch of queries and O(d (D + e) H) for the answer.
    """
    require_choice("mode", mode, ("auto", *MODES))
    oracle, n_dims, mode = as_oracle(oracle, n_dims, mode)
    counted = n_heads is None or (isinstance(n_heads, str) and n_heads == "auto")
    given = None if counted else require_integer("n_heads", n_heads)
    budget = inf if max_queries is None else require_integer("max_queries", max_queries)
    rng, end = require_generator(random_state), end_after(max_seconds)
    bias = require_flag("bias", bias)
    box = Oracle(oracle, n_dims, budget, require_integer("batch_size", batch_size))
    findings = QueryFindings(box, bias, mode)
    if callback is not None:
        box.on_answers = lambda: callback(
            findings.recorder.present, findings.n_heads, float(box.n_queries)
        )
    try:
        error: BaseException | None = None
        try:
            with until(end):
                outcome = _learn(findings, given, rng)
        except Stopped as stop:
            outcome, error = stop.outcome, stop.__cause__
        except OutOfTime:
            outcome = unfinished("out_of_time", findings, given)
        return _result(findings, outcome, error)
    except KeyboardInterrupt as interruption:
        outcome = unfinished("interrupted", findings, given)
        return _result(findings, outcome, interruption)


def _result(
    findings: QueryFindings, outcome: Outcome[QueryName], error: BaseException | None
) -> QueryResult:
    """Everything that is known, whatever ended the run."""
    layer, best = assemble(findings, findings.settled, findings.layer_mode), findings.best
    bars = (None, None) if best is None or best.errors is None else best.errors
    if bars[0] is not None:
        bars = findings.oracle.restored_errors(*bars)
    return QueryResult(
        layer=None if layer is None else findings.oracle.restored(layer),
        n_queries=findings.oracle.n_queries,
        outcome=with_clipping(outcome, findings.oracle.bound),
        noise=None if findings.total is None else findings.total.noise_std,
        phases=tuple(findings.recorder.phases),
        error=error,
        attn_error=bars[0],
        value_error=bars[1],
        **{name: getattr(best, name, None) for name in ("validation_error", "deviation", "doubt")},
    )


def _learn(
    findings: QueryFindings, n_heads: int | None, rng: np.random.Generator
) -> Outcome[QueryName]:
    """The phases in order: sum of values, sizes, heads by some strategy, held-out check."""
    pairs = _sized(findings, rng)
    n_close = 0
    for find_heads in _strategies(pairs, findings, n_heads):
        findings.begin()
        try:
            layer = assemble(findings, findings.heads, "last") if find_heads() else None
        except np.linalg.LinAlgError as failure:
            findings.recorder.present = "numerical failure"
            findings.record(reason=str(failure))
            continue
        if layer is None:
            continue
        findings.recorder.present = "held-out check"
        errors = standard_errors(findings, findings.heads)
        check = validate(pairs, layer, findings.heads, errors)
        measured = ("deviation", "allowed", "doubt", "validation_error")
        figures = {name: getattr(check, name) for name in measured}
        findings.record(**figures, other_rows_as_in=list(check.modes) or "neither mode")
        # One that passed goes first: a smaller deviation may come with more doubt about heads.
        best = findings.best
        if best is None or check.passed or check.deviation < best.deviation:
            findings.best = check
        n_close += check.close
        if check.passed or n_close == MOST_CLOSE:
            break
    if findings.best is None:
        known = f"{len(findings.heads)} differences" if findings.heads else "only the sum of values"
        raise Stopped("not_recovered", f"The heads could not be separated ({known} solved).")
    return concluded(findings.best, findings, n_heads)


def _sized(findings: QueryFindings, rng: np.random.Generator) -> Pairs:
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
    if pairs.flat:
        require_symmetry(pairs)
    if pairs.largest_tried is not None:
        findings.no_effect_up_to = 2.0**pairs.largest_tried
    return pairs


def _begin(findings: QueryFindings, rng: np.random.Generator) -> Pairs:
    """S, b and how exact the answers are, by one-token sequences; then sizes for the logits."""
    findings.recorder.present = "sum of values"
    findings.total = total = measure_sum(findings.oracle, findings.bias, rng)
    findings.record(
        relative_noise=total.noise, repeat_error=total.repeat_error, answers=FORMATS[total.bits]
    )
    findings.recorder.present = "sizes"
    require_linear(findings.oracle, total, rng)
    pairs = Pairs(findings.oracle, findings.bias, total, rng)
    calibrate(pairs)
    findings.record(point=pairs.point_size, delta=pairs.delta_size, attention=not pairs.flat)
    return pairs


def _strategies(
    pairs: Pairs, findings: QueryFindings, n_heads: int | None
) -> Iterator[Callable[[], bool]]:
    """Functions that add heads to ``findings`` and return whether all differences were solved.

    The next one is called only when those before it did not pass the held-out check: pairs of
    tokens first, then copies, with ``n_heads`` if it is known and then with ever more heads.
    """
    if pairs.flat:
        # Attention without effect is one head that attends to all tokens alike.
        yield lambda: True
        return
    for attempt in range(N_ATTEMPTS):
        yield partial(heads_by_pairs, pairs, findings)
        if attempt == 0 and not (findings.best and findings.best.close):
            findings.recorder.present = "forwards and backwards"
            require_symmetry(pairs)
            findings.record()
    measured: list[Places] = []
    numbers = range(findings.n_independent, MOST_BY_COPIES + 1)
    for number in sorted(numbers, key=lambda number: (number != n_heads, number)):
        for attempt in range(N_ATTEMPTS):
            findings.recorder.present = "copies"
            if attempt == len(measured):
                measured.append(measure_places(pairs))
            separated = measured[attempt].separated(pairs, number)
            if separated is None:
                break
            yield partial(heads_by_copies, pairs, *separated, findings)
