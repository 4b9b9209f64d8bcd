"""Numbers on pages and cards: no line ends within one, however narrow the window is."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import escape

import polyattn as pa
from polyattn.report import make_page
from polyattn.report.unbroken import unbroken
from report_pages import in_one_piece, without_search

WIDTHS = (320, 768, 1280)

# Sentences in which every word can come to the end of a line.
NUMBERS = ["1.5e-15", "-2e-07", "1e-300", "53.3 %", "0.41 ± 0.02", "1,234,567.8", "2^-500"]
SENTENCE = " ".join(f"{'word ' * (k * k % 5)}{each} x" for k, each in enumerate(NUMBERS * 30))


def page_of(path, body):
    path.write_text(
        f'<!doctype html><meta charset="utf-8"><body style="width: 17rem">{body}', encoding="utf-8"
    )
    return path


def test_lines_do_not_end_within_numbers(browser, tmp_path):
    for width in WIDTHS:
        browser.open(page_of(tmp_path / "page.html", f"<p>{unbroken(SENTENCE)}</p>"), width)
        assert browser.broken_numbers() == []


def test_broken_numbers_are_found(browser, tmp_path):
    """Negative control: the same sentence as it is."""
    browser.open(page_of(tmp_path / "page.html", f"<p>{escape(SENTENCE)}</p>"), 320)
    broken = browser.broken_numbers()
    assert {"1.5e-15", "53.3 %", "0.41 ± 0.02"} <= set(broken)


@pytest.mark.parametrize("size", [1.0, 1e150])
def test_pages_of_fits_break_no_number(browser, tmp_path, size):
    task = pa.data.planted(80, 6, 3, n_heads=1, mode="last", noise=1e-9, random_state=0)
    result = without_search(pa.fit(task.X, size * task.Y, ridge="loo"))
    result.report(tmp_path / "fit.html", task.X, size * task.Y)
    page = (tmp_path / "fit.html").read_text(encoding="utf-8")
    assert re.search(r"nowrap\">[^<]*e[-+]", page)
    for width in WIDTHS:
        browser.open(tmp_path / "fit.html", width)
        assert browser.broken_numbers() == []
        assert browser.overflow()[0] == 0


def test_cards_break_no_number(browser, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 5, 2)) @ rng.standard_normal((2, 3))
    Y = 1e-9 * rng.standard_normal((60, 2))
    result = pa.fit(X, Y)
    layer = pa.LinearAttention(1e-9 * np.ones((2, 2)), -1e-9 * np.ones((2, 1)))
    cards = [each._repr_html_() for each in (result, pa.certify(X), layer, pa.Moments(3, 1))]
    for width in WIDTHS:
        browser.open(page_of(tmp_path / "cards.html", "".join(cards)), width)
        assert browser.broken_numbers() == []


def test_names_of_a_witness_count_from_zero():
    """As the messages about sequences, tokens and coordinates do."""
    flat = np.ones((5, 2, 2))
    table = str(make_page(pa.certify(flat)).sections[1].body)
    assert re.findall(r"<th>(x\d)</th>", table) == ["x0", "x1"]
    assert "token 0" in table
    named = make_page(pa.certify(flat), coordinate_names=["speed", "<b>"])
    table = str(named.sections[1].body)
    assert re.findall(r"<th>([^<]+)</th>", table)[:2] == ["speed", "&lt;b&gt;"]


@given(st.text(alphabet="a1.-−+e% ±,<&\"'^ "))
def test_the_text_stays_what_it_was(text):
    assert in_one_piece(unbroken(text)).unescape() == text
    assert unbroken(escape(text)) == escape(text)


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(1, 17))
def test_every_number_that_could_break_is_kept_whole(number, digits):
    shown = f"{number:.{digits}g}"
    made = unbroken(f"about {shown}, or so")
    assert in_one_piece(made) == f"about {shown}, or so"
    assert (f">{shown}<" in made) == ("e" in shown or shown.count("-") > shown.startswith("-"))


@pytest.mark.parametrize(
    ("text", "whole"),
    [("5-fold", []), ("a1-5", []), ("x-1e-5y", []), ("(1e-05).", ["1e-05"]), ("-3", []),
     ("1e-3, 2e-3", ["1e-3", "2e-3"]), ("3 ± 1 %", ["3 ± 1 %"])],
)  # fmt: skip
def test_what_counts_as_a_number(text, whole):
    assert re.findall(r"nowrap\">(.*?)</span>", unbroken(text)) == whole
