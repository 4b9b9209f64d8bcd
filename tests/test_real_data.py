"""The studies in examples/ on real series and real layers: pages say what was found, parts work."""

import importlib
import json
import re
import runpy
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
SERIES, LAYERS = (ROOT / "examples" / name for name in ("real_data", "real_layers"))
PYTHON = ROOT / ".venv-optional" / "bin" / "python"
ROWS = json.loads((SERIES / "results.json").read_text())["rows"]
METHODS = ["attention recipe", "with decay and log-loss", "default estimator",
           "default aeon adapter", "ridge on summaries", "1NN-DTW", "MiniRocket"]  # fmt: skip


def test_the_page_has_the_tables_of_the_results():
    tables = SimpleNamespace(**runpy.run_path(str(SERIES / "tables.py")))
    page = (ROOT / "docs" / "real_data.md").read_text()
    results = tables.Results(ROWS)
    assert tables.with_tables(page, tables.tables(results)) == page
    for field in ("score", "fit_seconds", "predict_seconds"):  # negative control
        others = [row | {field: 0.5 * row[field]} for row in ROWS]
        assert tables.with_tables(page, tables.tables(tables.Results(others))) != page
    made = {(row["data"], row["method"], row["split"]) for row in ROWS}
    assert len(made) == len(ROWS)
    whole = [n for n in results.sets if all((n, m, i) in made for m in METHODS for i in range(5))]
    assert len(whole) >= 10
    # The page says: never worse than summaries by more than a standard error over splits.
    for name in results.sets:
        difference = results.losses(name, METHODS[0]) - results.losses(name, METHODS[4])
        assert difference.mean() <= tables.standard_error(difference), name


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason="`make real-data` has made no environment yet")
def test_the_comparison_runs(tmp_path):
    sets = ["--only", "CardanoSentiment", "--only", "UnitTest", "--splits", "2"]
    command = [PYTHON, "-W", "ignore", "compare.py", *sets, "--out", tmp_path / "rows.json"]
    done = subprocess.run(command, cwd=SERIES, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    scores = {(row["data"], row["split"], row["method"]): row["score"] for row in ROWS}
    assert len(rows) == 2 * 2 * 7
    for row in rows:  # a twentieth of UnitTest is one series, which rounding may move
        expected = scores[row["data"], row["split"], row["method"]]
        assert row["score"] == pytest.approx(expected, abs=0.06), row


SIZES = {
    "hidden_size": 12, "num_attention_heads": 3, "num_hidden_layers": 2, "intermediate_size": 20,
    "vocab_size": 30, "max_position_embeddings": 16, "hidden_act": "gelu",
    "attn_implementation": "eager",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "albert"])
def test_an_encoder_is_that_of_transformers_and_can_be_studied(kind, tmp_path, monkeypatch, capsys):
    torch, transformers = map(pytest.importorskip, ("torch", "transformers"))
    monkeypatch.syspath_prepend(str(LAYERS))
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
