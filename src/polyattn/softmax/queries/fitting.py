"""Fits of the heads at single differences where answers are rounded or noisy, with their errors.

Gauss-Newton steps of ``error_bars`` fit effects with designs of the model, not of noisy answers:
noise does not bias them, and its propagation is known.  All residuals together give the noise.

Where columns A_i delta stop being independent beyond noise, further differences have unknowns
within the column spaces alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.numerics.parallel import map_pieces
from polyattn.softmax.queries.error_bars import HeadEquations, beside_basis, spread_over_rows
from polyattn.softmax.queries.findings import HeadsAt
from polyattn.softmax.queries.pairs import Pairs, unit_rows
from polyattn.softmax.queries.precision import TINY, AnswerNoise, in_units
from polyattn.softmax.queries.sum_of_values import SumOfValues
from polyattn.softmax.recorder import require_time

# Query tokens beyond those that unknowns need, and how much more than an effect the sum of values
# may count.
SPARE, HEAVIEST = 8, 10.0

# Draws of the error of S that show what it does to heads.
N_DRAWS = 4

# Steps of a solve, how often one is halved, and a gain that is none, relative to the residual.
N_STEPS, N_HALVINGS, GAIN = 20, 6, 1e-5

# A rank is known when there are so many differences more than twice it; singular values count as
# zero below this multiple of what noise shows, without a ridge and with one.
N_CONFIRMATIONS, LEVELS, RIDGE_LEVELS = 6, 1.5, 6.0

# Residuals of so many times the noise of one-token answers are those of heads led astray; sums and
# weights of few bits explain less.
ASTRAY = 6.0

# Variances of residuals may grow by this in column spaces before these are given up.
GROWTH = 2.0


@dataclass(frozen=True)
class FittedHeads:
    """Heads of one difference: columns (H, k) in a basis, values (H, e), and what is left (Q, e).

    alone : rows (Q, D) of tokens whose answers were taken off;  near : the equations at these heads
    The last row of ``left`` is that of the sum of values, which counts ``weight`` times.
    level : the rms error that one-token answers promise of these
    """

    alone: NDArray[np.float64]
    columns: NDArray[np.float64]
    values: NDArray[np.float64]
    near: HeadEquations
    left: NDArray[np.float64]
    weight: float
    level: float

    @property
    def residual(self) -> float:
        """The rms of what is left of the effects."""
        return float(np.sqrt(np.mean(self.left[:-1] ** 2)))

    @property
    def astray(self) -> bool:
        """Whether that is more than noise explains."""
        return not self.residual <= ASTRAY * self.level


class Refinement:
    """S measured anew, the noise of all residuals so far, and column spaces (H, D, r), if known."""

    def __init__(
        self, pairs: Pairs, size: float, unit: float, factor: float, total: SumOfValues
    ) -> None:
        self.pairs, self.size, self.unit, self.factor, self.total = pairs, size, unit, factor, total
        self.noise = AnswerNoise(np.zeros(pairs.oracle.n_outputs))
        self.spaces: NDArray[np.float64] | None = None
        self.wide_level, self.ridge, self.n_steps, self.beside = np.inf, 0.0, N_STEPS, 1.0
        rng, shape = np.random.default_rng(0), (N_DRAWS, pairs.n_rows, pairs.oracle.n_outputs)
        self.of_sum = rng.standard_normal(shape) * total.errors

    def heads(self, deltas: NDArray, attn: NDArray, value: NDArray) -> list[HeadsAt] | None:
        """Heads for each of the deltas (B, d) near those of attn (H, D, d) and value (H, d, e).

        Infinite errors mark those that were led astray.
        """
        found = self._fitted(deltas, attn, value)
        if self.spaces is not None and (
            found is None or self.noise.level > GROWTH * self.wide_level
        ):
            # The columns seen so far did not show all of the column space.
            self.spaces, self.wide_level = None, 0.0
            self.noise = AnswerNoise(np.zeros_like(self.noise.squares))
            found = self._fitted(deltas, attn, value)
        return found

    def learn_spaces(self, heads: list[HeadsAt]) -> None:
        """Look for column spaces in the heads so far; from then on there are fewer unknowns."""
        if self.spaces is not None or not self.wide_level:
            return
        columns = np.stack([at.columns for at in heads], axis=2)
        errors = np.stack([at.errors[0] for at in heads if at.errors], axis=2)
        bases, spectra, _ = np.linalg.svd(columns, full_matrices=False)
        level = np.sqrt(np.mean(errors**2, axis=(1, 2)))[:, None]
        # A ridge makes errors look smaller than they are.
        floor = (
            (RIDGE_LEVELS if self.ridge else LEVELS)
            * level
            * (columns.shape[1] ** 0.5 + columns.shape[2] ** 0.5)
        )
        rank = max(1, int(np.sum(spectra > floor, axis=1).max()))
        enough = 2 * rank + N_CONFIRMATIONS <= len(heads)
        if enough and rank + len(bases) < self.pairs.n_rows // 2:
            self.spaces, self.wide_level = bases[:, :, :rank], self.noise.level
            self.beside = beside_basis(rank, len(heads))
            self.noise = AnswerNoise(np.zeros_like(self.noise.squares))

    def _fitted(self, deltas: NDArray, attn: NDArray, value: NDArray) -> list[HeadsAt] | None:
        pairs, spaces = self.pairs, self.spaces
        n_unknowns = len(value) + (pairs.n_rows if spaces is None else spaces.shape[2])
        n_tokens = int(np.ceil(self.factor * n_unknowns)) + SPARE
        tokens = self.size * unit_rows(pairs.rng, n_tokens * len(deltas), pairs.n_dims)
        tokens = in_units(tokens, self.unit)
        effects = pairs.effect(tokens, np.repeat(deltas, n_tokens, axis=0))
        alone = pairs.alone(tokens, np.repeat(deltas, n_tokens, axis=0))
        whole = pairs.oracle.whole(tokens, effects + self.total.answers(alone))
        effects = effects - self.total.rounding_of(whole)
        split = (np.split(each, len(deltas)) for each in (pairs.rows(tokens), alone, effects))

        def solve(piece: tuple[NDArray, NDArray, NDArray, NDArray]) -> FittedHeads | None:
            delta, rows, off, seen = piece
            near = attn @ delta, np.tensordot(delta, value, (0, 1))
            return self._fit(delta, rows, off, seen, *near)

        solved = map_pieces(solve, list(zip(deltas, *split, strict=True)))
        answers = np.split(whole, len(deltas))
        fits = [fit for fit in solved if fit is not None]
        if len(fits) < len(solved):
            return None
        for fit, seen in zip(fits, answers, strict=True):
            if not fit.astray:
                self.noise.add(fit.left[:-1], seen, fit.near.freedom)
        return [self._with_errors(*each) for each in zip(deltas, fits, answers, strict=True)]

    def _fit(
        self,
        delta: NDArray,
        rows: NDArray,
        alone: NDArray,
        effects: NDArray,
        columns: NDArray,
        values: NDArray,
    ) -> FittedHeads | None:
        """Gauss-Newton steps from columns (H, D) and values (H, e), halved where they overshoot."""
        require_time()
        basis = self.spaces
        design = rows if basis is None else rows @ basis
        if basis is not None:
            columns = np.einsum("hdk,hd->hk", basis, columns)
        weight = self._weight(delta)
        data = np.vstack([effects, weight * (delta @ self.total.value)])

        level = self.total.level(effects + self.total.answers(alone))

        def at(columns: NDArray, values: NDArray) -> FittedHeads:
            near = HeadEquations(design, columns, values, weight, self.ridge)
            left = data - near.sigmoids @ values
            return FittedHeads(alone, columns, values, near, left, weight, level)

        fit = at(columns, values)
        for _ in range(self.n_steps):
            if not fit.near.determined:
                return None
            size = float(np.linalg.norm(fit.left))
            of_columns, of_values = fit.near.step(fit.left)
            trials = (
                at(fit.columns + 0.5**halvings * of_columns, fit.values + 0.5**halvings * of_values)
                for halvings in range(N_HALVINGS)
            )
            better = next((each for each in trials if np.linalg.norm(each.left) <= size), None)
            if better is None:
                break
            fit = better
            if size - float(np.linalg.norm(fit.left)) <= GAIN * size:
                break
        return fit if fit.near.determined else None

    def _weight(self, delta: NDArray) -> float:
        """The error of an answer, in errors of delta S: how much the sum of values counts."""
        of_sum = np.sqrt(np.mean(delta**2 @ self.total.errors[: len(delta)] ** 2))
        of_answer = np.sqrt(np.mean(self.total.variances))
        return float(np.clip(of_answer / max(of_sum, TINY), 1.0, HEAVIEST))

    def _with_errors(self, delta: NDArray, fit: FittedHeads, answers: NDArray) -> HeadsAt:
        residual, columns = fit.residual, fit.columns
        if self.spaces is not None:
            columns = np.einsum("hdk,hk->hd", self.spaces, columns)
        if fit.astray:
            unknown = np.full_like(columns, np.inf), np.full_like(fit.values, np.inf)
            return HeadsAt(delta, columns, fit.values, np.inf, residual, unknown)
        variances = self.noise.variances(answers)
        mean = variances.mean(axis=0)
        of_columns = fit.near.column_variances(np.vstack([variances, mean]))
        of_values = fit.near.value_variances(mean)
        for draw in self.of_sum:
            moved = np.vstack([-fit.alone @ draw, fit.weight * (delta @ draw[: len(delta)])])
            by_sum = fit.near.step(moved)
            of_columns += by_sum[0] ** 2 / N_DRAWS
            of_values += by_sum[1] ** 2 / N_DRAWS
        if self.spaces is not None:
            of_columns = spread_over_rows(of_columns, self.spaces, self.beside)
        errors = (np.sqrt(of_columns), np.sqrt(of_values))
        return HeadsAt(delta, columns, fit.values, 0.0, residual, errors)
