"""The held-out check: fresh random sequences of several lengths."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from polyattn.model.softmax import SoftmaxAttention
from polyattn.softmax.queries.findings import CLOSE, LARGEST_BARS, HeadsAt, HeldOutCheck
from polyattn.softmax.queries.layers import in_mode
from polyattn.softmax.queries.mixing import relative_size
from polyattn.softmax.queries.outcomes import LARGEST_DOUBT, Stopped
from polyattn.softmax.queries.pairs import Pairs
from polyattn.softmax.queries.precision import TINY, in_units, token_unit

if TYPE_CHECKING:
    from polyattn.softmax.queries.rotary import Turning

LENGTHS, N_PER_LENGTH = (2, 3, 5, 9), 9

# Positions are looked at farther back.
WITH_POSITIONS = (*LENGTHS, 40)

# Then longer ones, of each spread once: they show windows, and whatever else begins later.
LONG = (64, 256)

# Spreads of the tokens, in calibrated sizes; each is judged by itself.
SPREADS = (0.7, 2.0, 4.0)

# Deviations that pass where answers are exact: this, and this multiple of the noise, but no more
# than the third.
PRECISION, NOISE_FACTOR, LARGEST_TOLERANCE = 1e-7, 1000, 1e-3

# Deviations may be so many times what noise and error bars explain, in the root mean square, of
# exact and of noisy answers, and at worst: more is a function of the inputs, as heads leave over
# that are nearly alike and were taken for one.  Other rows may deviate more than the last.
EXPLAINED, EXPLAINED_NOISY, PEAK, OTHER_ROWS = 10.0, 3.0, 10.0, 10.0

# However noisy answers are, deviations above this part of the effect of attention are no agreement.
AT_MOST = 0.5

# Residuals of exact answers beyond this many errors of an effect are no rounding; those of noisy
# ones are no noise beyond so many times that of one-token answers.
MISFIT, MISFIT_NOISY = 300.0, 4.0

# Bars of exact answers are this many times what independent roundings would give: chosen by their
# coverage on layers that were tried.
CORRELATED = 6.0

# Errors of exact answers: so many times the rounding of one-token answers.
ROUNDINGS = 30.0

# Layers that are drawn within the error bars, to see what these mean for the outputs.
N_DRAWS = 6

# Modes in which a layer answers all rows; the first is taken where nothing tells them apart.
ROW_MODES = ("full", "causal")

Errors = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True)
class Compared:
    """Rows (R, e) that the oracle answered, those of a layer, and what one token alone would give.

    ``whole`` are the answers with the input, where the oracle adds it.  Lengths follow one another;
    of each, every third sequence has the same spread: ``spread`` (R,).
    """

    observed: NDArray[np.float64]
    predicted: NDArray[np.float64]
    alone: NDArray[np.float64]
    whole: NDArray[np.float64]
    spread: NDArray[np.intp]

    @classmethod
    def of(cls, X: NDArray, observed: NDArray, predicted: NDArray, pairs: Pairs) -> Compared:
        """Of rows (B, q, e) for the last q, or the first q, tokens X (B, q, d)."""
        alone = X @ pairs.total.value + pairs.total.bias
        whole = pairs.oracle.whole(X, observed)
        spread = np.repeat(np.arange(len(X)) % len(SPREADS), X.shape[1])
        observed, predicted, alone, whole = (
            each.reshape(len(spread), -1) for each in (observed, predicted, alone, whole)
        )
        return cls(observed, predicted, alone, whole, spread)

    @classmethod
    def together(cls, parts: list[Compared]) -> Compared:
        """All rows of several lengths."""
        return cls(
            *(np.concatenate([vars(part)[name] for part in parts]) for name in vars(parts[0]))
        )

    def at(self, number: int) -> Compared:
        """The rows of one spread."""
        return Compared(*(each[self.spread == number] for each in vars(self).values()))

    @property
    def size(self) -> float:
        """The rms effect of attention; without any effect, the largest output."""
        effects, outputs = self.observed - self.alone, self.observed
        return float(np.sqrt(np.mean(effects**2)) or np.abs(outputs).max()) or 1.0

    @property
    def sizes(self) -> NDArray[np.float64]:
        """The size (R,) of the spread of each row."""
        return np.array([self.at(number).size for number in range(len(SPREADS))])[self.spread]

    @property
    def rms(self) -> float:
        """The root mean square of deviations, relative to ``size``; NaN where answers are."""
        return float(np.sqrt(np.mean((self.observed - self.predicted) ** 2))) / self.size

    @property
    def deviation(self) -> float:
        """The largest deviation, relative to ``size``; NaN where answers are."""
        return float(np.abs(self.observed - self.predicted).max()) / self.size


def validate(
    pairs: Pairs,
    layer: SoftmaxAttention,
    heads: list[HeadsAt],
    errors: Errors | None,
    turning: Turning | None = None,
    eps_error: float = 0.0,
) -> HeldOutCheck:
    """Compare the layer, of mode last, with the oracle on random sequences of some lengths.

    Tokens are a random query token and others around it, of three spreads: what only shows on
    large inputs is noticed, and large outputs do not cover what small ones show.  Deviations are
    relative to the rms of F - x' S - b, which a layer without attention does not explain.
    ``errors``, standard errors of attn and value, are scaled up where deviations exceed what they
    and the noise explain.  With rotary positions there are none, and residuals leave a doubt.
    ``eps_error`` is that of a normalisation before, which attn is as wrong by.  The other rows,
    which are answered in any case, show in which modes the layer is right.  Queries of the
    beginning are asked again.  A layer that passes is held against LONG sequences, too.
    Cost: N_PER_LENGTH queries for every length, three for every long one, and those of the probe.
    """
    pairs.total.probe.require_same(pairs.oracle)
    lengths = LENGTHS if turning is None else WITH_POSITIONS
    answered = [_ask(pairs, length, N_PER_LENGTH) for length in lengths]
    last = Compared.together(
        [Compared.of(X[:, -1:], rows[:, -1:], layer(X)[:, None], pairs) for X, rows in answered]
    )
    missed, size = last.observed - last.predicted, float(np.linalg.norm(last.observed)) or 1.0
    error = float(np.linalg.norm(missed)) / size
    doubt = inf if turning is None else max(_doubt(heads), turning.doubt)
    expected = _expected(pairs, layer, errors, [X for X, _ in answered], last)
    expected += (eps_error * last.whole) ** 2
    if turning is not None:
        expected += (doubt * last.sizes)[:, None] ** 2
    checks = [
        _check(pairs, last.at(number), heads, expected[last.spread == number], error)
        for number in range(len(SPREADS))
    ]
    worst = max(checks, key=lambda each: each[0].deviation / each[0].allowed)[0]
    least = CORRELATED if pairs.total.by_size is None and turning is None else 1.0
    ratio, bars = max(least, *(ratio for _, ratio in checks)), None
    if errors is not None:
        bars, doubt = _scaled(layer, errors, ratio, eps_error)
    elif turning is not None:
        doubt = float(np.hypot(ratio * doubt, eps_error))
    doubt = max(worst.doubt, doubt)
    check = replace(worst, errors=bars, doubt=doubt, turning=turning, longest=max(lengths))
    single = [replace(each, doubt=check.doubt) for each, _ in checks]
    fitting = tuple(mode for mode in ROW_MODES if _fits(pairs, layer, mode, answered, single))
    check = replace(check, modes=fitting)
    return _continued(pairs, layer, check, single) if check.passed else check


def _continued(
    pairs: Pairs, layer: SoftmaxAttention, check: HeldOutCheck, single: list[HeldOutCheck]
) -> HeldOutCheck:
    """The check, continued on LONG sequences up to those that are not answered, or differ."""
    # So few sequences may happen to deviate more than many did, but not by a part of the effect.
    most = [min(OTHER_ROWS * each.deviation, each.deviation + CLOSE) for each in single]
    single = [replace(each, deviation=value) for each, value in zip(single, most, strict=True)]
    for length in LONG:
        try:
            answered = [_ask(pairs, length, len(SPREADS))]
        except Stopped as stop:
            why = str(stop).rstrip(".")
            return replace(check, ended=f"Sequences of {length} tokens were not checked: {why}.")
        if not _fits(pairs, layer, "last", answered, single):
            return replace(check, differs_at=length)
        fitting = tuple(mode for mode in check.modes if _fits(pairs, layer, mode, answered, single))
        found = _compared(pairs, layer, *answered[0], slice(-1, None)).deviation
        deviation, allowed = max(found, check.deviation), max(found, check.allowed)
        check = replace(check, deviation=deviation, allowed=allowed, longest=length, modes=fitting)
    return check


def _ask(pairs: Pairs, length: int, count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Random sequences (count, length, d) of all spreads in turn, and all rows of their answers."""
    X = pairs.random_sequences(np.resize(SPREADS, count), length)
    if pairs.total.bits < 53 and not isfinite(pairs.oracle.token_limit):
        X = np.stack([in_units(each, token_unit(float(np.abs(each).max()))) for each in X])
    return X, pairs.oracle.rows(X, length)


def _expected(
    pairs: Pairs,
    layer: SoftmaxAttention,
    errors: Errors | None,
    sequences: list[NDArray],
    last: Compared,
) -> NDArray[np.float64]:
    """Variances (R, e) of the deviations of last rows, by noise and by draws within the errors."""
    total = pairs.total
    if total.by_size is None:
        largest = float(np.abs(last.observed).max())
        variances = np.full_like(last.observed, (ROUNDINGS * total.noise * largest) ** 2)
    else:
        absolute, relative = total.by_size
        variances = absolute**2 + (relative * last.whole) ** 2
    if errors is None or not all(np.all(np.isfinite(each)) for each in errors):
        return variances
    rng = np.random.default_rng(0)
    for _ in range(N_DRAWS):
        attn, value = (
            array + error * rng.standard_normal(error.shape)
            for array, error in zip((layer.attn, layer.value), errors, strict=True)
        )
        drawn = SoftmaxAttention(attn, value, "last", layer.bias)
        outputs = np.concatenate([drawn(X) for X in sequences])
        variances += (outputs - last.predicted) ** 2 / N_DRAWS
    return variances


def _check(
    pairs: Pairs, compared: Compared, heads: list[HeadsAt], expected: NDArray, error: float
) -> tuple[HeldOutCheck, float]:
    """The check of the last rows of one spread, and deviations in units of what is expected."""
    largest, deviation = float(np.abs(compared.observed).max()), compared.deviation
    missed = compared.observed - compared.predicted
    ratio = float(np.sqrt(np.mean(missed**2) / max(float(np.mean(expected)), TINY)))
    if pairs.total.by_size is None:
        by_noise = NOISE_FACTOR * pairs.total.noise * largest / compared.size
        allowed, most = min(PRECISION + by_noise, LARGEST_TOLERANCE), EXPLAINED
        largest_doubt = LARGEST_DOUBT
    else:
        allowed = min(PEAK * float(np.sqrt(expected.max())) / compared.size, AT_MOST)
        most, largest_doubt = EXPLAINED_NOISY, LARGEST_BARS
    doubt = 0.0
    if _unexplained(pairs, heads, compared) or not ratio <= most:
        # The residuals at single differences do not show how wrong the heads are.
        allowed, doubt = min(allowed, deviation * min(0.1, most / ratio)), inf
    check = HeldOutCheck(heads, deviation, allowed, doubt, error, largest_doubt=largest_doubt)
    return check, ratio


def _noisy_rows(pairs: Pairs, rows: Compared, check: HeldOutCheck) -> float:
    """What other rows may deviate by, in the root mean square: a wrong mode does by about 1."""
    absolute, relative = pairs.total.by_size or (0.0, 0.0)
    noise = np.hypot(absolute, relative * float(np.sqrt(np.mean(rows.whole**2)))) / rows.size
    doubt = check.doubt if isfinite(check.doubt) else 0.0
    return min(EXPLAINED_NOISY * float(noise + doubt) + check.deviation, AT_MOST)


def _unexplained(pairs: Pairs, heads: list[HeadsAt], compared: Compared) -> bool:
    """Whether the heads leave more than rounding, or noise of one-token answers, explains."""
    if pairs.total.by_size is None:
        return max((at.residual for at in heads), default=0.0) > MISFIT * pairs.error
    absolute, relative = pairs.total.by_size
    size = float(np.sqrt(np.mean(compared.whole**2)))
    return float(np.hypot(absolute, relative * size)) > MISFIT_NOISY * (
        pairs.total.level(compared.observed)
    )


def _scaled(
    layer: SoftmaxAttention, errors: Errors, ratio: float, eps_error: float
) -> tuple[Errors, float]:
    """Error bars of attn and value, no smaller than deviations say, and those of the worst head.

    An eps wrong by eps_error makes small normalised tokens, of which there are two in a logit and
    one in a value, wrong by half of it.
    """
    attn = np.hypot(ratio * errors[0], eps_error * layer.attn)
    value = np.hypot(ratio * errors[1], eps_error / 2 * layer.value)
    parts = ((attn, layer.attn), (value, layer.value))
    sizes = [relative_size(e.reshape(len(e), -1), a.reshape(len(a), -1)) for e, a in parts]
    return (attn, value), max(sizes)


def _fits(
    pairs: Pairs,
    layer: SoftmaxAttention,
    mode: str,
    answered: list[tuple[NDArray, NDArray]],
    checks: list[HeldOutCheck],
) -> bool:
    """Whether the layer of this mode answers all rows but the last as well as it does the last.

    Their queries are other tokens, of other size: OTHER_ROWS times what the last row shows is
    allowed.  A wrong mode deviates by about 1.  In mode last it is the last rows of others.
    """
    chosen = slice(-1, None) if mode == "last" else slice(None, -1)
    compared = Compared.together(
        [_compared(pairs, in_mode(layer, mode), X, rows, chosen) for X, rows in answered]
    )
    for number, check in enumerate(checks):
        doubt = check.doubt if isfinite(check.doubt) else 0.0
        most = OTHER_ROWS * min(check.deviation + PRECISION + check.allowed + doubt, CLOSE)
        rows = compared.at(number)
        if pairs.total.by_size is not None:
            if not rows.rms <= _noisy_rows(pairs, rows, check):
                return False
        elif not rows.deviation <= most:
            return False
    return True


def _compared(
    pairs: Pairs, layer: SoftmaxAttention, X: NDArray, rows: NDArray, chosen: slice
) -> Compared:
    """Some rows of the layer as what is observed: rows that nobody reads may hold anything."""
    # One by one: long sequences take memory.
    own = np.concatenate([layer(each[None]) for each in X])
    own = own[:, None] if own.ndim == 2 else own[:, chosen]
    return Compared.of(X[:, chosen], own, rows[:, chosen], pairs)


def _doubt(heads: list[HeadsAt]) -> float:
    """The doubt about attn and value: differences of heads, divided by |delta_j - delta_0|."""
    if len(heads) < 2:
        return heads[0].doubt if heads else 0.0
    first, others = heads[0], heads[1:]
    near = np.array([np.linalg.norm(at.delta - first.delta) for at in others])
    lever = float(np.linalg.norm(first.delta)) / near
    doubts = np.array([np.hypot(at.doubt, first.doubt) for at in others])
    return float(np.sqrt(np.mean((lever * doubts) ** 2)))
