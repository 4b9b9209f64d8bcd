"""learn_rules: from a few traces to a program of a few rules, which holds at all sizes.

Facts of the traces, candidate rules for each kind that is written, the few that explain it, and
what was checked about them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput, require_integer
from polyattn.programs.language.schema import Schema
from polyattn.programs.learning.rules.candidates import Dictionary, dictionaries
from polyattn.programs.learning.rules.facts import SchemaLayout, facts_of
from polyattn.programs.learning.rules.learned_rules import LearnedRules
from polyattn.programs.learning.rules.left_open import rivals, untested
from polyattn.programs.learning.rules.outcomes import Mismatch, RuleFindings, outcome_of
from polyattn.programs.learning.rules.pursuit import EXACT, Choice, ColumnMoments, best_choices
from polyattn.programs.learning.rules.rule import term_of
from polyattn.programs.traces import Trace


def learn_rules(
    schema: Schema,
    traces: Sequence[Trace],
    *,
    max_offset: int = 3,
    max_terms: int = 10,
    n_folds: int = 10,
    step: float | None = 0.5,
) -> LearnedRules:
    """Learn a program of few rules from traces, of one size or of several.

    The terms are written for ``schema``: the attributes of the traces, at any sizes.  Labels are
    learned instead of completions, where there are any.  Keywords are those of ``learn``.

    Guarantee: if the outcome is ``learned``, every trace was predicted token by token, with
    rounding, by the very rules that are returned, chosen without it, each variable of a rule was
    seen to vary, and no rule that fits the traces as well would continue those that were cut off
    differently (or, where none was, write something else for random machines and inputs).
    Cost: O(products * candidate rules): seconds for a thousand rows.
    """
    require_integer("max_offset", max_offset, 0)
    require_integer("max_terms", max_terms, 1)
    require_integer("n_folds", n_folds, 2)
    is_number = isinstance(step, Real) and not isinstance(step, bool)
    if step is not None and not (is_number and 0 < step < np.inf):
        raise InvalidInput(f"step must be a number > 0, or None; got {step!r}.")
    if not traces:
        raise InvalidInput("learning needs at least one trace; got none.")
    layout = SchemaLayout((schema, *(trace.schema for trace in traces)))
    facts = facts_of(layout, traces)
    candidates = dictionaries(facts, max_offset=max_offset)
    # Traces are dealt out to the folds in turn.
    fold_of = facts.trace_of % min(n_folds, len(traces))
    selections = {
        kind: _select(dictionary, fold_of, max_terms, step)
        for kind, dictionary in candidates.items()
    }
    rules = [
        (candidates[kind].rules[at], float(weight))
        for kind, selection in selections.items()
        for at, weight in zip(selection.choice.support, selection.choice.weights, strict=True)
    ]
    terms = [term_of(rule, weight, layout, schema) for rule, weight in rules]
    same = [
        [choice.program == selection.choice.program for choice in selection.fold_choices]
        for selection in selections.values()
    ]
    findings = RuleFindings(
        n_traces=len(traces),
        n_folds=len(np.unique(fold_of)),
        n_agreeing=int(np.all(same, axis=0).sum()) if same else 0,
        n_tokens=facts.n_rows,
        mismatches=_mismatches(traces, layout, selections),
        gaps=tuple(
            f"in {term}, {gap}"
            for term, (rule, _) in zip(terms, rules, strict=True)
            for gap in untested(rule, facts, max_offset)
        ),
    )
    if findings.mismatches and all(selection.exact for selection in selections.values()):
        findings = replace(findings, rivals=("more rules fit every trace",))
    elif outcome_of(findings).name == "learned":
        findings = replace(findings, rivals=rivals(layout, traces, rules, max_offset))
    n_candidates = sum(dictionary.n_rules for dictionary in candidates.values())
    return LearnedRules(schema, terms, traces, findings, n_candidates, max_offset)


# What one more rule gains on held-out traces must exceed so many standard errors of it.
STANDARD_ERRORS = 2.0


@dataclass(frozen=True, eq=False)
class Selection:
    """The rules chosen for one kind.

    choice : support, weights and residual on all traces
    held_out : array (n_rows, D), each row predicted by rules pursued without its fold
    fold_choices : the choice of each fold
    exact : whether this or another number of rules fits all traces
    """

    choice: Choice
    held_out: NDArray[np.float64]
    fold_choices: tuple[Choice, ...]
    exact: bool


def _select(
    dictionary: Dictionary, fold_of: NDArray[np.int64], max_terms: int, step: float | None
) -> Selection:
    """Pursue 0, 1, 2, ... rules without each fold; then on all, as many as did best.

    The number of rules that leaves the least held-out error is taken for all, and each fold is
    predicted by as many that were pursued without it.  Rows of one trace are never split: they
    share a machine.  The candidates themselves come from all traces.

    fold_of : array (n_rows,), the fold of each row

    Cost: one product X'X per fold, then O(folds * beam * max_terms^2 * n).
    """
    folds = np.unique(fold_of)
    of_equation = np.repeat(fold_of, dictionary.n_places)
    parts = []
    for fold in folds:
        own = np.flatnonzero(of_equation == fold)
        columns, wanted = dictionary.columns[own], dictionary.wanted[own]
        gram = (columns.T @ columns).toarray()
        parts.append(ColumnMoments(gram, columns.T @ wanted, float(wanted @ wanted)))
    total = ColumnMoments(
        np.sum([part.gram for part in parts], axis=0),
        np.sum([part.cross for part in parts], axis=0),
        sum(part.power for part in parts),
    )
    paths = [
        best_choices(total - part, dictionary, fold_of != fold, max_terms, step)
        for fold, part in zip(folds, parts, strict=True)
    ]
    full = best_choices(total, dictionary, np.ones(len(fold_of), dtype=bool), max_terms, step)
    # A path that ended sooner stays at its last choice.
    length = max(len(path) for path in (full, *paths))
    *paths, full = ([*path, *[path[-1]] * (length - len(path))] for path in (*paths, full))
    errors = [
        [part.residual(choice.support, choice.weights) for choice in path]
        for part, path in zip(parts, paths, strict=True)
    ]
    number = _fewest(np.array(errors), total.power)
    chosen = tuple(path[number] for path in paths)
    held_out = np.zeros(len(dictionary.wanted))
    for fold, choice in zip(folds, chosen, strict=True):
        own = of_equation == fold
        held_out[own] = (dictionary.columns[:, list(choice.support)] @ choice.weights)[own]
    exact = min(choice.residual for choice in full) <= EXACT * total.power
    return Selection(full[number], held_out.reshape(-1, dictionary.n_places), chosen, exact)


def _mismatches(
    traces: Sequence[Trace], layout: SchemaLayout, selections: dict[int, Selection]
) -> tuple[Mismatch, ...]:
    """Where rounded held-out predictions differ from the wanted tokens."""
    found, start = [], 0
    for number, trace in enumerate(traces):
        outputs = np.zeros(trace.completion.shape)
        for kind, selection in selections.items():
            at, places = layout.places(trace.schema, kind)
            outputs[:, at] = selection.held_out[start : start + trace.n_rows][:, places]
        wanted = np.asarray(trace.targets, dtype=float)
        wrong = trace.schema.round(outputs) != trace.schema.round(wanted)
        for name, block in trace.schema.blocks.items():
            tokens = np.flatnonzero(wrong[:, block].any(axis=1)).tolist()
            found += [Mismatch(number, token, name) for token in tokens]
        start += trace.n_rows
    return tuple(sorted(found, key=lambda each: (each.trace, each.token)))


def _fewest(errors: NDArray[np.float64], power: float) -> int:
    """The smallest number of rules whose held-out error (folds, numbers) is as good as the least.

    With exact data that is the least, up to rounding.  With noise it is within two standard errors
    of it, fold by fold: what one more rule gains must not be an accident of one fold.
    """
    total = errors.sum(axis=0)
    best = int(np.argmin(total))
    allowed = np.full(len(total), EXACT * power)
    if total[best] > EXACT * power and len(errors) > 1:
        behind = errors - errors[:, best : best + 1]
        allowed += STANDARD_ERRORS * np.sqrt(len(errors)) * behind.std(axis=0, ddof=1)
    return int(np.flatnonzero(total - total[best] <= allowed)[0])
