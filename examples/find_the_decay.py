"""How fast do old tokens fade?
============================

Each token counts less by a factor the older it is, and nobody says by which. For every decay the
best layer is a closed form, and so is its error on sequences that are left out: the data choose
the decay, and say how well they know it.
"""

import matplotlib.pyplot as plt
import numpy as np

import polyattn as pa

plt.rc("axes", titlelocation="left")
plt.rc("axes.spines", top=False, right=False)
OURS, OTHER, SOFT = "#0b6e4f", "#b3541e", "#5c6675"

truth = pa.Form(mode="last", decay=0.85, bias=True)
task = pa.data.planted(400, 30, 3, n_outputs=1, form=truth, noise=0.03, random_state=3)
found = pa.fit(task.X, task.Y, form=pa.Form(decay="loo", bias=True))
path = found.decay_path
print(f"decay {path.best:.3f} ± {path.error_bar:.3f}, true 0.85")

fresh = pa.data.random_sequences(4000, 30, 3, random_state=4)
for name, form in (("no decay", pa.Form(bias=True)), ("the decay found", found.form)):
    error = np.mean((pa.fit(task.X, task.Y, form=form).predict(fresh) - task.layer(fresh)) ** 2)
    print(f"{name}: error {error:.1e} on fresh sequences")

figure, axes = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
axes.semilogx(1 - path.decays[:-1], path.errors[:-1], ".-", color=OURS, label="sequences left out")
axes.axhline(path.errors[-1], color=SOFT, linewidth=0.8, linestyle=":", label="no decay")
ends = 1 - path.best + path.error_bar * np.array([-1, 1])
axes.axvspan(*ends, color=OTHER, alpha=0.25, label="decay found ± its error")
axes.axvline(1 - 0.85, color=OTHER, linewidth=1, label="true decay")
axes.set(title="The error for every decay", xlabel="1 − decay", ylabel="mean squared error")
axes.legend(frameon=False)
plt.savefig("find_the_decay.png")
