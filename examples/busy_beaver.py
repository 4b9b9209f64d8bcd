"""A universal Turing machine as one layer of attention: busy beavers, and how they are run."""

import polyattn as pa

P = pa.programs

compiled = P.compile(P.universal_turing_machine(n_states=4, n_letters=2, n_cells=32))
print(compiled)

run = compiled.run(P.machines.busy_beaver(4), [], position=16)
print(run.show(most=8))
print(f"halted: {run.halted} after {run.steps} steps, with {sum(run.tape)} ones on the tape")

# The tokens behind the first three steps: what was looked at, and what was done.
print(compiled.trace(P.machines.busy_beaver(4), [], position=16, max_steps=3).show())
