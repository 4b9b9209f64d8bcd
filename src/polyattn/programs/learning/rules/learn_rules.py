"""learn_rules: from a few traces to a program of a few rules, which holds at all sizes.

One screen: facts of the traces, candidate rules for each kind that is written, the few that
explain it, and what was checked about them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from polyattn.errors import InvalidInput
from polyattn.programs.language.schema import Schema
from polyattn.programs.learning.rules.dictionary import dictionaries
from polyattn.programs.learning.rules.facts import facts_of
from polyattn.programs.learning.rules.folds import Selection, deal, mismatches_of, select
from polyattn.programs.learning.rules.layout import Layout
from polyattn.programs.learning.rules.learned import LearnedRules
from polyattn.programs.learning.rules.left_open import continued, find_rivals, probed, untested
from polyattn.programs.learning.rules.outcomes import LEARNED, RuleFindings, outcome_of
from polyattn.programs.learning.rules.rules import Rule, term_of
from polyattn.programs.traces import Trace

# Tokens that traces are continued by to look for rivals, at least; and how many rivals are named.
FEWEST_CONTINUED, MOST_RIVALS = 512, 3

# Histories that are written to look for rivals where no trace can be continued.
N_PROBES = 100


def learn_rules(
    schema: Schema,
    traces: Sequence[Trace],
    *,
    max_offset: int = 3,
    max_terms: int = 10,
    n_folds: int = 10,
    step: float | None = 0.5,
) -> LearnedRules:
    """Learn a program of few rules from traces.

    Parameters
    ----------
    schema : Schema
        What the terms are written for: the attributes of the traces, at any sizes.
    traces : sequence of Trace
        Of one size or of several; labels are learned instead of completions, where there are any.
    max_offset : int
        The most steps that a rule may go on a line or circle.
    max_terms : int
        The most rules for one kind of values.
    n_folds : int
        How many times the rules are learned without a part of the traces.
    step : float, optional
        Weights are multiples of it where the data allow; None leaves them as they are.

    Guarantee
    ---------
    If the outcome is ``learned``, every trace was predicted token by token, with rounding, by the
    very rules that are returned, chosen without it, each variable of a rule was seen to vary, and
    no rule that fits the traces as well would continue those that were cut off differently (or,
    where none was, write something else for random machines and inputs).

    Cost: O(products * candidate rules): seconds for a thousand rows.
    """
    if not traces:
        raise InvalidInput("learning needs at least one trace.")
    layout = Layout((schema, *(trace.schema for trace in traces)))
    facts = facts_of(layout, traces)
    candidates = dictionaries(facts, max_offset=max_offset)
    fold_of = deal([trace.n_rows for trace in traces], min(n_folds, len(traces)))
    selections = {
        kind: select(dictionary, fold_of, max_terms=max_terms, step=step)
        for kind, dictionary in candidates.items()
    }
    rules = tuple(
        (selection.dictionary.rules[at], float(weight))
        for selection in selections.values()
        for at, weight in zip(selection.choice.support, selection.choice.weights, strict=True)
    )
    gaps = tuple(
        f"in {term_of(rule, weight, layout, schema)}, {gap}"
        for rule, weight in rules
        for gap in untested(rule, facts, max_offset)
    )
    findings = RuleFindings(
        n_traces=len(traces),
        n_folds=len(np.unique(fold_of)),
        n_agreeing=_n_agreeing(selections),
        n_tokens=facts.n_rows,
        mismatches=mismatches_of(traces, layout, selections),
        gaps=gaps,
    )
    if outcome_of(findings).name == LEARNED:
        findings = replace(findings, rivals=_rivals(schema, layout, traces, rules, max_offset))
    n_candidates = sum(dictionary.n_rules for dictionary in candidates.values())
    terms = [term_of(rule, weight, layout, schema) for rule, weight in rules]
    return LearnedRules(schema, terms, traces, findings, n_candidates, max_offset)


def _rivals(
    schema: Schema,
    layout: Layout,
    traces: Sequence[Trace],
    rules: Sequence[tuple[Rule, float]],
    max_offset: int,
) -> tuple[str, ...]:
    """Pairs of rules that fit the traces alike and would continue them differently, in words."""
    n_rows = sum(trace.n_rows for trace in traces)
    terms = [[term_of(rule, w, layout, trace.schema) for rule, w in rules] for trace in traces]
    later = continued(traces, terms, max(n_rows, FEWEST_CONTINUED))
    if not later:
        later = probed(traces, terms[0], N_PROBES)
    if not later:
        return ()
    facts = facts_of(layout, [*traces, *later])
    found = find_rivals([rule for rule, _ in rules], facts, n_rows, max_offset)
    return tuple(
        f"{term_of(rule, 1.0, layout, schema)} or {term_of(rival, 1.0, layout, schema)}"
        for rule, rival in islice(found, MOST_RIVALS)
    )


def _n_agreeing(selections: dict[int, Selection]) -> int:
    """The folds that chose the rules that all traces chose, for every kind."""
    same = [
        [choice.program == selection.choice.program for choice in selection.fold_choices]
        for selection in selections.values()
    ]
    return int(np.all(same, axis=0).sum()) if same else 0
