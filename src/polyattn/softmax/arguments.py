"""What learning needs of its data, checked before anything is computed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.sequences import SequenceBatch, equal_sequences
from polyattn.softmax.examples import count_unknowns
from polyattn.sources.source import Source
from polyattn.targets import Targets

METHODS = ("auto", "moments", "sculpt")

# This share of the sequences is held out to choose by, and at least so many; and to judge by.
HELD_OUT, LEAST_HELD_OUT = 0.1, 5
JUDGING, LEAST_JUDGING = 0.03, 2

# Of fewer sequences training needs all it had: those that judge are taken from those that choose.
# Taken from training, 13 and 26 sequences lost two layers of 60 that were tried, and 24 one of six.
PLENTY = 50

# At least this many equations for each unknown, so that a fit says something.
LEAST_EQUATIONS = 1.2

# Entries of attn that can be unknown together: descent holds the square of this in memory.
MOST_UNKNOWNS = 1 << 14

# Heads that are looked for at most when their number is not given.
MOST_HEADS = 16


def require_examples(X: object, Y: Targets | None) -> Targets:
    """The targets; refused where they are missing, or X is a source, which holds its own."""
    if isinstance(X, Source):
        raise InvalidInput(
            "learn_softmax takes sequences X and targets Y as arrays, lists or a SequenceBatch; "
            "got a source. Every step of its search looks at all examples: read them into memory, "
            "and give both."
        )
    if Y is None:
        raise InvalidInput("learn_softmax needs targets Y beside the sequences X; got none.")
    return Y


def check_arguments(
    batch: SequenceBatch, rows: NDArray, bias: bool, least: int
) -> tuple[tuple[int, int], int, int]:
    """Refuse sequences with targets ``rows`` (n_rows, e) that do not show ``least`` heads.

    How many different sequences choose among heads, and judge; and for how many heads there are
    examples, and memory, enough.
    """
    if batch.lengths.max() < 2:
        raise InvalidInput(
            "all sequences have one token: the softmax of a single logit is 1 whatever the "
            "attention matrix is. Give sequences of at least two tokens; from single tokens "
            "linear regression finds the sum of the values, which is all that they show."
        )
    if len(batch) > 1 and np.all(batch.values == batch.values[0]):
        raise InvalidInput(
            "all tokens of X are equal: attention sees differences between tokens, and there "
            "are none. Give tokens that vary."
        )
    n_different = int(equal_sequences((batch, None)).max()) + 1
    n_held_out = max(LEAST_HELD_OUT, round(HELD_OUT * n_different))
    n_judging = max(LEAST_JUDGING, round(JUDGING * n_different))
    n_supported = _supported_heads(batch, rows, bias, (n_held_out, n_different), least)
    n_choosing = n_held_out if n_different >= PLENTY else n_held_out - n_judging
    per_head = (batch.n_dims + bias) ** 2
    unknowns = least * per_head
    if unknowns > MOST_UNKNOWNS:
        raise InvalidInput(
            f"attn would have {unknowns} unknown entries, and descent over them needs some "
            f"{24e-9 * unknowns**2:.0f} GB; up to {MOST_UNKNOWNS} are possible. Reduce the "
            "coordinates or the heads, or use learn_from_queries, which needs no descent over all."
        )
    if not np.any(rows):
        raise InvalidInput("Y is zero everywhere: every layer of zero values fits, none is found.")
    return (n_choosing, n_judging), n_supported, MOST_UNKNOWNS // per_head


def check_polish(polish: bool, method: str, n_heads: int | None) -> None:
    """Refuse ``polish=False`` where it has no meaning: without one method and its heads."""
    if polish:
        return
    if method == "auto":
        raise InvalidInput(
            "polish=False takes the heads of one method as they are, and method='auto' chooses by "
            "what descent makes of them; give method='sculpt' or method='moments'."
        )
    if n_heads is None:
        raise InvalidInput(
            "polish=False takes the heads of one method as they are, and heads are counted by "
            "descent; give n_heads."
        )


def rounding_of(rows: NDArray) -> float:
    """The relative rounding of targets: of float32 numbers it is 2^-24 in any dtype."""
    if rows.dtype.kind != "f":
        return 2.0**-53
    if rows.dtype.itemsize == 8:
        digits = np.frexp(rows)[0]
        single = np.array_equal(digits.astype(np.float32), digits)
        # Every number from 2**53 on is whole, so there that says nothing.
        whole = np.abs(rows).max() < 2.0**53 and np.all(rows == np.rint(rows))
        return 2.0**-24 if single and not whole else 2.0**-53
    return 2.0**-11 if rows.dtype == np.float16 else 2.0**-24


def _supported_heads(
    batch: SequenceBatch, rows: NDArray, bias: bool, held_out: tuple[int, int], least: int
) -> int:
    """For how many heads the training examples have equations enough; refused below ``least``.

    held_out : how many sequences are, of how many different ones
    """
    sizes = batch.n_dims + bias, rows.shape[1], bias
    n_held_out, n_different = held_out
    share = max(0.0, 1.0 - n_held_out / n_different) * (n_different / len(batch))
    shared = count_unknowns(0, *sizes)
    per_head = count_unknowns(1, *sizes) - shared
    equations = share * rows.size - LEAST_EQUATIONS * shared
    supported = int(equations / (LEAST_EQUATIONS * per_head))
    if supported >= least:
        return supported
    unknowns = count_unknowns(least, *sizes)
    per_sequence = rows.size / len(batch)
    training = int(np.ceil(LEAST_EQUATIONS * unknowns / per_sequence))
    needed = max(training + LEAST_HELD_OUT, int(np.ceil(training / (1 - HELD_OUT))) + 1)
    heads = "1 head has" if least == 1 else f"{least} heads have"
    raise InvalidInput(
        f"{n_different} {'' if n_different == len(batch) else 'different '}sequences are too few: "
        f"{heads} {unknowns} unknowns, and with "
        f"{per_sequence:g} target numbers for each sequence and {HELD_OUT:.0%} of them held out "
        f"(at least {LEAST_HELD_OUT}) at least {needed} sequences are needed; about three times "
        "as many make it easy."
    )
