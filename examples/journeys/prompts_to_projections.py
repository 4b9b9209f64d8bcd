"""From prompts in torch to projections in torch
=============================================

You study in-context learning: prompts come out of a torch data loader, and you want the best layer
for them instead of a training run, the error over the number of prompts, and W_Q, W_K, W_V, W_O to
put into a Transformer.
"""

# %%
# Prompts as they come
# --------------------
#
# Each prompt has a linear function w of its own: tokens (x, y) with y = <w, x> + noise, and at the
# end a question (x, 0). They stay torch tensors.

import matplotlib.pyplot as plt
import numpy as np
import torch

import polyattn as pa

D, EXAMPLES, NOISE = 4, 24, 0.2


def prompts(n_prompts, seed):
    """Tensors (n_prompts, EXAMPLES + 1, D + 1) and (n_prompts,)."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(n_prompts, EXAMPLES + 1, D, generator=draw)
    w = torch.randn(n_prompts, D, 1, generator=draw)
    y = x @ w
    noise = NOISE * torch.randn(n_prompts, EXAMPLES, 1, generator=draw)
    shown = torch.cat([y[:, :-1] + noise, torch.zeros(n_prompts, 1, 1)], dim=1)
    return torch.cat([x, shown], dim=2), y[:, -1, 0]


X, y = prompts(4000, seed=0)
X_new, y_new = prompts(4000, seed=1)

# %%
# The optimum
# -----------
#
# The question is asked with the inputs, and not attended to; keys are inputs, values are labels.
# One call finds the least error that any number of heads can have.

form = pa.Form(include_query=False, mean=True, query=range(D), key=range(D), value=[D])
result = pa.fit(X, y, form=form)
print(result)

# %%
# For Gaussian prompts the best layer is known: one step of gradient descent on the examples, with
# a preconditioner. The fit has found it, up to the sample, without knowing of it.

known = pa.data.OneStep.of(np.eye(D), EXAMPLES, NOISE)
error = float(np.mean((result.predict(X_new)[:, 0] - y_new.numpy()) ** 2))
print(f"error on new prompts: {error:.4f} fitted, {known.risk:.4f} the best possible")
assert np.abs(result.coef[0].T - known.mean_step).max() < 0.05
assert known.risk * 0.9 < error < known.risk * 1.1

# %%
# Is it the only one, and how far can it be off?
# ----------------------------------------------

print(pa.certify(X, form=form).sentence)
print(result.generalisation(0.95).sentence)

# %%
# How many prompts does it take?
# ------------------------------
#
# Every point is a global optimum, so the curve shows the data and the layer, and no optimiser.

sizes = [8, 12, 16, 20, 40, 100, 400, 2000]
curve = pa.learning_curve(X, y, sizes, form=form, X_test=X_new, Y_test=y_new, n_repeats=8)
print(curve.outcome)
assert curve.sizes[np.argmax(curve.test_risk)] == curve.n_features == D * D

figure, axes = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
axes.errorbar(curve.sizes, curve.test_risk, curve.test_error, color="#0b6e4f", label="fitted")
axes.axhline(known.risk, color="black", linestyle="--", label="best possible")
axes.set(xscale="log", yscale="log", xlabel="prompts", ylabel="error on new prompts")
axes.set_title("The error peaks at as many prompts as coefficients", loc="left")
axes.legend(frameon=False)
plt.savefig("prompts_to_projections.png")

# %%
# Projections for a Transformer
# -----------------------------
#
# The layer as W_Q, W_K, W_V, W_O, with heads of two coordinates, computed here by torch alone.

projections = pa.interop.to_projections(result.layer, head_dim=2)
print(projections)
W_Q, W_K, W_V, W_O = (
    torch.tensor(getattr(projections, name)) for name in ("W_Q", "W_K", "W_V", "W_O")
)
tokens = X_new.double()
inputs, labels = tokens[..., :D], tokens[..., D:]
queries = torch.einsum("nd,hdk->nhk", inputs[:, -1], W_Q)
keys = torch.einsum("ntd,hdk->nhtk", inputs[:, :-1], W_K)
values = torch.einsum("ntd,hdv->nhtv", labels[:, :-1], W_V)
scores = torch.einsum("nhk,nhtk->nht", queries, keys) / projections.scale / EXAMPLES
outputs = torch.einsum("nht,nhtv,hve->ne", scores, values, W_O)
np.testing.assert_allclose(outputs.numpy(), result.predict(X_new), atol=1e-10)

# %%
# Or as a module, with parameters that can be trained further, and gradients in the tokens.

module = pa.interop.to_torch(result.layer)
tokens.requires_grad_(True)
loss = torch.mean((module(tokens)[:, 0] - y_new) ** 2)
loss.backward()
print(f"loss of the module {loss.item():.4f}, gradient of the tokens {tuple(tokens.grad.shape)}")
assert abs(loss.item() - error) < 1e-9
