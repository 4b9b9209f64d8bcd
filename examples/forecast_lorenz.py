"""Forecasting chaos with one layer
================================

A layer whose heads look at the last tokens, one lag each, sees these and their products: a
next-generation reservoir is an attention layer. From 1000 tokens of Lorenz's system it is fitted
in closed form and then lives on its own predictions. How fast errors grow, and when they will be
too large, it knows without seeing the truth.
"""

import matplotlib.pyplot as plt
import numpy as np

import polyattn as pa

plt.rc("axes", titlelocation="left")
plt.rc("axes.spines", top=False, right=False)
OURS, OTHER, SOFT = "#0b6e4f", "#b3541e", "#5c6675"

dt, exponent, n_steps = 0.025, 0.9056, 500
known, truth = np.split(pa.data.lorenz(1000 + n_steps, dt, random_state=3), [1000])
ahead = pa.forecast(known, n_steps)
print(ahead.outcome)

errors = np.sqrt(np.mean(((ahead.values - truth) / known.std(axis=0)) ** 2, axis=1))
valid = int(np.argmax(errors > 0.4))
time = np.arange(1, n_steps + 1) * dt * exponent  # in Lyapunov times
print(f"valid for {time[valid]:.1f} Lyapunov times, expected {time[ahead.valid_steps[0] - 1]:.1f}")
print(f"exponent {ahead.exponents[0] / dt:.2f}, of the true system {exponent}")

figure, (above, below) = plt.subplots(2, 1, figsize=(6.4, 4.4), sharex=True, layout="constrained")
above.plot(time, truth[:, 0], color=SOFT, label="truth")
above.plot(time, ahead.values[:, 0], color=OURS, linewidth=1, label="forecast")
above.set(title="x, and the layer on its own predictions", ylabel="x", ylim=(-20, 30))
below.semilogy(time, errors, color=OTHER, label="error")
below.semilogy(time, ahead.expected_error[0], color=OURS, label="expected, without the truth")
below.axhline(0.4, color=SOFT, linestyle=":", linewidth=0.8)
below.set(xlabel="Lyapunov times", ylabel="standard deviations")
for axes in (above, below):
    axes.legend(frameon=False, ncols=2, loc="upper left")
plt.savefig("forecast_lorenz.png")
