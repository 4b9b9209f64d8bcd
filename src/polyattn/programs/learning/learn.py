"""learn: a program from traces alone."""

from __future__ import annotations

from collections.abc import Iterable
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

# The keywords of each method, as they are unless given.
DEFAULTS: dict[str, dict[str, Any]] = {
    RULES: learn_rules.__kwdefaults__ or {},
    COEFFICIENTS: learn_coefficients.__kwdefaults__ or {},
}


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
    terms; coefficients only claim to fit their traces, and their certificate says where that
    determines what they do.
    """
    if not isinstance(schema, Schema):
        raise InvalidType(f"schema must be a Schema; got {type(schema).__name__}.")
    require_choice("method", method, METHODS)
    given = {
        "max_offset": max_offset, "max_terms": max_terms, "n_folds": n_folds, "step": step,
        "ridge": ridge,
    }  # fmt: skip
    for name, value in given.items():
        if name in DEFAULTS[method]:
            continue
        (default,) = (each[name] for each in DEFAULTS.values() if name in each)
        if type(value) is not type(default) or value != default:
            raise InvalidType(
                f"method={method!r} has the keywords {', '.join(DEFAULTS[method])}; got {name}."
            )
    listed = list(require_traces("traces", traces, schema, any_size=method == RULES))
    if method == COEFFICIENTS:
        return learn_coefficients(schema, listed, ridge=ridge)
    return learn_rules(
        schema, listed, max_offset=max_offset, max_terms=max_terms, n_folds=n_folds, step=step
    )
