"""learn_softmax: the heads of a softmax attention layer from random examples [chen2024].

check arguments → prepare → hold out → search (moments, growth, sculpt; as many heads as needed),
chosen by most of what was held out → what is redundant or invisible goes → judge on the rest →
say what was found.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from polyattn.errors import (
    require_callable,
    require_choice,
    require_flag,
    require_integer,
    require_number,
)
from polyattn.model import SoftmaxAttention
from polyattn.numerics.parallel import single_threaded_blas
from polyattn.numerics.random_state import RandomState, require_generator
from polyattn.sequences import MODES, SequenceBatch, Sequences, as_batch, require_aligned
from polyattn.softmax.arguments import (
    METHODS,
    MOST_HEADS,
    check_arguments,
    check_polish,
    require_examples,
    rounding_of,
)
from polyattn.softmax.examples import Examples, ExampleUnits, prepare
from polyattn.softmax.find_heads import find_heads
from polyattn.softmax.identifiability.visible import hidden_directions
from polyattn.softmax.judging.alternatives import rival_layer, share_of_constant
from polyattn.softmax.judging.judge import Judge
from polyattn.softmax.judging.uncertainty import Uncertainty, open_on_generic_inputs
from polyattn.softmax.methods import Found, Search
from polyattn.softmax.other_readings import hint_of
from polyattn.softmax.outcomes import CONVENTION, Stop, describe, doubt_of, stopped
from polyattn.softmax.polish import project
from polyattn.softmax.recorder import Callback, OutOfTime, Recorder, end_after, until
from polyattn.softmax.result import LearnedSoftmax
from polyattn.targets import Targets, as_targets


def learn_softmax(
    X: Sequences,
    Y: Targets | None = None,
    n_heads: int | str | None = None,
    method: str = "auto",
    random_state: RandomState = 0,
    *,
    mode: str = "full",
    bias: bool = False,
    polish: bool = True,
    noise: float | None = None,
    max_heads: int | None = None,
    max_seconds: float | None = None,
    callback: Callback | None = None,
) -> LearnedSoftmax:
    """Recover attn and value of Y = sum_h softmax(X A_h X^T) X V_h, up to the order of heads.

    Parameters
    ----------
    X : array (N, n, d), list of arrays (n_i, d), or SequenceBatch
        Tokens that vary independently make it easy: Boolean, Gaussian, any centred ones.
    Y : array (N, n, e) (mode ``last``: (N, e)), or list of arrays
    n_heads : int, "auto" or None
        With "auto", as with None, the data decide: the fewest that explain what is held out.
    method : "auto" | "moments" | "sculpt"
        ``moments``: moment initialiser, Levenberg–Marquardt, growth by splitting.  ``sculpt``:
        the six phases of the paper, then Levenberg–Marquardt from where they end.  ``auto``:
        moments, then sculpt where that fails.
    random_state : int, Generator or None
        Decides the order of the examples and all starts.
    mode : "full" | "causal" | "last"
    bias : bool
        The layer sees a constant coordinate 1 beside each token, as one with biases does.  The
        last column of attn is then invisible and set to zero; of the last rows of value only the
        sum can be seen, and every head gets an equal share.
    polish : bool
        False: the heads of the method alone, ``sculpt`` or ``moments`` with its number of heads
        given, without any descent over all of attn; values are those of regression.
    noise : float, optional
        Standard deviation of the targets' errors, in their units; estimated and tested when not
        given, and when residuals are smaller than it.
    max_heads : int, optional
        The most heads to look for when their number is not given.
    max_seconds : float, optional
        Stop after about this time with the best layer so far; an interrupt does the same.
    callback : callable, optional
        Receives (phase, number of heads, relative error) after every step.

    Returns
    -------
    LearnedSoftmax
        ``.layer``, ``.outcome`` (named "recovered" only when the held-out check passed, the
        examples determine all of every head, and no other signs or pairings of heads explain
        them; with ``bias`` up to what no input shows), ``.validation_error``, ``.phases``, error
        bars.

    Raises OutOfRange where float64 cannot hold the heads: attn is of the size of one over the
    square of the tokens, value of that of the targets over the tokens.

    Guarantee: none on success – learning parities of s bits is a special case with s heads – but
    failure is reported: see ``judging/judge.py`` for what "recovered" rests on.
    """
    method, mode = require_choice("method", method, METHODS), require_choice("mode", mode, MODES)
    bias, polish = require_flag("bias", bias), require_flag("polish", polish)
    counted = n_heads is None or (isinstance(n_heads, str) and n_heads == "auto")
    given = None if counted else require_integer("n_heads", n_heads)
    check_polish(polish, method, given)
    most_heads = MOST_HEADS if max_heads is None else require_integer("max_heads", max_heads)
    require_aligned(X, Y)
    wanted = require_examples(X, Y)
    batch = as_batch(X)
    rows = as_targets(wanted, batch, mode)
    n_held_out, n_supported, n_possible = check_arguments(batch, rows, bias, given or 1)
    noise = None if noise is None else require_number("noise", noise)
    rng = require_generator(random_state)
    require_callable("callback", callback)
    end, recorder = end_after(max_seconds), Recorder(callback)
    examples, units = prepare(batch, rows, mode, rng, bias)
    held_out, training = examples.split(sum(n_held_out))
    # What chose among heads and methods is no judge of the choice.
    choosing, judging = held_out.split(n_held_out[0])
    judge = Judge(training, choosing, rounding_of(rows), units.scaled_noise(noise))
    search = Search(judge, recorder, rng, method, polish)
    # One head that attends to everything alike: what is known before any search.
    best = project(training, np.zeros((1, training.width, training.width)))
    why: Stop | None = None
    with single_threaded_blas():
        try:
            with until(end):
                recorder(best)
                found = find_heads(search, given, n_supported, min(most_heads, n_possible))
        except (KeyboardInterrupt, OutOfTime) as stop:
            why = "out_of_time" if isinstance(stop, OutOfTime) else "interrupted"
            found = search.judged(recorder.best or best, recorder.best_phase)
        found = _judged_anew(found, replace(judge, held_out=judging))
        bars = judge.error_bars(found.projection, found.fit)
        certain = found.fit.explained and found.fit.well_determined(bars)
        hint = ""
        if polish and why is None and not certain:
            with until(end):
                hint = hint_of(search, found, units, mode, given)
        return _result(found, bars, search, units, batch, mode, why, hint, judging)


def _judged_anew(found: Found, judge: Judge) -> Found:
    """What was found with its error on examples that chose nothing; they must agree, too."""
    before, fit = found.fit, judge.fit(found.projection)
    if not before.explained:
        return replace(found, fit=replace(before, validation_error=fit.validation_error))
    if fit.kind != before.kind:
        fit = replace(fit, kind="", failed=fit.failed or ("generalises",))
    return replace(found, fit=replace(fit, all_needed=before.all_needed))


def _result(
    found: Found,
    bars: Uncertainty,
    search: Search,
    units: ExampleUnits,
    batch: SequenceBatch,
    mode: str,
    stopped_by: Stop | None,
    hint: str,
    judging: Examples,
) -> LearnedSoftmax:
    """The sentence, and everything in the units of the data."""
    judge, projection, fit = search.judge, found.projection, found.fit
    bias = judge.training.bias
    rival, unexamined = rival_layer(judge, projection, bars) if fit.explained else (None, ())
    layer = SoftmaxAttention(*units.heads(projection.attn, projection.value), mode, bias)
    gaps = hidden_directions(layer, batch) if bars.n_open else []
    # What was found of heads one after the other is said once.
    notes = tuple(dict.fromkeys((*found.notes, *(gap.sentence for gap in gaps))))
    equations = judge.count(found.n_heads, fit.sigma)
    redundant = bars.n_open > 0 and open_on_generic_inputs(projection, bias)
    doubt = doubt_of(fit, bars, equations, redundant, unexamined)
    share = 0.0 if fit.explained or bias else share_of_constant(judge.training, projection)
    if bias and fit.explained:
        notes = (*notes, CONVENTION)
    outcome = describe(
        fit, bars, judging.n_different, notes, rival, doubt, share, hint, polished=search.polished
    )
    bars = bars if rival is None else bars.opened(rival.attn, rival.value)
    attn_std, value_std = units.deviations(bars.attn, bars.value)
    # That residuals are noise is settled only at the end of the search.
    if stopped_by and (fit.noisy or outcome.name != "recovered"):
        outcome = stopped(stopped_by, fit.validation_error, projection.n_heads, share)
    return LearnedSoftmax(
        layer=layer,
        outcome=outcome,
        validation_error=fit.validation_error,
        training_error=projection.error,
        noise=units.noise(fit.sigma),
        method=found.method,
        n_training=len(judge.training),
        n_held_out=len(judge.held_out) + len(judging),
        attn_std=attn_std,
        value_std=value_std,
        attn_error=bars.attn_error,
        value_error=bars.value_error,
        phases=tuple(search.recorder.phases),
    )
