"""Busy beaver
===========

A universal Turing machine is one layer of attention. Its prompt holds the busy beaver of four
states, which writes 13 ones in 107 steps and halts.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap

import polyattn as pa

P = pa.programs

compiled = P.compile(P.universal_turing_machine(n_states=4, n_letters=2, n_cells=32))
run = compiled.run(P.machines.busy_beaver(4), [], position=16)
print(compiled)
print(run.show(most=8))
print(f"halted: {run.halted} after {run.steps} steps, with {sum(run.tape)} ones on the tape")

tapes = np.zeros((run.steps + 1, 32), dtype=int)
for number, step in enumerate(run.history):
    tapes[number + 1 :, step.position] = step.write

figure, axes = plt.subplots(figsize=(7.2, 2.8), layout="constrained")
axes.imshow(tapes.T, cmap=ListedColormap(["#f2f3ef", "#0b6e4f"]), aspect="auto")
states = [step.state for step in run.history]
head = [step.position for step in run.history]
axes.scatter(range(run.steps), head, c=states, cmap="YlOrBr", vmin=-1, s=16, linewidths=0)
axes.set(ylim=(20.5, 4.5), yticks=range(5, 21, 5))
axes.set_title("The tape over time: ones in green, the head coloured by its state", loc="left")
axes.set_xlabel("step")
axes.set_ylabel("cell")
plt.savefig("busy_beaver.png")
