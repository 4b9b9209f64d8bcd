"""Is this the layer?  Decided on examples that learning has not seen.

Three ways to pass, and each also needs every head to be well determined by the data:

    exact      held-out outputs agree up to the rounding of the targets
    declared   residuals are of the size of the noise that the caller named, neither larger nor
               smaller, and no function of the tokens or the outputs
    noise      residuals pass every test for independent normal noise, and are no such function

Residuals that are smaller than the declared noise show that the declaration does not fit: they
are judged as if nothing had been declared.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polyattn.softmax.arguments import LEAST_EQUATIONS
from polyattn.softmax.examples import Examples, count_unknowns
from polyattn.softmax.judging.residuals import (
    ALARM,
    alarms,
    noise_scores,
    residuals,
    structure_scores,
)
from polyattn.softmax.judging.uncertainty import FINEST, Uncertainty, uncertainty
from polyattn.softmax.polish.projection import Projection

# Held-out relative errors up to this are exact, when targets are rounded to float64; descent
# that has not come down to the second is still on its way, as it is with redundant heads.
EXACT, CONVERGED = 1e-9, 1e-11

# Residuals of exact fits are small multiples of the rounding of the targets.
ROUNDINGS = 8.0

# The expected relative error of attn and of value that still counts as recovered.
MOST_EXACT_ERROR, MOST_NOISY_ERROR = 1e-4, 0.5

# Error bars rest on errors of at least this many roundings of float64 and, of exact heads, of the
# targets: rounding is no independent noise.  It repeats where sequences do, and that of float64,
# which is also made in descent, does not average out over examples at all.
COMPUTED_ROUNDINGS, TARGET_ROUNDINGS = 16.0, 4.0

# A declared noise fits residuals down to this part of it: nobody knows noise more exactly.  Above
# this share of the targets a residual is not called noise unless the caller said so.
LEAST_OF_DECLARED, MOST_NOISE = 0.9, 0.5


@dataclass(frozen=True)
class HeldOutFit:
    """How held-out residuals were explained; ``kind`` is empty where they were not.

    sigma : standard deviation of the targets' errors, in scaled units
    converged : whether the error is rounding, or noise, and not what descent has left over
    failed : the tests for noise that failed, see ``residuals.py``
    below_declared : whether residuals are smaller than the noise that was declared
    all_needed : whether one head fewer was seen to explain less, where that was in doubt
    """

    kind: str
    validation_error: float
    sigma: float
    failed: tuple[str, ...] = ()
    converged: bool = True
    below_declared: bool = False
    all_needed: bool = True

    @property
    def noisy(self) -> bool:
        """Whether noise explains the residuals."""
        return self.kind in ("noise", "declared")

    @property
    def explained(self) -> bool:
        """Whether nothing is left but rounding or noise."""
        return bool(self.kind)

    def well_determined(self, bars: Uncertainty) -> bool:
        """Whether every head is right up to a small error in all directions that are not open."""
        allowed = MOST_EXACT_ERROR if self.kind == "exact" else MOST_NOISY_ERROR
        return self.converged and self.all_needed and bars.in_determined <= allowed


@dataclass(frozen=True)
class Judge:
    """What learning has not seen, and what is known of the targets' errors.

    rounding : relative size of the rounding of the targets
    noise : standard deviation of the targets' noise in scaled units; None where unknown
    """

    training: Examples
    held_out: Examples
    rounding: float
    noise: float | None

    @property
    def tolerance(self) -> float:
        """Relative held-out errors up to this are exact."""
        return max(EXACT, ROUNDINGS * self.rounding)

    def count(self, n_heads: int, sigma: float) -> tuple[int, int]:
        """Numbers that the targets give for ``n_heads`` heads, and unknowns for which they do.

        Only inputs that differ count, and only outputs that are no combinations of others, up to
        errors of standard deviation ``sigma``: with e outputs of rank r the layer is one of r
        outputs and a matrix (r, e), which any r outputs determine.
        """
        training = self.training
        parts = [group.targets.reshape(-1, training.n_outputs) for group in training.groups]
        # The rank of the first targets, of outputs that are brought to one size.
        rows = np.concatenate(parts)[:20_000]
        sizes = np.linalg.norm(rows, axis=0)
        shown = sizes > 0
        singular = np.linalg.svd(rows[:, shown] / sizes[shown], compute_uv=False)
        limit = max(self.tolerance, ALARM * sigma * float(np.sqrt(len(rows)) / sizes.max()))
        n_outputs = max(1, int(np.count_nonzero(singular > limit)))
        n_unknowns = count_unknowns(n_heads, training.width, n_outputs, training.bias)
        needed = int(np.ceil(LEAST_EQUATIONS * n_unknowns / n_outputs))
        return n_outputs * training.n_distinct_rows(needed), n_unknowns

    def fit(self, projection: Projection) -> HeldOutFit:
        """Whether held-out residuals are explained; without error bars, so it is cheap."""
        held_out = residuals(self.held_out, projection)
        training = residuals(self.training, projection)
        error, count, n_equations = held_out.error, held_out.values.size, training.values.size
        n_unknowns = self.training.n_unknowns(projection.n_heads)
        rounding = np.finfo(np.float64).eps * training.size_of_targets / np.sqrt(n_equations)
        sigma = float(max(np.sqrt(training.power / max(n_equations - n_unknowns, 1)), rounding))
        # Whether residuals are smaller than the declared noise, beyond chance and doubt.
        least = LEAST_OF_DECLARED * (self.noise or 0.0)
        chance = ALARM * np.sqrt(2 / n_equations)
        below = bool(sigma < least and (sigma / least) ** 2 - 1 < -chance)
        if error <= self.tolerance:
            converged = error <= max(CONVERGED, ROUNDINGS * self.rounding)
            return HeldOutFit("exact", error, sigma, converged=converged, below_declared=below)
        scores = noise_scores(training, held_out, n_unknowns)
        if self.noise is None or below:
            kind = "noise"
            failed = alarms(scores) + (("share",) if error > MOST_NOISE else ())
        else:
            kind = "declared"
            # Held-out squares against the declared noise and the leverage of unknowns.
            least_left = (self.tolerance * held_out.size_of_targets) ** 2 / count
            expected = self.noise**2 * (1 + n_unknowns / n_equations) + least_left
            scores["declared"] = (held_out.power / count / expected - 1) / np.sqrt(2 / count)
            failed = tuple(name for name in ("generalises", "declared") if scores[name] > ALARM)
        if not failed:
            failed = alarms(structure_scores(self.training, training, projection, sigma))
        return HeldOutFit("" if failed else kind, error, sigma, failed, below_declared=below)

    def error_bars(self, projection: Projection, fit: HeldOutFit) -> Uncertainty:
        """Standard deviations of the parameters, from the size of the residuals."""
        n_equations = self.training.n_rows * self.training.n_outputs
        averaged = n_equations / self.training.n_unknowns(projection.n_heads)
        share = COMPUTED_ROUNDINGS * float(np.finfo(np.float64).eps * np.sqrt(max(averaged, 1.0)))
        finest = FINEST
        if fit.kind == "exact":
            share = max(share, TARGET_ROUNDINGS * self.rounding)
            # Whoever computes targets in float32 may hold the heads in float32.
            finest = max(FINEST, self.rounding)
        rounding = share * float(np.sqrt(self.training.power / n_equations))
        return uncertainty(self.training, projection, max(fit.sigma, rounding), finest=finest)
