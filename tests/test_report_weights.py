"""Pages of weighted data."""

import re
from dataclasses import replace

import numpy as np
import pytest

import polyattn as pa
from polyattn.errors import InvalidInput
from polyattn.form.layout import Layout
from polyattn.report import make_page
from polyattn.report.page_data import PageData
from report_pages import (
    CERTIFICATE,
    PREDICTIONS,
    body,
    noisy_fit,
    noisy_task,
    without_search,
)

task, result = noisy_task, noisy_fit


@pytest.mark.parametrize("mode", ["last", "causal"])
def test_a_weighted_fit_shows_one_mean_error(task, tmp_path, mode):
    rng = np.random.default_rng(1)
    X, weights = np.asarray(task.X), rng.uniform(0.0, 2.0, len(task.X))
    weights[:5] = 0.0
    Y = rng.standard_normal((len(X), 2) if mode == "last" else (*X.shape[:2], 2))
    found = without_search(pa.fit(X, Y, mode=mode, sample_weight=weights))
    found.report(tmp_path / "page.html", X, Y, sample_weight=weights)
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    shown = re.findall(r"mean \|\|y − F\(X\)\|\|²[^<]*</td><td>([^<]*)<", text)
    assert len(shown) == 2
    assert shown[0] == shown[1]
    # Without the weights the mean is another, and said to be.
    plain = body(make_page(found, X, Y), PREDICTIONS)
    assert "counts once" in plain
    assert shown[0] not in plain
    # A layer is audited with the weights, and the page is about the positions that have one.
    audited = make_page(found.layer, X, Y, weights)
    assert f"{found.risk:.4g}" in audited.sections[0].body
    zero = replace(found, statistics=None)
    few = np.where(np.arange(len(X)) == 3, 1.0, 0.0)
    assert "Not identifiable" in body(make_page(zero, X, Y, few), CERTIFICATE)


def test_weights_that_say_nothing_are_refused(task, result):
    X = np.asarray(task.X)
    with pytest.raises(InvalidInput, match="sample_weight was given without X"):
        make_page(result, sample_weight=np.ones(len(X)))
    with pytest.raises(InvalidInput, match="zero everywhere"):
        make_page(result, X, sample_weight=np.zeros(len(X)))
    with pytest.raises(InvalidInput, match="sample_weight says nothing about a Certificate"):
        make_page(pa.certify(X), X, sample_weight=np.ones(len(X)))


def test_a_sample_of_weighted_data_has_weight(task):
    X, Y = np.asarray(task.X), np.asarray(task.Y)
    weights = np.where(np.isin(np.arange(len(X)), (7, 90)), 2.0, 0.0)
    some, chosen = PageData.of(X, Y, Layout.plain(3), sample_weight=weights).sample(1)
    assert list(chosen) == [7]
    np.testing.assert_array_equal(some.row_weights, [2.0])
