"""learn_from_queries: a softmax attention layer from a black box that answers chosen inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import require_callable, require_choice, require_flag, require_integer
from polyattn.numerics.random_state import RandomState, require_generator
from polyattn.outcome import Outcome
from polyattn.sequences import MODES
from polyattn.softmax.queries.beginning import sized
from polyattn.softmax.queries.findings import QueryFindings, assemble, standard_errors
from polyattn.softmax.queries.heads_by_copies import Places, heads_by_copies, measure_places
from polyattn.softmax.queries.heads_by_pairs import heads_by_pairs
from polyattn.softmax.queries.of_module import as_oracle
from polyattn.softmax.queries.oracle import Oracle
from polyattn.softmax.queries.outcomes import (
    QueryName,
    Stopped,
    concluded,
    unfinished,
    with_clipping,
)
from polyattn.softmax.queries.pairs import NOISY, Pairs
from polyattn.softmax.queries.precision import ROUGH
from polyattn.softmax.queries.result import QueryResult
from polyattn.softmax.queries.rotary import NOT_TURNED, measure_turning
from polyattn.softmax.queries.structure import Restructured, Surroundings
from polyattn.softmax.queries.symmetry import require_symmetry
from polyattn.softmax.queries.turned_pairs import TurnedPairs
from polyattn.softmax.queries.validate import validate
from polyattn.softmax.recorder import Callback, OutOfTime, end_after, until

# Layers that are right but for precision before that is accepted as the outcome.
MOST_CLOSE = 2

# Random first differences that are tried in each strategy; starts from rough answers, or from pairs
# that positions turn, are less exact.
N_ATTEMPTS, N_MORE = 2, 6

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
    residual: bool | str = "auto",
    normalisation: str | None = "auto",
    rotary: bool | str | None = "auto",
    callback: Callback | None = None,
    max_seconds: float | None = None,
) -> QueryResult:
    """Recover a softmax attention layer from its answers to chosen sequences.

        F(X) = [X +] attention([norm](X)),      attention(X) = sum_i softmax(X A_i X^T) X V_i

    where A_i may depend on how far tokens are apart, as rotary positions turn them.

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
    residual : "auto", True or False
        Whether the oracle adds its input to attention.  ``auto``: it is found.
    normalisation : "auto", "layer_norm", "rms_norm" or None
        What happens to tokens before attention, with a positive eps, which is measured.  The layer
        then acts on normalised tokens, and ``predict`` of the result on tokens; a scale and a shift
        that follow the normalisation are part of the layer (a shift needs ``bias``).
    rotary : "auto", True or None
        Whether positions turn queries and keys; frequencies are found.  The layer then has
        ``frequencies``, ``query`` and ``key``.
        Where residual, normalisation or rotary are not what is found, the outcome is
        "other_structure".
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
    to what measured noise and error bars explain (in modes full and causal the other rows, and
    sequences of 64 and 256 tokens where the oracle answers them, up to ten times that; the outcome
    names the longest), and that error bars of attn and value are at most 1.5e-4 of every head;
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
    require_callable("callback", callback)
    box = Oracle(oracle, n_dims, budget, require_integer("batch_size", batch_size))
    around = Surroundings.required(residual, normalisation, rotary)
    findings = QueryFindings(box, bias, mode, structure=around)
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
    around = findings.structure
    bars: tuple[NDArray | None, NDArray | None] = (None, None)
    if best is not None and best.errors is not None:
        bars = around.outside_errors(*findings.oracle.restored_errors(*best.errors))
    return QueryResult(
        layer=None if layer is None else around.outside(findings.oracle.restored(layer)),
        residual=around.adds_input,
        normalisation=None if around.found is None else around.found.kind,
        eps=None if around.found is None else around.found.eps,
        n_queries=findings.oracle.n_queries,
        outcome=with_clipping(outcome, findings.oracle.raw.bound),
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
    """The attention alone, once it is known what lies around it; anew when more of that is."""
    n_dims = findings.oracle.n_dims
    while True:
        findings.structure.settle(findings.oracle, n_dims)
        try:
            return _learn_attention(findings, n_heads, rng)
        except Restructured as found:
            findings.restructure(found.structure)


def _learn_attention(
    findings: QueryFindings, n_heads: int | None, rng: np.random.Generator
) -> Outcome[QueryName]:
    """The phases in order: sum of values, sizes, heads by some strategy, held-out check."""
    pairs = sized(findings, rng)
    n_close = 0
    for find_heads in _strategies(pairs, findings, n_heads):
        findings.begin()
        try:
            found = find_heads()
            if found and findings.structure.turns:
                found = _measure_positions(pairs, findings)
            layer = assemble(findings, findings.heads, "last") if found else None
        except np.linalg.LinAlgError as failure:
            findings.recorder.present = "numerical failure"
            findings.record(reason=str(failure))
            continue
        if layer is None:
            continue
        findings.recorder.present = "held-out check"
        errors = standard_errors(findings, findings.heads)
        around = findings.turning, findings.structure.eps_error
        check = validate(pairs, layer, findings.heads, errors, *around)
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
    if findings.best is None and findings.turns_otherwise:
        # Beside large biases, and by noise, heads may have been separated wrongly.
        unsure = findings.bias or pairs.total.noise > NOISY
        raise Stopped("not_recovered" if unsure else "not_attention", NOT_TURNED)
    if findings.best is None:
        known = f"{len(findings.heads)} differences" if findings.heads else "only the sum of values"
        raise Stopped("not_recovered", f"The heads could not be separated ({known} solved).")
    return concluded(findings.best, findings, n_heads)


def _measure_positions(pairs: Pairs, findings: QueryFindings) -> bool:
    """Add planes and frequencies to ``findings``; False where positions do not turn heads."""
    findings.recorder.present = "positions"
    turning = findings.turning = measure_turning(pairs, findings.heads)
    findings.turns_otherwise = turning is None
    if turning is None:
        findings.record(turned=False)
        return False
    findings.record(n_planes=len(turning.frequencies), misfit=turning.doubt)
    return True


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
    more = isinstance(pairs, TurnedPairs) or pairs.total.noise > ROUGH
    for attempt in range(N_MORE if more else N_ATTEMPTS):
        yield partial(heads_by_pairs, pairs, findings)
        if isinstance(pairs, TurnedPairs):
            pairs.vary(attempt)
        elif attempt == 0 and not (findings.best and findings.best.close):
            findings.recorder.present = "forwards and backwards"
            require_symmetry(pairs, findings.structure)
            findings.record()
    if np.isfinite(findings.oracle.token_limit) or findings.structure.turns:
        # Copies may be too large, and stand at several positions.
        return
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
