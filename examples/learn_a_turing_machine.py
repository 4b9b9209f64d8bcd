"""Learn a Turing machine
======================

A universal Turing machine learned from twenty short traces, read back as a program, and run on a
machine and a tape larger than any it saw: the busy beaver of five states.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap

import polyattn as pa

P = pa.programs

program = P.universal_turing_machine(n_states=2, n_letters=2, n_cells=8)
traces = P.traces(program, n_traces=20, random_state=0)
learned = P.learn(program.schema, traces)
print(learned.outcome)
print(*learned.terms, sep="\n")

larger = learned.resize(n_states=5, n_letters=2, n_cells=128)
beaver = P.machines.busy_beaver(5)
run = larger.run(beaver, [], position=92, max_steps=2000)
print(f"{run.steps} steps of the busy beaver of 5 states, {sum(run.tape)} ones so far")
print("as its rules say:", run == beaver.run([0] * 128, max_steps=2000, position=92))

tapes = np.zeros((run.steps + 1, 128), dtype=int)
for number, step in enumerate(run.history):
    tapes[number + 1 :, step.position] = step.write

figure, axes = plt.subplots(figsize=(7.2, 3.2), layout="constrained")
colours = ListedColormap(["#f2f3ef", "#0b6e4f"])
axes.imshow(tapes.T, cmap=colours, aspect="auto", interpolation="nearest")
axes.set_title("A program learned from 20 traces runs the busy beaver of 5 states", loc="left")
axes.set_xlabel("step")
axes.set_ylabel("cell of the tape")
plt.savefig("learn_a_turing_machine.png")
