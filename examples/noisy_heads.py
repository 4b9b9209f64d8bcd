"""How many heads do noisy data support?  The optimum, the best H heads, and the choice."""

import polyattn as pa

task = pa.data.planted(4000, 12, 4, n_heads=2, mode="last", noise=0.02, random_state=3)

optimum = pa.fit(task.X, task.Y)
print(f"optimum over any number of heads: risk {optimum.risk:.6f}, {optimum.layer.n_heads} heads")
for n_heads in (1, 2, 3):
    limited = pa.fit(task.X, task.Y, n_heads=n_heads)
    print(f"best with {n_heads}: risk {limited.risk:.6f}, gap to the optimum {limited.gap:.1e}")

chosen = pa.fit(task.X, task.Y, n_heads="auto")
print(f"heads that the noise supports: {chosen.layer.n_heads}")
for name, fitted in (("optimum", optimum), ("chosen", chosen)):
    print(f"{name}: distance {pa.coefficient_distance(fitted.layer, task.layer):.4f} to the truth")
