"""A universal Turing machine learned from forty traces, read back, and run at sizes never seen."""

import polyattn as pa

P = pa.programs

program = P.universal_turing_machine(n_states=3, n_letters=3, n_cells=9)
traces = P.traces(program, n_traces=40, random_state=0)
learned = P.learn(program.schema, traces)
print(learned.outcome)
for term in learned.terms:
    print("  ", term)

larger = learned.resize(n_states=5, n_letters=2, n_cells=128)
beaver = P.machines.busy_beaver(5)
run = larger.run(beaver, [], position=64, max_steps=1000)
print(f"{run.steps} steps of the busy beaver of 5 states, {sum(run.tape)} ones so far")
print("as its rules say:", run == beaver.run([0] * 128, max_steps=1000, position=64))
