"""How often a learned Turing machine writes a wrong token, and how often a whole wrong history.

[yau2024: Lemma C.5], with its constants.  Let c be the most tokens of a history of Phi steps, and
W the tokens of a history, each predicted from the right ones before it, that are rounded wrongly.
A free run differs from the history if and only if W >= 1: up to its first wrong token it has
written the right ones.  So

    P(a free run differs) = P(W >= 1) <= E W <= c e,        e = E W / E(tokens of a history).

A token is rounded wrongly only if some coordinate is at least 1/2 away, so that its squared error
is at least 1/4: e <= 4 E |y' - y|^2 by Markov's inequality, and P <= 4 c E |y' - y|^2.  If every
token held one value and the largest won, as in [yau2024: Definition G.2], two coordinates would
have to be wrong by 1/2 together, and 2 would do.  The lemma says O(epsilon Phi): that is so with
Phi the tokens of Definition C.1; a step of a Turing machine is several tokens, two in our
construction, a whole tape in the paper's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyattn.programs import Trace, traces
from polyattn.programs.language.program import Program
from polyattn.programs.learning.coefficients import LearnedCoefficients
from polyattn.programs.traces import TraceRows
from polyattn_papers.reproduction import Row

#: 1 / (1/2)^2: a token that is rounded wrongly has at least this part of squared error.
MARKOV = 4.0


def most_tokens(steps: int) -> int:
    """c, the most tokens that ``universal_turing_machine`` writes for so many steps."""
    return 1 + 2 * steps


def measure_histories(
    program: Program, learned: LearnedCoefficients, steps: int, n_fresh: int, seed: Sequence[int]
) -> Row:
    """Errors on fresh machines for ``steps`` steps: of tokens, of one sample, of free runs.

    ``token_error`` (e) and ``squared_error`` are of one sample, each token predicted from the
    right ones before it; ``differ``, the share of free runs that differ, is of another.
    """
    forced, free = (
        traces(program, n_fresh, np.random.default_rng([*seed, steps, part]), steps=(steps, steps))
        for part in range(2)
    )
    right = learned.right(forced)
    wrong = [int(np.sum(~each)) for each in right]
    rows = TraceRows.joined([TraceRows.of(trace) for trace in forced])
    missed = learned.predict(rows.grams, rows.queries) - rows.targets
    token_error = sum(wrong) / len(rows.targets)
    return {
        "steps": steps,
        "histories": n_fresh,
        "squared_error": float(np.mean(np.sum(missed**2, axis=1))),
        "token_error": token_error,
        "forced_differ": float(np.mean(np.array(wrong) > 0)),
        "differ": float(np.mean([differs(learned, trace) for trace in free])),
        "bound": most_tokens(steps) * token_error,
    }


def differs(learned: LearnedCoefficients, trace: Trace) -> bool:
    """Whether a free run, which goes on from its own tokens, writes others than the trace."""
    schema, predictor = learned.schema, learned.predictor()
    predictor.start([schema.decode(row) for row in trace.prompt])
    # Up to the first difference: what comes after it may grow beyond all bounds.
    return any(predictor.next_token() != schema.decode(row) for row in trace.completion)
