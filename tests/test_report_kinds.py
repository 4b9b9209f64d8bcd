"""Pages of layers, certificates, audits, statistics and learned softmax layers."""

from dataclasses import replace

import numpy as np
import pytest

import polyattn as pa
from polyattn.errors import InvalidInput
from polyattn.report import make_page
from report_pages import (
    BOUNDS,
    CERTIFICATE,
    HEADS,
    MISSING,
    OUTCOME,
    PREDICTIONS,
    WITNESS,
    body,
    noisy_fit,
    noisy_task,
    titles,
    tokens_in_a_plane,
    written,
)

task, result, flat = noisy_task, noisy_fit, tokens_in_a_plane


def test_layers(task, flat):
    assert titles(make_page(task.layer)) == [HEADS, MISSING]
    assert titles(make_page(task.layer, flat)) == [CERTIFICATE, WITNESS, HEADS, MISSING]
    audited = make_page(task.layer, task.X, task.Y)
    assert titles(audited) == ["How good is the layer?", CERTIFICATE, BOUNDS, HEADS, PREDICTIONS]
    soft = pa.SoftmaxAttention(np.eye(3), np.eye(3), mode="last")
    assert titles(make_page(soft, task.X)) == [HEADS, MISSING]
    assert PREDICTIONS in titles(make_page(soft, task.X, np.asarray(task.Y)))


def test_certificates_audits_and_statistics(task, flat, tmp_path):
    certificate = pa.certify(task.X)
    assert titles(make_page(certificate)) == [CERTIFICATE, BOUNDS]
    assert titles(make_page(pa.certify(flat))) == [CERTIFICATE, WITNESS]
    audit = pa.audit(task.layer, task.X, task.Y)
    assert titles(make_page(audit)) == ["How good is the layer?", CERTIFICATE, BOUNDS]
    sums = pa.Moments(3).update(task.X)
    assert titles(make_page(sums)) == [CERTIFICATE]
    certificate.save(tmp_path / "certificate.json")
    stored = pa.load(tmp_path / "certificate.json")
    assert titles(make_page(stored)) == [CERTIFICATE]
    assert "comes without its data" in body(make_page(stored), CERTIFICATE)
    assert titles(make_page(stored, task.X)) == [CERTIFICATE, BOUNDS]
    with pytest.raises(InvalidInput, match="X are not the data of this certificate"):
        make_page(stored, flat)
    pa.save(audit, tmp_path / "audit.safetensors")
    stored = pa.load(tmp_path / "audit.safetensors")
    assert titles(make_page(stored)) == ["How good is the layer?", CERTIFICATE]
    assert titles(make_page(stored, task.X)) == titles(make_page(audit))


def test_domains_smaller_than_all_real_inputs():
    words = np.eye(4)[np.random.default_rng(0).integers(4, size=(120, 5))]
    page = make_page(pa.certify(words, domain="one_hot"))
    assert "one_hot" in body(page, CERTIFICATE)
    assert "not_identifiable" in body(page, CERTIFICATE)
    finite = pa.domains.Finite(list(words[:10]))
    assert CERTIFICATE in titles(make_page(pa.certify(words, domain=finite)))


def test_learned_softmax_layers(tmp_path):
    task = pa.data.planted_softmax(n_sequences=120, n_tokens=4, n_dims=4, n_heads=1, random_state=0)
    found = pa.learn_softmax(task.X, task.Y, n_heads=1)
    page = make_page(found, task.X, task.Y)
    assert titles(page) == [OUTCOME, HEADS, PREDICTIONS, "How it was found"]
    assert "expected error" in body(page, HEADS)
    nothing = replace(found, attn_error=np.array([np.inf]), noise=float("nan"), phases=())
    assert "expected error unknown" in body(make_page(nothing), HEADS)
    asked = pa.learn_from_queries(task.layer, n_dims=4)
    assert titles(make_page(asked))[:2] == [OUTCOME, HEADS]
    failed = replace(asked, layer=None, error=ValueError("<b>no</b>"), validation_error=None)
    html = written(failed, tmp_path / "page.html")
    assert "&lt;b&gt;no&lt;/b&gt;" in html
    assert "<b>no" not in html


def test_the_line_under_the_title(task, result):
    assert make_page(result).lead == "Linear attention, 3 coordinates to 3 outputs, mode last."
    ragged = [np.ones((1, 3)), np.ones((4, 3))]
    assert make_page(task.layer, ragged).lead == (
        "Linear attention, 1 head, 3 coordinates to 3 outputs, mode last, beside 2 sequences of "
        "1 to 4 tokens."
    )
    sums = pa.Moments(3).update(task.X)
    assert make_page(sums).lead == "Sums of 150 sequences, 8 tokens of 3 coordinates, mode last."
