"""Cards: what notebooks show."""

import re

import numpy as np
import pytest

import polyattn as pa
from report_pages import (
    in_one_piece,
    noisy_fit,
    noisy_task,
    tokens_in_a_plane,
)

task, result, flat = noisy_task, noisy_fit, tokens_in_a_plane


def test_a_fit_is_shown_without_looking_for_heads(task, monkeypatch):
    found = pa.fit(task.X, task.Y)
    monkeypatch.setattr("polyattn.fitting.result.compress", pytest.fail)
    card = found._repr_html_()
    assert "Looked for when layer is asked for" in card
    assert "heads" not in vars(found)
    assert str(found.outcome) in in_one_piece(card)


def test_known_heads_are_counted(result):
    n_heads = result.layer.n_heads
    assert re.search(rf"heads</td><td[^>]*>{n_heads}</td>", result._repr_html_())


def test_certificates(flat, task):
    assert "Not identifiable" in pa.certify(flat)._repr_html_()
    assert "Identifiable" in pa.certify(task.X)._repr_html_()
    assert "The layer has risk" in pa.audit(task.layer, task.X, task.Y)._repr_html_()


def test_layers(task):
    small = task.layer._repr_html_()
    assert "1 head, 3 coordinates to 3 outputs, mode last" in small
    assert small.count("<td") == 18
    wide = pa.SoftmaxAttention(np.eye(20), np.eye(20))._repr_html_()
    assert "<td" not in wide
    assert pa.LinearAttention(np.zeros((2, 2)), np.zeros((2, 1)))._repr_html_()


def test_programs():
    programs = pa.programs
    compiled = programs.compile(programs.universal_turing_machine(3, 2, 8))
    card = compiled._repr_html_()
    assert "heads" not in vars(compiled)
    assert str(compiled.terms[0]) in card.replace("&lt;", "<").replace("&amp;", "&").replace(
        "&gt;", ">"
    )
    assert compiled.n_heads > 0
    assert ">heads<" in compiled._repr_html_()
    program = programs.universal_dfa(3, 3, 4, style="one_hot")
    learned = programs.learn(program.schema, programs.traces(program, n_traces=10))
    assert str(learned.outcome) in learned._repr_html_()
    assert "instructions" in program._repr_html_()
    assert "undecided" in learned.certificate._repr_html_()


def test_a_program_as_it_was_written_has_a_page(tmp_path):
    program = pa.programs.universal_dfa(3, 3, 4, style="one_hot")
    program.report(tmp_path / "page.html", pa.programs.machines.divisibility(3), [1, 1, 0])
    assert "Universal DFA" in (tmp_path / "page.html").read_text()


def test_softmax():
    task = pa.data.planted_softmax(60, 4, 3, n_heads=1, random_state=0)
    assert "LearnedSoftmax" in pa.learn_softmax(task.X, task.Y, n_heads=1)._repr_html_()
    asked = pa.learn_from_queries(task.layer, n_dims=3)
    assert "queries" in asked._repr_html_()
