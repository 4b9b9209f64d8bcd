"""What the tests of pages share: titles of sections, parts of pages, small data to show."""

import re
from dataclasses import replace

import numpy as np
import pytest
from markupsafe import Markup

import polyattn as pa
from polyattn.report import write_report

OUTCOME, CERTIFICATE, HEADS = "What was found", "Do the data determine the layer?", "Heads"
PREDICTIONS, BOUNDS = "Predicted against true", "How far apart can good layers be?"
WITNESS, MISSING = "Two layers that the data cannot tell apart", "What is not shown"


# Fixtures, which a module names: ``task, result = noisy_task, noisy_fit``.


@pytest.fixture(scope="module")
def noisy_task():
    return pa.data.planted(150, 8, 3, n_heads=1, mode="last", noise=0.05, random_state=0)


@pytest.fixture(scope="module")
def noisy_fit(task):
    return without_search(pa.fit(task.X, task.Y, mode="last"))


@pytest.fixture(scope="module")
def tokens_in_a_plane():
    """They determine no layer."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((60, 5, 2)) @ rng.standard_normal((2, 3))


def without_search(result):
    """Heads by a decomposition: a search for few is not what these tests are about."""
    return replace(result, known_heads=pa.heads.factor(result.coef))


def titles(page):
    return [section.title for section in page.sections]


def body(page, title):
    (found,) = (section.body for section in page.sections if section.title == title)
    return in_one_piece(found)


def written(thing, path, *data):
    write_report(thing, path, *data)
    return in_one_piece(path.read_text(encoding="utf-8"))


def in_one_piece(html):
    """HTML without the marks around numbers, which keep lines from ending in them."""
    return Markup(re.sub(r'<span style="white-space: nowrap">(.*?)</span>', r"\1", html))  # noqa: S704 – ours


def requests(page):
    """Whatever would make a browser ask somebody: addresses, but for the names of SVG."""
    text = re.sub(r'xmlns(:xlink)?="http://www\.w3\.org/[\w/]+"', "", page)
    return re.findall(r"https?://|@import|\b(?:src|href)=\"(?!data:|#)", text)
