"""Whether an answer depends on its own sequence alone: on no other query, before or beside it.

A counter, a cache of keys or running statistics change answers from call to call, statistics of a
batch change them with what else is asked.  The same sequence is asked in a batch, alone, and at
the end of the run; noise differs within one call, too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.softmax.queries.oracle import Oracle
from polyattn.softmax.queries.outcomes import Stopped

# Sequences that are asked alone and again, and how many errors of rounding, as sums in another
# order cause them, their answers may differ by.
N_ALONE, ROUNDINGS = 2, 32.0

# Copies of a sequence in one call that show noise which comes now and then.
N_COPIES = 32


@dataclass(frozen=True)
class RepeatedQueries:
    """Sequences (P, n, d), their answers (P, e) at first, and by how much these may change."""

    sequences: NDArray[np.float64]
    answers: NDArray[np.float64]
    tolerance: float

    def require_same(self, oracle: Oracle) -> None:
        """Raise Stopped if the answers have changed.  Cost: P queries."""
        changed = float(np.abs(oracle(self.sequences) - self.answers).max())
        if changed > self.tolerance:
            raise Stopped(
                "stateful",
                "A query is answered otherwise than at the beginning of the run: answers depend on "
                f"earlier ones, by {_share(changed, self.answers):.1e} of their size.",
            )


def asked_in_company(
    oracle: Oracle, sequences: NDArray, repeat_error: float, rounding: float
) -> tuple[NDArray[np.float64], float, RepeatedQueries]:
    """Answers (B, e) of a batch, the rms difference of equal ones in it, and a probe for later.

    repeat_error : rms difference of answers of two calls;  rounding : relative, of an answer
    Raises Stopped where answers depend on other queries.
    Cost: B + 1 + N_ALONE queries, B + 1 + N_COPIES more to say which it is.
    """
    batch = np.concatenate([sequences, sequences[:1]])
    seen = oracle(batch)
    alone = np.concatenate([oracle(sequences[at : at + 1]) for at in range(N_ALONE)])
    within, between = np.abs(seen[-1] - seen[0]), np.abs(alone - seen[:N_ALONE])
    # By the size of many answers: one alone may be small by chance.
    steady = ROUNDINGS * rounding * float(np.abs(oracle.whole(batch[:, -1], seen)).max())
    # Noise differs within a call as it does between two.
    noise = 10 * max(float(within.max()), repeat_error if np.any(within) else 0.0)
    tolerance = max(steady, noise)
    if max(float(between.max()), repeat_error) > tolerance:
        require_no_noise(oracle, sequences, tolerance)
        again = np.abs(oracle(batch) - seen).max()
        by_batch = float(again) <= tolerance and repeat_error <= tolerance
        raise Stopped(
            "stateful",
            "The same sequence is answered otherwise "
            + (
                "alone than among others: answers depend on the batch"
                if by_batch
                else "in every call: answers depend on earlier queries"
            )
            + f", by {_share(max(float(between.max()), repeat_error), seen):.1e} of their size.",
        )
    probe = RepeatedQueries(sequences[:N_ALONE], seen[:N_ALONE], tolerance)
    return seen[:-1], float(np.sqrt(np.mean(within**2))), probe


def require_no_noise(oracle: Oracle, sequences: NDArray, tolerance: float) -> None:
    """Raise Stopped if equal sequences of one call have different answers: that is no state."""
    copies = oracle(np.repeat(sequences[:1], N_COPIES, axis=0))
    apart = float(np.abs(copies - copies[0]).max())
    if apart > tolerance:
        raise Stopped(
            "not_deterministic",
            "The same query has different answers now and then, also within one call: they differ "
            f"by {_share(apart, copies):.1e} of their size.",
        )


def _share(difference: float, answers: NDArray) -> float:
    return difference / (float(np.abs(answers).max()) or 1.0)
