"""learn: a program from traces alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, Literal, overload

from polyattn.errors import InvalidType, require_choice
from polyattn.numerics.parallel import single_threaded_blas
from polyattn.programs.language.schema import Schema
from polyattn.programs.learning.coefficients import LearnedCoefficients, learn_coefficients
from polyattn.programs.learning.rules.learn_rules import learn_rules
from polyattn.programs.learning.rules.learned_rules import LearnedRules
from polyattn.programs.learning.training_traces import require_traces
from polyattn.programs.traces import Trace

RULES, COEFFICIENTS = METHODS = ("rules", "coefficients")

# The keywords that only one method has.
KEYWORDS = {RULES: ("max_offset", "max_terms", "n_folds", "step"), COEFFICIENTS: ("ridge",)}


def _with_own_keywords(function: Callable[..., Any]) -> Any:
    """The function, refusing keywords of the other method, at their default values, too."""

    @wraps(function)
    def checked(*args: Any, **keywords: Any) -> Any:
        given = args[2] if len(args) > 2 else keywords.get("method", RULES)
        method = require_choice("method", given, METHODS)
        foreign = KEYWORDS[RULES if method == COEFFICIENTS else COEFFICIENTS]
        for name in (each for each in keywords if each in foreign):
            own = ", ".join(KEYWORDS[method])
            raise InvalidType(f"method={method!r} has the keywords {own}; got {name}.")
        return function(*args, **keywords)

    return checked


@overload
def learn(
    schema: Schema,
    traces: Iterable[Trace],
    method: Literal["rules"] = ...,
    *,
    max_offset: int = ...,
    max_terms: int = ...,
    n_folds: int = ...,
    step: float | None = ...,
) -> LearnedRules: ...


@overload
def learn(
    schema: Schema,
    traces: Iterable[Trace],
    method: Literal["coefficients"],
    *,
    ridge: float | str = ...,
) -> LearnedCoefficients: ...


@overload
def learn(
    schema: Schema, traces: Iterable[Trace], method: str
) -> LearnedRules | LearnedCoefficients: ...


@_with_own_keywords
@single_threaded_blas()
def learn(
    schema: Schema,
    traces: Iterable[Trace],
    method: str = RULES,
    *,
    max_offset: int = 3,
    max_terms: int = 10,
    n_folds: int = 10,
    step: float | None = 0.5,
    ridge: float | str = "auto",
) -> LearnedRules | LearnedCoefficients:
    """Learn a program from traces: what was written, token by token, and nothing else.

    Parameters
    ----------
    schema : Schema
        What the tokens mean, how outputs are rounded, and when to stop.
    traces : iterable of Trace
        For rules they may be of several sizes.
    method : "rules" | "coefficients"
        "rules": coefficients depend on the relations of symbols alone; a few terms are chosen, as
        many as predict left-out traces, and read back as a program that can be resized.
        "coefficients": each on its own, least squares of smallest norm [yau2024: Algorithm 1].
    max_offset : int
        Of rules: the most steps that a term may go on a line or circle.
    max_terms : int
        Of rules: the most terms for one attribute.
    n_folds : int
        Of rules: how many times they are learned without a part of the traces.
    step : float or None
        Of rules: weights are its multiples where the data allow; None leaves them as they are.
    ridge : "auto" or float
        Of coefficients: a penalty on all rows; "auto" needs none unless labels contradict each
        other.

    Returns
    -------
    LearnedRules or LearnedCoefficients
        ``run``, ``layer``, ``terms``, ``outcome``, ``certificate``, ``certify``, ``resize``;
        ``pa.save`` and ``pa.load`` keep it.

    Guarantee: nothing of a compiled program is looked at.  ``outcome`` claims success for rules
    only if every trace was predicted exactly by terms chosen without it, and always the same
    terms; coefficients only claim to fit their traces, each of which the others determine, and
    their certificate says where that determines what they do.
    """
    if not isinstance(schema, Schema):
        raise InvalidType(f"schema must be a Schema; got {type(schema).__name__}.")
    listed = list(require_traces("traces", traces, schema, any_size=method == RULES))
    if method == COEFFICIENTS:
        return learn_coefficients(schema, listed, ridge=ridge)
    return learn_rules(
        schema, listed, max_offset=max_offset, max_terms=max_terms, n_folds=n_folds, step=step
    )
