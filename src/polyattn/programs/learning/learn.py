"""learn: a program from traces alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from polyattn.errors import InvalidInput, InvalidType, require_flag
from polyattn.numerics.parallel import single_threaded_blas
from polyattn.programs.language.schema import Schema
from polyattn.programs.learning.checking import require_options, require_traces
from polyattn.programs.learning.learned import Learned
from polyattn.programs.learning.learned_least_norm import LearnedLeastNorm
from polyattn.programs.learning.learned_tied import LearnedTied
from polyattn.programs.learning.learned_untied import LearnedUntied
from polyattn.programs.learning.tied.learn_tied import learn_tied
from polyattn.programs.learning.tied.least_norm import learn_least_norm
from polyattn.programs.learning.untied.learn_untied import learn_untied
from polyattn.programs.traces import Trace


@single_threaded_blas()
def learn(
    schema: Schema,
    traces: Iterable[Trace],
    tied: bool = True,
    sparse: bool = True,
    **options: Any,
) -> Learned:
    """Learn a program from traces: what was written, token by token, and nothing else.

    Parameters
    ----------
    schema : Schema
        What the tokens mean, how outputs are rounded, and when to stop.
    traces : iterable of Trace
        With ``tied=True`` they may be of several sizes.
    tied : bool
        True: coefficients depend on the relations of symbols alone; a few terms are chosen, as
        many as predict left-out traces, and read back as a program that can be resized.
        False: every coefficient on its own, least squares of smallest norm [yau2024: Algorithm 1].
    sparse : bool
        Of tied learning: False keeps all relations, with the coefficients of smallest norm.
    options
        Tied: ``max_offset`` (the most steps that a term may go on a line or circle),
        ``n_folds``; sparse: ``max_terms`` (for one attribute), ``step`` (weights are its
        multiples); not sparse: ``ridge``.
        Untied: ``ridge``, "auto" or a number.

    Returns
    -------
    Learned
        ``run``, ``layer``, ``terms``, ``outcome``, ``certificate``, ``resize``.

    Guarantee: nothing of a compiled program is looked at.  ``outcome`` claims success for a tied
    program only if every trace was predicted exactly by terms chosen without it, and always the
    same terms; an untied one only claims to fit its traces, and its certificate says where that
    determines what it does.
    """
    if not isinstance(schema, Schema):
        raise InvalidType(f"schema must be a Schema; got {type(schema).__name__}.")
    tied, sparse = require_flag("tied", tied), require_flag("sparse", sparse)
    require_options(tied, sparse, options)
    listed = list(require_traces("traces", traces, schema, any_size=tied))
    if not listed:
        raise InvalidInput("learning needs at least one trace; got none.")
    if not tied:
        return LearnedUntied(schema, learn_untied(listed, schema=schema, **options), listed)
    noisy = any(trace.labels is not None for trace in listed)
    labels = [trace.targets for trace in listed] if noisy else None
    if sparse:
        return LearnedTied(schema, learn_tied(schema, listed, labels=labels, **options))
    return LearnedLeastNorm(schema, learn_least_norm(schema, listed, labels=labels, **options))
