"""The encoders of examples/real_layers are those of transformers; all parts of the study run."""

import importlib
import re
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

FOLDER = Path(__file__).resolve().parent.parent / "examples" / "real_layers"
SIZES = {
    "hidden_size": 12, "num_attention_heads": 3, "num_hidden_layers": 2, "intermediate_size": 20,
    "vocab_size": 30, "max_position_embeddings": 16, "hidden_act": "gelu",
    "attn_implementation": "eager",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "albert"])
def test_an_encoder_is_that_of_transformers_and_can_be_studied(kind, tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(FOLDER))
    encoders, study = importlib.import_module("encoder"), importlib.import_module("study")
    name, more = ("Bert", {}) if kind == "bert" else ("Albert", {"embedding_size": 8})
    settings = getattr(transformers, f"{name}Config")(**SIZES, **more)
    module = getattr(transformers, f"{name}Model")(settings, add_pooling_layer=False)
    module = module.double().eval()
    torch.manual_seed(0)
    rng = np.random.default_rng(2)
    with torch.no_grad():
        for each in module.parameters():
            each.copy_(0.5 * torch.randn_like(each))
        ids = rng.integers(30, size=(3, 16))
        wanted = module(torch.tensor(ids), output_hidden_states=True).hidden_states
    weights = {name: each.numpy() for name, each in module.state_dict().items()}
    encoder = encoders.Encoder(weights, kind, 2, 3)
    steps = encoder.steps(list(ids))
    last = encoder.finish(1, steps[-1].tokens, steps[-1].attended)
    for found, known in zip([*(each.tokens for each in steps), last], wanted, strict=True):
        np.testing.assert_allclose(found, known.numpy(), rtol=0, atol=1e-11)
    lengths = [8] * 40 if kind == "bert" else [5, 8] * 20
    some = [rng.integers(30, size=length) for length in lengths]
    study.run(encoder, encoder.weights, some, some[:4], 1, tmp_path, n_features=6)
    printed = capsys.readouterr().out
    assert float(re.search(r"differ from the encoder by (\S+)\.\n", printed)[1]) < 1e-12
    found = re.search(r"Beside the weights: attn (\S+), value (\S+)\.\n", printed)
    assert max(map(float, found.groups())) < 1e-6
    pages = {each.name for each in tmp_path.glob("*.html")}
    assert pages == {"heads.html", "linearised.html", "queries.html"}
