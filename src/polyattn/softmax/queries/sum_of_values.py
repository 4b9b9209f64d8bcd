"""What the black box answers to one token: the sum of the values.

One token, or copies of it, have F([x]) = x S + b, whatever the attention.  What deviates from that
is rounding or noise, of the same relative size for all tokens, or the answers bend: a squashed
output is nearly linear for small tokens and less so for larger ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isinf

import numpy as np
from numpy.typing import NDArray

from polyattn.numerics.scaling import scaled
from polyattn.softmax.queries.oracle import Oracle
from polyattn.softmax.queries.outcomes import Stopped
from polyattn.softmax.queries.precision import in_units
from polyattn.softmax.queries.steadiness import RepeatedQueries, asked_in_company

# Tokens that are so many times larger show a bound of the answers.
LARGER = 64.0

# How many random tokens check that answers are affine, and how many queries are repeated.
N_CHECKS = 8

# Tokens that show how answers grow: by this factor, a power of two, so that floating-point answers
# of any precision scale without rounding; and by this small part, to see how rough they are.
# None is larger than other tokens of queries: an oracle may overflow on large ones.
N_GROWING, FACTOR, NUDGE = 4, 4.0, 2.0**-8

# Answers bend when larger tokens deviate this many times more than smaller ones, and are no
# rounding when they deviate this many times more from linear ones than they are rough.
BENDING, ROUGHNESSES = 8.0, 100.0

# Deviations up to this are the rounding of float64.
ROUNDING = 1000 * float(np.finfo(np.float64).eps)

# Noise above this cannot be averaged; deviations above the second, or so many times what answers
# of few bits are rounded by, are neither: the black box is no attention layer.
LARGEST_NOISE, LARGEST_DEVIATION, BIT_ERRORS = 0.1, 1e-2, 16.0

# Entries of tokens are multiples of this: every floating-point format holds them.
TOKEN_UNIT = 2.0**-5


@dataclass(frozen=True)
class SumOfValues:
    """What one-token sequences show: S (d, e), b (e,), zero without biases, and their errors.

    noise : relative error of an output;  noise_std : the same in the units of the outputs
    repeat_error : relative error of repeated queries
    variances : (e,), of the errors of an answer;  errors : (D, e), standard errors of S and b
    bits : significant bits of answers;  rounding : by these, relative to the size of answers, which
        are smaller than what is rounded where an input is part of that
    probe : sequences to ask again at the end
    from_copies : relative difference of answers to a token and to two copies of it
    token_size : norm of the random tokens that gave S; 0 where unit vectors did
    by_size : standard deviation of errors, absolute and relative to an answer, of refined heads
    cut : mean of the errors of answers, and that away from zero: not zero where they are cut off
    """

    value: NDArray[np.float64]
    bias: NDArray[np.float64]
    noise: float
    noise_std: float
    repeat_error: float
    deterministic: bool
    variances: NDArray[np.float64]
    errors: NDArray[np.float64]
    bits: int
    rounding: float
    probe: RepeatedQueries
    from_copies: float = 0.0
    token_size: float = 0.0
    by_size: tuple[float, float] | None = None
    cut: tuple[float, float] = (0.0, 0.0)

    def answers(self, rows: NDArray) -> NDArray[np.float64]:
        """x S + b (Q, e) for rows (Q, D) of tokens, with a constant coordinate or without."""
        return rows[:, : len(self.value)] @ self.value + self.bias

    def rounding_of(self, whole: NDArray) -> NDArray[np.float64]:
        """What rounding did on average to answers (Q, e), given with the input."""
        return self.cut[0] + self.cut[1] * np.sign(whole)

    def level(self, answers: NDArray) -> float:
        """The rms error that one-token answers promise of other answers.

        It is relative to their size; of answers that are not rounded as floating-point numbers are
        also absolute.
        """
        relative = self.noise * _rms(answers)
        return (
            max(relative, float(np.sqrt(np.mean(self.variances)))) if self.bits == 53 else relative
        )


def measure_sum(oracle: Oracle, bias: bool, rng: np.random.Generator) -> SumOfValues:
    """S and b, and the level of rounding.

    Tokens are so large that x S is not lost beside b, whose rounding would be that of S.
    Cost: d + 4 + 4 N_CHECKS queries, and d more when b is large.
    """
    n_dims = oracle.n_dims
    # Together, so that the units of answers are not those of a small bias.
    origin, *basis = oracle(np.concatenate([np.zeros((1, n_dims)), np.eye(n_dims)])[:, None, :])
    value = np.stack(basis) - origin
    of_bias, of_value = float(np.linalg.norm(origin)), float(np.linalg.norm(value)) / n_dims**0.5
    unit = 1.0
    if of_bias > of_value > 0:
        unit = float(2.0 ** np.ceil(np.log2(min(of_bias / of_value, 1e12)) + 2))
        unit = min(unit, oracle.token_limit / (8 * n_dims**0.5))
        value = (oracle(unit * np.eye(n_dims)[:, None, :]) - origin) / unit
    tokens = unit * in_units(rng.standard_normal((N_CHECKS, 1, n_dims)), TOKEN_UNIT)
    first, again = oracle(tokens), oracle(tokens)
    doubled = oracle(np.repeat(tokens, 2, axis=1))
    bits = oracle.bits
    # The sum of values may vanish, and with it all of these: other sequences show the true size.
    sequences = unit * in_units(rng.standard_normal((N_CHECKS, 4, n_dims)), TOKEN_UNIT)
    several, within, probe = asked_in_company(oracle, sequences, _rms(first - again), 0.5**bits)
    _require_other(oracle, first, several, sequences, 0.5**bits)
    size = max(_rms(first), _rms(several), np.finfo(float).tiny)
    rounding = 0.5**bits * max(1.0, _rms(oracle.whole(tokens[:, 0], first)) / size)
    repeat_error = max(_rms(first - again), within) / size
    deviation = _rms(first - (tokens[:, 0] @ value + origin)) / size
    from_copies = _rms(first - doubled) / size
    if repeat_error > LARGEST_NOISE:
        raise Stopped(
            "not_deterministic",
            f"The same query has answers that differ by {repeat_error:.1e} of their size.",
        )
    if max(deviation, from_copies) > max(
        LARGEST_DEVIATION, BIT_ERRORS * rounding, 5 * repeat_error
    ):
        _ask_larger(oracle, tokens)
        raise Stopped(
            "not_attention",
            f"One-token sequences deviate from an affine function by {deviation:.1e} of their "
            f"size, and a token and its copy by {from_copies:.1e}: for attention without "
            "positions both are zero.",
        )
    # Rounding, of however few bits, leaves zero as it is.
    if not bias and float(np.abs(origin).max()) > 100 * max(repeat_error, 1e-15) * size:
        raise Stopped("bias_needed", "The zero token has a non-zero output: the layer has biases.")
    noise = max(deviation, from_copies, repeat_error, float(np.finfo(float).eps))
    errors = np.full((n_dims + bias, len(origin)), noise * _rms(value))
    errors[n_dims:] = noise * _rms(origin)
    return SumOfValues(
        value, origin * bias, noise, float(np.ldexp(noise * size, oracle.answer_exponent or 0)),
        repeat_error, repeat_error <= 16 * rounding,
        np.full(len(origin), (noise * size) ** 2), errors, bits, rounding, probe, from_copies,
    )  # fmt: skip


def _require_other(
    oracle: Oracle, alone: NDArray, several: NDArray, sequences: NDArray, rounding: float
) -> None:
    """Raise Stopped if every answer is the same, or is the token that asked.

    Of an input that was taken off already only the first is looked for.
    """
    answers = np.concatenate([alone, several])
    if np.any(answers) and not np.any(answers - answers[0]):
        raise Stopped(
            "not_attention",
            "The answer is the token itself and a constant: attention has no visible effect."
            if oracle.adds_input
            else "The oracle ignores its input: every sequence has the same answer.",
            "See that the sequences reach the model that is asked.",
        )
    tokens = sequences[:, -1]
    if oracle.adds_input or oracle.outside is not None or several.shape != tokens.shape:
        return
    # Tokens far beyond the size of the answers overflow, and equal none of them.
    with np.errstate(over="ignore"):
        given = scaled(tokens, oracle.token_exponent - (oracle.answer_exponent or 0))
    if np.allclose(several, given, rtol=4 * rounding, atol=0):
        raise Stopped(
            "not_attention",
            "The answer is the token itself: attention has no visible effect.",
            "See that the attention, and not a residual connection around it alone, is asked.",
        )


def require_linear(oracle: Oracle, total: SumOfValues, rng: np.random.Generator) -> None:
    """Raise Stopped if what one-token answers deviate from linear ones is no rounding.

    Rounding is rough: it differs between tokens that are nearly the same, where a smooth function
    is straight.  And it does not grow with the tokens.  Cost: 5 N_GROWING queries.
    """
    tokens = rng.standard_normal((N_GROWING, 1, oracle.n_dims))
    sizes = (FACTOR**-2, 1 / FACTOR, 1 - NUDGE, 1.0, 1 + NUDGE)
    answers = [oracle(size * tokens) for size in sizes]
    small, middle, less, large, more = (answer - total.bias for answer in answers)
    size, tiny = _rms(answers[3]), float(np.finfo(np.float64).tiny)
    # Few answers of few digits may be straight by chance.
    rough = max(_rms(less + more - 2 * large) / max(size, tiny), total.rounding)
    deviation = _rms(large - tokens[:, 0] @ total.value) / max(size, tiny)
    below = _rms(middle - FACTOR * small) / max(_rms(answers[1]), tiny)
    above = _rms(large - FACTOR * middle) / max(size, tiny)
    explained = ROUGHNESSES * max(rough, total.repeat_error) + ROUNDING
    if total.from_copies > explained:
        raise Stopped(
            "not_attention",
            f"A token and its copy beside it are answered differently, by {total.from_copies:.1e} "
            f"of their size, where rounding explains {rough:.1e}: positions or the number of "
            "tokens matter.",
        )
    bends = above > BENDING * max(below, rough) + ROUNDING
    if bends or deviation > explained:
        _ask_larger(oracle, tokens)
        raise Stopped(
            "not_attention",
            f"One-token answers are not linear: they deviate by {max(deviation, above):.1e} of "
            f"their size, where rounding explains {max(rough, below):.1e}.",
        )


def _ask_larger(oracle: Oracle, tokens: NDArray) -> None:
    """Ask tokens so large that answers which are clipped show it.  Cost: as many queries.

    Behind a normalisation none are.
    """
    if not isinf(oracle.token_limit):
        return
    try:
        oracle(LARGER * tokens)
    except Stopped:
        # An oracle that does not answer them, or no more, says nothing of a bound.
        return


def _rms(numbers: NDArray) -> float:
    return float(np.sqrt(np.mean(numbers**2)))
