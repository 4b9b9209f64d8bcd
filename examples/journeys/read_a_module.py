"""Read a module, compile another
==============================

You study what attention computes: a torch module with biases and a causal mask is read out by
queries alone, its circuits are compared with those of a trained copy, and then the other way round:
a Turing machine is written into one layer, whose every coordinate has a meaning.
"""

# %%
# A module that only answers
# --------------------------

import matplotlib.pyplot as plt
import numpy as np
import torch

import polyattn as pa

torch.manual_seed(0)
D, HEADS = 8, 2
module = torch.nn.MultiheadAttention(D, HEADS, batch_first=True).double().eval()
torch.nn.init.normal_(module.in_proj_bias, std=0.5)
torch.nn.init.normal_(module.out_proj.bias, std=0.5)


def answers(X, attention=module):
    """Outputs (B, n, D) of the module behind its causal mask."""
    tokens = torch.from_numpy(X)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(X.shape[1], dtype=torch.float64)
    with torch.no_grad():
        return attention(tokens, tokens, tokens, attn_mask=mask, need_weights=False)[0].numpy()


# %%
# Nothing of its weights is looked at: sequences go in, outputs come out.

found = pa.learn_from_queries(answers, n_dims=D, bias=True)
print(found)
assert found.recovered

# %%
# Now the weights are looked at, to see that this is them. Heads are read from the last position,
# which sees all tokens whether there is a mask or not; the other positions show that there is one.

true = pa.interop.from_torch(module, mode="causal")
assert found.layer.mode == "causal"
match = pa.match_heads(found.layer, true)
print(match)
assert pa.same_function(found.layer, true, tolerance=1e-6)

# %%
# Circuits compared
# -----------------
#
# What a head attends to is its product W_Q W_K^T, what it writes is W_V W_O: whatever training does
# to the four, these two are the circuits. Here is a copy whose second head was trained a little.

copy = torch.nn.MultiheadAttention(D, HEADS, batch_first=True).double().eval()
copy.load_state_dict(module.state_dict())
with torch.no_grad():
    copy.in_proj_weight[D // 2 : D] += 0.1 * torch.randn(D // 2, D, dtype=torch.float64)

other = pa.learn_from_queries(lambda X: answers(X, copy), n_dims=D, bias=True)
compared = pa.match_heads(other.layer, found.layer)
print(compared)
same, changed = np.sort(compared.attn_errors)
assert same < 1e-6
assert changed > 0.01
assert compared.worst_value < 1e-6

figure, axes = plt.subplots(2, HEADS, figsize=(6.4, 5.6), layout="constrained")
for h, (before, after) in enumerate(axes.T):
    circuits = found.layer.attn[h], other.layer.attn[compared.order[h]]
    limit = max(np.abs(each).max() for each in circuits)
    for each, panel, name in zip(circuits, (before, after), ("before", "after"), strict=True):
        panel.imshow(each, cmap="PuOr", vmin=-limit, vmax=limit)
        panel.set_title(f"head {h}, {name}", loc="left")
        panel.set(xlabel="key coordinate", ylabel="query coordinate")
        panel.set(xticks=range(D + 1), yticks=range(D + 1))  # the last one is the constant
figure.suptitle("What each head attends to, read out by queries")
plt.savefig("read_a_module.png")

# %%
# A Turing machine in one layer
# -----------------------------
#
# The other way round: a universal Turing machine is compiled into heads. The machine that it runs
# is part of the prompt, here the busy beaver of four states.

P = pa.programs
turing = P.compile(P.universal_turing_machine(n_states=4, n_letters=2, n_cells=32))
run = turing.run(P.machines.busy_beaver(4), [], position=16)
print(turing)
print(f"halted: {run.halted}, after {run.steps} steps, with {sum(run.tape)} ones on the tape")
assert (run.halted, run.steps, sum(run.tape)) == (True, 107, 13)

# %%
# Every coordinate of its tokens has a meaning, so every weight of its heads can be read.

meaning = turing.schema.atoms  # meaning[i] is what coordinate i says; schema.coordinates inverts it
for number in (0, 1, 2, turing.n_dims - 1):
    attribute, value = meaning[number]
    print(f"coordinate {number:2}: {attribute} = {value}")

head = turing.layer.attn[0]
print("head 0 multiplies what the newest token says with what each token says:")
for row, column in np.argwhere(head)[:4]:
    print(f"  {head[row, column]:+g}  {meaning[row]}  x  {meaning[column]}")
assert turing.schema.coordinates[meaning[5]] == 5
