"""roll_out: sequences that grow by what a layer says of them, and how errors grow with them.

Beside each sequence its derivatives are carried: along each predicted coordinate of the newest
token that was given, which shows how an error of that token grows, and along stretches of errors
that are added at every step, which show how errors of the layer add up.  Both are exact
derivatives of the whole run, through everything that the layer remembers of earlier tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput, OutOfRange
from polyattn.fitting.forecasting.next_token import NextToken
from polyattn.fitting.forecasting.running_state import RunningState
from polyattn.form.form import Scale
from polyattn.numerics.arrays import even_ranges
from polyattn.progress import report
from polyattn.sequences import SequenceBatch

# Tokens whose products are made together while a sequence is read, and numbers of one block.
PIECE_TOKENS, BLOCK_NUMBERS = 1 << 14, 1 << 24

# Derivatives above this are divided by it, and the power is kept beside them.
LARGE_POWER = 200


@dataclass(frozen=True)
class Setting:
    """What is rolled out.

    n_steps : how many tokens each sequence gains
    predicted : the coordinates that the outputs are, (e,)
    others : the coordinates that are known ahead, (d - e,)
    increments : whether outputs are added to the newest token
    future : the coordinates known ahead, (N, n_steps, d - e)
    spread : units of errors of each predicted coordinate, (e,)
    limits : the largest magnitude of each predicted coordinate that is followed, (e,)
    errors : one-step errors to add, (M, n_steps, e); None where they are not known
    """

    n_steps: int
    predicted: NDArray[np.intp]
    others: NDArray[np.intp]
    increments: bool
    future: NDArray[np.float64]
    spread: NDArray[np.float64]
    limits: NDArray[np.float64]
    errors: NDArray[np.float64] | None


@dataclass
class Rolled:
    """What became of N sequences.

    values : (N, n_steps, e), NaN behind the steps that were made
    n_done : how many steps each made before it left its limits, (N,)
    log_growth : logarithm of the factor by which an error of the newest token has grown
    expected : root mean square of the errors that add up in each coordinate, (N, n_steps, e), in
        units of the spread; NaN if unknown
    """

    values: NDArray[np.float64]
    n_done: NDArray[np.int64]
    log_growth: NDArray[np.float64]
    expected: NDArray[np.float64]


def roll_out(layer: NextToken, batch: SequenceBatch, setting: Setting) -> Rolled:
    """Let each sequence grow by ``n_steps`` tokens.

    In mode causal all tokens are remembered as the form says; in mode last a sequence keeps its
    length: with each new token the oldest one leaves.
    Cost of a step of one sequence: 4 e m r flops, and e (m + r) for each direction; neither the
    length of the sequence nor the steps before count, but for windows, whose tokens are added up.
    """
    n_sequences, n_outputs = len(batch), len(setting.predicted)
    shape = (n_sequences, setting.n_steps)
    rolled = Rolled(
        np.full((*shape, n_outputs), np.nan), np.zeros(n_sequences, dtype=np.int64),
        np.full(shape, np.nan), np.full((*shape, n_outputs), np.nan),
    )  # fmt: skip
    done = 0
    for which in _blocks(layer, batch, setting):
        _GrowingSequences.begin(layer, batch, setting, which, rolled).go()
        done += len(which)
        report(done, n_sequences)
    return rolled


@dataclass
class _GrowingSequences:
    """Some sequences at one step, with their derivatives (B, K, d)."""

    layer: NextToken
    setting: Setting
    rolled: Rolled
    which: NDArray[np.intp]
    counts: NDArray[np.int64]
    tokens: NDArray[np.float64]
    state: RunningState
    directions: NDArray[np.float64]
    slopes: RunningState
    powers: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self.powers = np.zeros(len(self.which), dtype=np.int64)

    @classmethod
    def begin(
        cls, layer: NextToken, batch: SequenceBatch, setting: Setting, which: NDArray[np.intp],
        rolled: Rolled,
    ) -> _GrowingSequences:  # fmt: skip
        """All tokens but the newest are remembered; that one comes first."""
        lengths = batch.lengths[which]
        scales = _scales(layer, int(lengths.max()), setting.n_steps)
        n_pairs, n_sequences = len(layer.layout.pairs), len(which)
        state = RunningState(scales, (n_pairs, n_sequences))
        newest = np.empty((n_sequences, batch.n_dims))
        for at, number in enumerate(which):
            first, stop = batch.offsets[number], batch.offsets[number + 1]
            newest[at] = batch.values[stop - 1]
            n_before = int(stop - first) - 1
            for start, end in even_ranges(n_before, PIECE_TOKENS) if n_before else ():
                piece = np.asarray(batch.values[first + start : first + end])
                state.load(at, layer.products(layer.columns(piece)), start, n_before)
        n_outputs = len(setting.predicted)
        n_errors = 0 if setting.errors is None else len(setting.errors)
        directions = np.zeros((n_sequences, n_outputs + n_errors, batch.n_dims))
        directions[:, np.arange(n_outputs), setting.predicted] = setting.spread
        slopes = RunningState(scales, (n_pairs, *directions.shape[:2]), setting.n_steps)
        return cls(
            layer, setting, rolled, which, lengths, newest, state, directions, slopes
        )  # fmt: skip

    def go(self) -> None:
        """Step by step, as long as a sequence is left."""
        for step in range(self.setting.n_steps):
            self._keep(self._readable())
            if not len(self.which):
                return
            outputs, slopes = self._attend()
            chosen = self.setting.predicted
            if self.setting.increments:
                outputs = outputs + self.tokens[:, chosen]
                slopes = slopes + self.directions[..., chosen]
            finite = np.isfinite(outputs).all(axis=1)
            within = np.asarray(finite & (np.abs(outputs) <= self.setting.limits).all(axis=1))
            self.tokens = np.empty_like(self.tokens)
            self.tokens[:, chosen] = outputs
            self.tokens[:, self.setting.others] = self.setting.future[self.which, step]
            self.directions = np.zeros_like(self.directions)
            self.directions[..., chosen] = slopes
            self._keep(within)
            self._record(step)

    def _attend(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Outputs (B, e) for the newest tokens, and their derivatives (B, K, e)."""
        layer, form = self.layer, self.layer.layout.form
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            columns = layer.columns(self.tokens)
            changes = layer.column_derivatives(self.tokens, self.directions)
            sums = self.state.push(layer.products(columns))
            sum_changes = self.slopes.push(layer.product_derivatives(columns, changes))
            if form.mean:
                attended = np.maximum(form.n_attended(self.counts), 1)
                sums /= attended
                sum_changes /= attended[:, None]
            if form.mode == "causal":
                self.counts = self.counts + 1
            return layer.output(columns, sums, changes, sum_changes)

    def _record(self, step: int) -> None:
        """Keep the tokens of this step, and what their derivatives say."""
        if not len(self.which):
            return
        setting, rolled = self.setting, self.rolled
        n_outputs, chosen = len(setting.predicted), setting.predicted
        if setting.errors is not None:
            added = np.ldexp(setting.errors[None, :, step], -self.powers[:, None, None])
            self.directions[:, n_outputs:, chosen] += added
        relative = self.directions[..., chosen] / setting.spread
        with np.errstate(divide="ignore"):
            largest = np.linalg.norm(relative[:, :n_outputs], ord=2, axis=(1, 2))
            offset = self.powers * np.log(2.0)
            rolled.log_growth[self.which, step] = np.log(largest) + offset
            if setting.errors is not None:
                mean = np.sqrt(np.mean(relative[:, n_outputs:] ** 2, axis=1))
                rolled.expected[self.which, step] = np.exp(
                    np.minimum(np.log(mean) + offset[:, None], np.log(np.finfo(np.float64).max))
                )
        rolled.values[self.which, step] = self.tokens[:, chosen]
        rolled.n_done[self.which] = step + 1
        large = np.abs(relative).max(axis=(1, 2)) > 2.0**LARGE_POWER
        if large.any():
            self.powers = self.powers + LARGE_POWER * large
            factors = np.where(large, 2.0**-LARGE_POWER, 1.0)
            self.directions *= factors[:, None, None]
            self.slopes.scale(factors)

    def _readable(self) -> NDArray[np.bool_]:
        """Which of the newest tokens the maps of the form can be applied to."""
        if not self.layer.layout.columns.maps:
            return np.ones(len(self.which), dtype=bool)
        every = slice(0, len(self.which))
        if self._can_be_read(every):
            return np.ones(len(self.which), dtype=bool)
        alone = (slice(at, at + 1) for at in range(len(self.which)))
        return np.array([self._can_be_read(each) for each in alone], dtype=bool)

    def _can_be_read(self, some: slice) -> bool:
        """Functions may refuse a token that no data are like; then the run ends there."""
        try:
            self.layer.columns(self.tokens[some])
            self.layer.column_derivatives(self.tokens[some], self.directions[some])
        except (InvalidInput, OutOfRange):
            return False
        return True

    def _keep(self, which: NDArray[np.bool_]) -> None:
        if which.all():
            return
        for name in ("which", "counts", "tokens", "directions", "powers"):
            setattr(self, name, getattr(self, name)[which])
        self.state.keep(which)
        self.slopes.keep(which)


def _scales(layer: NextToken, length: int, n_steps: int) -> list[Scale]:
    """Those of the form for sequences of at most this length.

    One that keeps its length sees no token before its window; of others a window counts only if
    a token leaves it.
    """
    form = layer.layout.form
    if form.mode != "last":
        whole = length + n_steps
        return [
            Scale(start, None if stop is not None and stop >= whole else stop, decay)
            for start, stop, decay in form.scales
        ]
    return [
        Scale(start, length if stop is None else min(stop, length), decay)
        for start, stop, decay in form.scales
    ]


def _blocks(layer: NextToken, batch: SequenceBatch, setting: Setting) -> Iterator[NDArray[np.intp]]:
    """Numbers of sequences whose derivatives fit memory together; of one length in mode last."""
    n_directions = len(setting.predicted)
    n_directions += 0 if setting.errors is None else len(setting.errors)
    lengths = batch.lengths
    order = np.argsort(lengths, kind="stable")
    groups = [order]
    if layer.layout.form.mode == "last":
        groups = np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1)
    for group in groups:
        scales = _scales(layer, int(lengths[group].max()), setting.n_steps)
        farthest = max(scale.stop or scale.start + 1 for scale in scales)
        kept = min(farthest, setting.n_steps) * n_directions + farthest
        per_sequence = len(layer.layout.pairs) * (kept + len(scales) * n_directions)
        for first, stop in even_ranges(len(group), max(1, BLOCK_NUMBERS // per_sequence)):
            yield group[first:stop]
