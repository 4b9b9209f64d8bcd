"""Rotary layers wherever layers go: handled, or refused in a sentence that says why."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

import polyattn as pa
from polyattn.cli.main import cli
from polyattn.errors import InvalidInput
from rotary_cases import random_rotary


def test_show_prints_frequencies_and_the_offset_of_attn(tmp_path):
    path = str(tmp_path / "layer.safetensors")
    layer = random_rotary("causal", bias=True)
    pa.save(layer, path)
    shown = CliRunner().invoke(cli, ["show", path, "--weights"])
    assert shown.exit_code == 0, shown.output
    assert "rotary positions in 2 planes" in " ".join(shown.output.split())
    assert "query[0] (4, 4):" in shown.output
    assert "attn at offset 0 of head 1" in CliRunner().invoke(cli, ["show", path]).output
    found = CliRunner().invoke(cli, ["show", path, "--json"])
    assert json.loads(found.output)["frequencies"] == layer.frequencies.tolist()


def test_pages_and_plots_say_which_attention_they_show(tmp_path):
    layer = random_rotary()
    page = tmp_path / "page.html"
    X = np.random.default_rng(0).standard_normal((20, 5, 3))
    layer.report(page, X=X, Y=layer(X))
    text = page.read_text(encoding="utf-8")
    assert "With rotary positions attention depends on how far a query and a key are apart" in text
    assert "attn at offset 0" in text
    titles = [ax.get_title("left") for ax in layer.plot().axes]
    assert any("attn at offset 0" in title for title in titles)
    plain = pa.data.random_softmax_layer(3).plot()
    assert not any("offset" in ax.get_title("left") for ax in plain.axes)


def test_wide_layers_are_shown_without_their_matrices():
    """attn of this layer would take 80 GB."""
    wide = pa.SoftmaxAttention(
        (np.ones((1, 100_000, 2)), np.ones((1, 100_000, 2))), np.ones((1, 100_000, 1)), rotary=10.0
    )
    assert wide.describe().matrices == {}
    assert "100000" in repr(wide).replace(",", "")
    assert wide(np.full((2, 100_000), 1e-5)).shape == (2, 1)
    assert wide._repr_html_()


def test_an_audit_sees_the_rotation():
    layer = random_rotary("causal")
    X = np.random.default_rng(1).standard_normal((60, 6, 3))
    still = pa.SoftmaxAttention(layer.attn, layer.value, "causal")
    right, wrong = (pa.audit(each, X, layer(X)) for each in (layer, still))
    assert right.risk == 0.0
    assert wrong.risk > 0.1


@pytest.mark.parametrize("call", [
    pa.softmax.identifiable_heads,
    lambda layer: pa.softmax.non_degeneracy(layer, np.ones((5, 4, 3))),
])  # fmt: skip
def test_what_is_about_one_matrix_refuses(call):
    with pytest.raises(InvalidInput, match=r"one matrix attn.* has rotary positions; .*canonical"):
        call(random_rotary())


def test_learners_do_not_claim_to_have_recovered_it():
    layer = random_rotary(n_heads=1)
    X = np.random.default_rng(2).standard_normal((150, 4, 3))
    learned = pa.learn_softmax(X, layer(X), n_heads=1)
    assert not learned.recovered
    asked = pa.learn_from_queries(layer, 3)
    assert not asked.outcome.ok
