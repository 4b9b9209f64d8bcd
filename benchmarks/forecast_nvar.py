"""pa.forecast against reservoirpy's NVAR: Lorenz's system, lynx, and airline passengers.

An NVAR (next-generation reservoir) is a ridge regression on the last k tokens and their products;
so is one attention layer with k lags.  Same tokens, in units of their standard deviations, the
same increments to predict, the same ridges and the same places from which held-out tokens are
forecast to choose among them; k from 1 to 4 for both, and for pa.forecast linear layers of up to
13 lags beside them.  Valid time: until the root mean square error of all
coordinates, in standard deviations, is above 0.4; Lyapunov exponent 0.9056.
Runs in the environment of the optional packages: .venv-optional/bin/python.
"""

from __future__ import annotations

import logging
import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
from common import require

import polyattn as pa
from polyattn.data.chaos import LORENZ_EXPONENT
from polyattn.fitting.forecasting import of_series

TOLERANCE, DT = 0.4, 0.025
N_TRAINING, N_STEPS, SEEDS = 1000, 700, 5


@dataclass
class Nvar:
    """reservoirpy's NVAR and ridge, predicting increments of standardised tokens."""

    delay: int
    ridge: float

    def fit(self, tokens: np.ndarray) -> Nvar:
        """From one series (n, d)."""
        from reservoirpy.nodes import NVAR, Ridge

        self.features, readout = NVAR(delay=self.delay, order=2), Ridge(ridge=self.ridge)
        rows = self.features.run(tokens[:-1])
        readout.fit(rows[self.delay - 1 :], np.diff(tokens, axis=0)[self.delay - 1 :])
        self.weights, self.bias = np.asarray(readout.Wout), np.asarray(readout.bias)
        return self

    def step(self, token: np.ndarray) -> np.ndarray:
        """The increment that follows."""
        return self.features.step(token) @ self.weights + self.bias.ravel()

    def forecast(self, tokens: np.ndarray, steps: int) -> np.ndarray:
        """The tokens that follow, until one is far away; zeros behind it."""
        self.features.store = np.zeros_like(self.features.store)
        for token in tokens[-self.delay : -1]:
            self.features.step(token)
        token, found = tokens[-1], np.full((steps, tokens.shape[1]), np.inf)
        for at in range(steps):
            token = token + self.step(token)
            if not np.abs(token).max() < 10.0 * np.abs(tokens).max():
                break
            found[at] = token
        return found


def chosen_nvar(tokens: np.ndarray, steps: int) -> Nvar:
    """The delay and the ridge of least error of forecasts of held-out tokens, fitted to all."""
    batch = pa.SequenceBatch.from_sequences([tokens])
    held = of_series._held_out(batch, steps)
    (training,) = held.training
    found = []
    for delay in of_series.LAGS:
        for ridge in of_series.RIDGES:
            model = Nvar(delay, ridge * (len(training) - 1)).fit(training)
            errors = []
            for before, after in zip(held.beginnings, held.follows, strict=True):
                ahead = model.forecast(before, len(after))
                errors.append(np.minimum(np.mean((ahead - after) ** 2, axis=1), of_series.WORST))
            found.append((float(np.mean(errors)), delay, ridge))
    _, delay, ridge = min(found)
    return Nvar(delay, ridge * (len(tokens) - 1)).fit(tokens)


def standardised(tokens: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
    """All in units of the first."""
    centre, spread = tokens.mean(axis=0), tokens.std(axis=0)
    return [(each - centre) / spread for each in (tokens, *others)]


def valid_steps(ahead: np.ndarray, truth: np.ndarray) -> int:
    """Steps before the error is above the tolerance."""
    with np.errstate(invalid="ignore"):
        errors = np.sqrt(np.mean((ahead - truth[: len(ahead)]) ** 2, axis=1))
    above = np.flatnonzero(~(errors <= TOLERANCE))
    return int(above[0]) if len(above) else len(ahead)


def expected_steps(ahead: pa.Forecast) -> int:
    """The same of the errors that a forecast expects; its own valid_steps count the worst one."""
    above = np.sqrt(np.mean(ahead.coordinate_errors[0] ** 2, axis=1)) > TOLERANCE
    return int(above.argmax()) if above.any() else len(above)


def same_solution() -> None:
    """On tokens (1, x_t, x_(t-1)) a layer that asks for the 1 alone has the features of NVAR."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((400, 3)), rng.standard_normal((399, 3))
    both = np.concatenate([np.ones((398, 1)), X[1:-1], X[:-2]], axis=1)
    form = pa.Form(window=1, query=[0])
    ours = pa.fit(both[:, None], Y[1:], form=form)
    from reservoirpy.nodes import NVAR, Ridge

    features, readout = NVAR(delay=2, order=2), Ridge(ridge=0.0)
    rows = features.run(X[:-1])[1:]
    readout.fit(rows, Y[1:])
    theirs = readout.run(rows)
    difference = float(np.abs(ours.predict(both[:, None]) - theirs).max())
    n_features = f"{ours.n_features} features and {rows.shape[1]} + 1"
    require(f"one step, no ridge, {n_features}: outputs to {difference:.1e}", difference < 1e-9)


def report(name: str, figures: dict[str, list[float]], unit: str) -> None:
    """Median and range of both sides."""
    print(f"{name}:")
    for side, values in figures.items():
        low, middle, high = np.min(values), np.median(values), np.max(values)
        each = ", ".join(f"{value:.3g}" for value in values)
        print(f"  {side:14} median {middle:.3g}, from {low:.3g} to {high:.3g} {unit}   ({each})")


def lorenz() -> None:
    """Five initial conditions, forecasts of 700 steps from 1000 tokens."""
    times: dict[str, list[float]] = {"pa.forecast": [], "expected": [], "NVAR": []}
    seconds: dict[str, list[float]] = {"pa.forecast": [], "NVAR": []}
    for seed in range(SEEDS):
        series = pa.data.lorenz(N_TRAINING + N_STEPS, DT, random_state=seed)
        training, truth = standardised(series[:N_TRAINING], series[N_TRAINING:])
        start = time.perf_counter()
        ahead = pa.forecast(training, N_STEPS, tolerance=TOLERANCE)
        middle = time.perf_counter()
        nvar = chosen_nvar(training, N_STEPS).forecast(training, N_STEPS)
        seconds["pa.forecast"].append(middle - start)
        seconds["NVAR"].append(time.perf_counter() - middle)
        unit = DT * LORENZ_EXPONENT
        times["pa.forecast"].append(unit * valid_steps(ahead.values, truth))
        times["expected"].append(unit * expected_steps(ahead))
        times["NVAR"].append(unit * valid_steps(nvar, truth))
    report("Lorenz, valid time", times, "Lyapunov times")
    report("Lorenz, choosing, fitting and forecasting", seconds, "s")


def real(name: str, series: np.ndarray, origins: tuple[int, ...], steps: int) -> None:
    """Forecasts of a series (n, 1) from five of its places."""
    errors: dict[str, list[float]] = {}
    for origin in origins:
        training, truth = standardised(series[:origin], series[origin : origin + steps])
        sides = {
            "pa.forecast": padded(pa.forecast(training, steps).values, steps),
            "NVAR": chosen_nvar(training, steps).forecast(training, steps),
            "linear, 2 lags": autoregression(training, steps),
            "last value": np.repeat(training[-1:], steps, axis=0),
        }
        for side, ahead in sides.items():
            worst = np.minimum(np.mean((ahead - truth) ** 2, axis=1), 4.0)
            errors.setdefault(side, []).append(float(np.sqrt(np.mean(worst))))
    report(f"{name}, root mean square error of {steps} steps", errors, "standard deviations")


def autoregression(tokens: np.ndarray, steps: int) -> np.ndarray:
    """Least squares on the last two values and a constant, nothing chosen."""
    rows = np.column_stack([tokens[1:-1], tokens[:-2], np.ones(len(tokens) - 2)])
    weights = np.linalg.lstsq(rows, tokens[2:], rcond=None)[0]
    found = list(tokens[-2:, 0])
    for _ in range(steps):
        found.append(float(np.array([found[-1], found[-2], 1.0]) @ weights[:, 0]))
    return np.array(found[2:])[:, None]


def padded(values: np.ndarray, steps: int) -> np.ndarray:
    """Steps that were not made are wrong by far."""
    missing = np.full((steps - len(values), values.shape[1]), np.inf)
    return np.concatenate([values, missing])


if __name__ == "__main__":
    if find_spec("reservoirpy") is None or find_spec("sktime") is None:
        print("needs reservoirpy and sktime: .venv-optional/bin/python benchmarks/forecast_nvar.py")
        sys.exit(0)
    logging.disable(logging.WARNING)
    same_solution()
    lorenz()
    from sktime.datasets import load_airline, load_lynx

    for name, series, origins, steps in (
        ("Lynx 1821-1934, log10", np.log10(load_lynx()), (64, 74, 84, 94, 104), 10),
        ("Airline passengers, log", np.log(load_airline()), (84, 96, 108, 120, 132), 12),
    ):
        real(name, np.asarray(series, dtype=float)[:, None], origins, steps)
