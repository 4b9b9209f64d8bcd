"""Learning to learn in context
============================

Prompts of few tasks teach a layer these tasks, prompts of many teach it to learn. The error on new
tasks falls with the number of tasks, and has its peak where prompts are as many as coefficients.
"""

import matplotlib.pyplot as plt
import numpy as np

import polyattn as pa

plt.rc("axes", titlelocation="left")
plt.rc("axes.spines", top=False, right=False)
D, LENGTH, NOISE = 12, 24, 0.1
COLOURS = {3: "#b3541e", 12: "#35569c", 96: "#0b6e4f"}

inputs = np.eye(D) / D
new = pa.data.in_context_regression(4000, LENGTH, inputs, NOISE, random_state=1)
sizes = [18, 36, 72, 108, 144, 180, 288, 576, 1152, 2304]

figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
for n_tasks, colour in COLOURS.items():
    train = pa.data.in_context_regression(4000, LENGTH, inputs, NOISE, tasks=n_tasks)
    curve = pa.learning_curve(
        train.X, train.Y, sizes, form=train.optimum.form, X_test=new.X, Y_test=new.Y
    )
    print(f"{n_tasks} tasks:", curve.outcome)
    axes.errorbar(sizes, curve.test_risk, curve.test_error, color=colour, label=f"{n_tasks} tasks")
    # What infinitely many prompts of these tasks would give.
    axes.axhline(new.optimum.risk_of(train.optimum.mean_step), color=colour, linestyle=":")

axes.axhline(new.optimum.risk, color="black", linestyle="--", label="best possible")
axes.set(xscale="log", yscale="log", ylim=(0.3, 30))
axes.set(xlabel="prompts", ylabel="error on new tasks")
axes.set_title(f"In-context regression, {D} inputs, {curve.n_features} coefficients")
axes.legend(frameon=False)
plt.savefig("learn_in_context.png")
