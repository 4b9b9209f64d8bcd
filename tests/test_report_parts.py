"""What pages are made of: spectra, heads, maps of colours, samples of the data."""

import re
from dataclasses import replace

import numpy as np
import pytest

import polyattn as pa
from polyattn.form.layout import Layout
from polyattn.form.pairs import unfold_coef
from polyattn.report import make_page
from polyattn.report.certificates import draw_spectrum, spectrum_of
from polyattn.report.figures import drawing, finish_ranked, inline_svg, new_figure
from polyattn.report.head_maps import head_sizes
from polyattn.report.maps import draw_map
from polyattn.report.page_data import PageData, spread
from report_pages import (
    HEADS,
    body,
    noisy_task,
    tokens_in_a_plane,
    without_search,
)

task, flat = noisy_task, tokens_in_a_plane


def test_the_spectrum_is_that_of_the_moments(task):
    certificate = pa.certify(task.X)
    spectrum = spectrum_of(certificate.evidence)
    expected = pa.Moments(3).update(task.X).spectrum()[::-1]
    np.testing.assert_allclose(spectrum.values, expected, rtol=1e-9)
    assert spectrum.n_above == 18
    assert 0 < spectrum.floor < spectrum.values[-1]
    axes = new_figure().add_subplot()
    draw_spectrum(spectrum, axes)
    assert [text.get_text() for text in axes.get_legend().get_texts()][1] == "rounding floor"


def test_the_floor_separates_what_is_zero(flat):
    spectrum = spectrum_of(pa.certify(flat).evidence)
    assert spectrum.n_above == 6
    boolean = np.random.default_rng(0).choice([-1, 1], size=(200, 4, 3))
    on_domain = spectrum_of(pa.certify(boolean, domain="boolean").evidence)
    assert on_domain.n_above == len(on_domain.values) == 12


def test_heads_are_ordered_by_size():
    attn = np.eye(2) * np.array([1.0, 3.0, 2.0])[:, None, None]
    layer = pa.LinearAttention(attn, np.stack([np.eye(2)] * 3))
    np.testing.assert_allclose(head_sizes(layer), [2.0, 6.0, 4.0])
    sizes = re.findall(r"size ([\d.]+)", body(make_page(layer), HEADS))
    assert sizes == ["6", "4", "2"]


def test_of_many_heads_the_largest_are_shown():
    rng = np.random.default_rng(0)
    layer = pa.LinearAttention(rng.standard_normal((20, 4, 4)), rng.standard_normal((20, 4, 4)))
    section = body(make_page(layer), HEADS)
    assert section.count("<image") == 32
    assert "the 16 largest of 20 heads" in section


@pytest.mark.parametrize("size", [1e-300, 3.28, 1e9, 1e300])
def test_heads_of_one_size_have_an_axis(size):
    """Sizes that differ by rounding leave no range; matplotlib would warn, and a warning fails."""
    layer = pa.LinearAttention(size * np.ones((1, 1)), np.ones((1, 1)))
    assert "sizes of the heads" in body(make_page(layer), HEADS)
    axes = new_figure().add_subplot()
    axes.set_yscale("log")
    axes.plot([1, 2], [size, size * (1 + 1e-15)], "o", label="heads")
    finish_ranked(axes)
    low, high = axes.get_ylim()
    assert low < 0.6 * size < 1.5 * size < high
    ticks = axes.get_xaxis().get_majorticklocs()
    assert np.array_equal(ticks, np.round(ticks))


def test_a_map_has_one_colour_per_entry():
    axes = new_figure().add_subplot()
    matrix = np.array([[1.0, -0.5], [0.0, 2.0]])
    draw_map(axes, matrix, 2.0)
    (image,) = axes.images
    np.testing.assert_array_equal(image.get_array(), matrix)
    pixels = image.to_rgba(image.get_array())
    np.testing.assert_allclose(pixels[..., 3], [[0.5, 0.25], [0.0, 1.0]], atol=1 / 31)
    assert pixels[0, 0, 0] > pixels[0, 0, 2]
    assert pixels[0, 1, 0] < pixels[0, 1, 2]


def test_samples_are_whole_sequences_evenly_spaced():
    X = [np.full((length, 1), i) for i, length in enumerate([2, 3, 2, 3, 2, 3])]
    Y = [np.full((len(x), 1), i) for i, x in enumerate(X)]
    data = PageData.of(X, Y, Layout.plain(1, "causal"))
    some, chosen = data.sample(8)
    assert chosen.tolist() == [0, 2, 4] or chosen.tolist() == [0, 2, 3]
    np.testing.assert_array_equal(some.targets, some.batch.values)
    assert len(data.places(chosen)) == some.n_rows
    assert data.sample(10**6)[0] is data
    assert len(data.sample(1)[0].batch) == 1
    assert spread(10, 3).tolist() == [0, 4, 9]
    assert spread(2, 3).tolist() == [0, 1]


def test_the_rank_of_the_heads_does_not_depend_on_units(tmp_path):
    rng = np.random.default_rng(7)
    units = np.array([1e3, 1e-3, 5e6, 1.0])
    truth = pa.data.random_layer(4, n_heads=4, mode="last", random_state=3)
    plain = [rng.standard_normal((rng.integers(3, 9), 4)) for _ in range(200)]
    X, Y = [tokens * units for tokens in plain], truth(plain)
    ranks = []
    for tokens in (plain, X):
        fitted = without_search(pa.fit(tokens, Y, mode="last"))
        pa.save(fitted, tmp_path / "fit.safetensors")
        again = replace(pa.load(tmp_path / "fit.safetensors"), statistics=None)
        for thing, given in ((fitted, ()), (again, (tokens,)), (fitted.layer, (tokens, Y))):
            shown = body(make_page(thing, *given), HEADS)
            ranks.append(re.findall(r"rank (\d+)", shown))
    assert ranks == [ranks[0]] * len(ranks)
    assert ranks[0] == [str(np.linalg.matrix_rank(unfolded(pa.fit(plain, Y).coef)))]
    # Of this one nothing is known of the units: then nothing is said.
    assert not re.search(r"rank \d", body(make_page(again), HEADS))


def unfolded(coef):
    """The symmetric part of the tensor as a matrix (e d, d d)."""
    tensor = unfold_coef(coef)
    return tensor.reshape(len(tensor) * tensor.shape[1], -1)


@pytest.mark.parametrize("base", [10, 2])
def test_logarithmic_axes_have_plain_numbers_and_no_formulas(base):
    """Whoever draws: pages show text as it is, so that formulas would be raw TeX."""
    figure = new_figure()
    with drawing():
        axes = figure.add_subplot()
        axes.plot([1, 2, 3], [0.03, 0.2, 0.4])
        axes.set_yscale("log", base=base)
        formula = axes.yaxis.get_major_formatter()(0.25 if base == 2 else 0.1)
    assert "mathdefault" in formula  # what matplotlib would write
    drawn = str(inline_svg(figure, "numbers"))
    assert "mathdefault" not in drawn
    assert "$" not in drawn
    assert f">{0.25 if base == 2 else 0.1}<" in drawn


def test_pages_and_pictures_of_forecasts_have_plain_numbers(tmp_path):
    t = np.arange(120)
    wave = np.sin(t / 4) + 0.1 * np.random.default_rng(0).standard_normal(120)
    ahead = pa.forecast(wave, 20, form=pa.Form(mode="causal", window=2, lags=2))
    ahead.report(tmp_path / "ahead.html")
    text = (tmp_path / "ahead.html").read_text(encoding="utf-8")
    assert "mathdefault" not in text
    _, errors = ahead.plot().axes
    errors.figure.canvas.draw()
    assert all("$" not in label.get_text() for label in errors.get_yticklabels())
