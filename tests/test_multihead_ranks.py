"""Heads whose ranks fit torch.nn.MultiheadAttention within a tolerance only."""

import numpy as np
import pytest

import oracle
import polyattn as pa
from polyattn.errors import InvalidInput

torch = pytest.importorskip("torch", reason="torch is not installed")


def test_ranks_are_those_within_tolerance():
    """Heads of rank two, blurred by 1e-10: what is dropped is stated, and is all that changes."""
    rng = np.random.default_rng(3)
    attn, low = (
        rng.standard_normal((2, 5, 2)) @ rng.standard_normal((2, 2, width)) for width in (5, 4)
    )
    blurred = pa.SoftmaxAttention(attn + 1e-10 * rng.standard_normal(attn.shape), low, bias=True)
    with pytest.raises(InvalidInput, match=r"rank 4.*head_dim = 2"):
        pa.interop.to_multihead(blurred)
    with pytest.raises(InvalidInput, match="tolerance"):
        pa.interop.to_multihead(blurred, tolerance=-1)
    module = pa.interop.to_multihead(blurred, tolerance=1e-8)
    assert type(module) is torch.nn.MultiheadAttention
    assert 1e-12 < module.relative_change < 1e-8
    assert "relative_change" not in module.state_dict()
    X = rng.standard_normal((6, 5, 4))
    with torch.no_grad():
        found = module(*[torch.tensor(X)] * 3)[0].numpy()
    given = [oracle.softmax_forward(blurred.attn, low, oracle.with_constant(x), "full") for x in X]
    assert 1e-13 < oracle.relative_error(found, np.array(given)) < 1e-8
    exact = pa.interop.to_multihead(pa.SoftmaxAttention(attn, low, bias=True))
    assert exact.relative_change < 1e-12


@pytest.mark.slow
def test_layers_recovered_from_queries_fit_within_tolerance():
    """Answers in single precision: heads of rank 4 come back with rank 8, and the error says so."""
    torch.manual_seed(0)
    module = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.4)

    def answers(X):
        tokens = torch.tensor(X, dtype=torch.float32)
        with torch.no_grad():
            return module(tokens, tokens, tokens)[0].numpy().astype(np.float64)

    found = pa.learn_from_queries(answers, 8, bias=True).layer
    with pytest.raises(InvalidInput, match="head_dim = 4") as caught:
        pa.interop.to_multihead(found)
    named = float(str(caught.value).split("tolerance=")[1].split(",")[0])
    again = pa.interop.to_multihead(found, tolerance=named)
    assert again.relative_change <= named < 1e-4
    assert pa.same_function(
        pa.interop.from_torch(again), pa.interop.from_torch(module), tolerance=1e-4
    )
