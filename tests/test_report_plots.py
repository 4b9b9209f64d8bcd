"""plot(): the figure of a layer, a result, a certificate or an estimator."""

import sys

import numpy as np
import pytest
from matplotlib.figure import Figure

import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType, MissingExtra
from polyattn.report import make_page, make_plot
from polyattn.report.head_maps import head_sizes
from polyattn.report.maps import pooled
from report_pages import noisy_fit, noisy_task, tokens_in_a_plane, without_search

task, result, flat = noisy_task, noisy_fit, tokens_in_a_plane


def drawn(figure):
    """The figure rendered, as a PNG: whatever fails when it is drawn fails here."""
    assert isinstance(figure, Figure)
    png = figure._repr_png_()
    assert png.startswith(b"\x89PNG")
    return figure


def maps_in(figure):
    """The axes that show matrices, by title; legends show a ramp."""
    return {
        axes.get_title("left"): axes
        for axes in figure.axes
        if axes.images and not axes.get_title("left").startswith("entries of")
    }


def names(ticks):
    return [text.get_text() for text in ticks]


def test_a_layer_is_drawn_as_its_matrices():
    rng = np.random.default_rng(0)
    attn, value = rng.standard_normal((2, 3, 3)), rng.standard_normal((2, 3, 1))
    layer = pa.SoftmaxAttention(attn, value)
    figure = drawn(layer.plot(coordinate_names=["a", "b", "$c$"], output_names=["y"]))
    found = maps_in(figure)
    assert list(found) == ["head 1: attn", "head 1: value", "head 2: attn", "head 2: value"]
    first, second = np.argsort(-head_sizes(layer))
    for title, matrix in (
        ("head 1: attn", attn[first]),
        ("head 1: value", value[first]),
        ("head 2: attn", attn[second]),
        ("head 2: value", value[second]),
    ):
        np.testing.assert_array_equal(found[title].images[0].get_array(), matrix)
    axes = found["head 1: attn"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("key coordinate", "query coordinate")
    assert names(axes.get_yticklabels()) == names(axes.get_xticklabels()) == ["a", "b", "$c$"]
    axes = found["head 1: value"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("output", "value coordinate")
    assert names(axes.get_xticklabels()) == ["y"]
    legends = [each for each in figure.axes if each.get_title("left").startswith("entries of")]
    assert [each.get_title("left") for each in legends] == ["entries of attn", "entries of value"]
    assert names(legends[0].get_xticklabels())[-1] == f"{np.abs(attn).max():.3g}"


@pytest.mark.parametrize(("d", "e"), [(1, 1), (1, 9), (6, 1), (50, 1), (50, 10), (200, 3)])
def test_cells_of_a_map_can_be_seen(d, e):
    """The sides of the maps are bounded, and cells are square unless a map would be too thin."""
    rng = np.random.default_rng(0)
    layer = pa.SoftmaxAttention(rng.standard_normal((1, d, d)), rng.standard_normal((1, d, e)))
    figure = layer.plot()
    for axes, (rows, columns) in zip(maps_in(figure).values(), ((d, d), (d, e)), strict=True):
        box = axes.get_position()
        width, height = figure.get_size_inches() * (box.width, box.height)
        assert min(width, height) > 0.15
        assert max(width, height) < 2.5
        if min(width, height) > 0.17:
            np.testing.assert_allclose(width / columns, height / rows, rtol=1e-6)
    assert figure.get_size_inches().max() < 10


@pytest.mark.parametrize("size", [1e300, 1e-300, 0.0])
def test_extreme_sizes_are_drawn(size):
    layer = pa.LinearAttention(size * np.eye(2), -np.ones((2, 3)))
    found = maps_in(drawn(layer.plot()))
    colours = found["head 1: attn"].images[0]
    assert colours.norm(colours.get_array()).max() == (1.0 if size else 0.5)


def test_wide_matrices_show_the_largest_entry_of_each_block():
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((300, 5))
    found = pooled(matrix, 128)
    assert found.shape == (128, 5)
    for column in range(5):
        starts = np.arange(128) * 300 // 128
        for k, block in enumerate(np.split(matrix[:, column], starts[1:])):
            assert found[k, column] == block[np.argmax(np.abs(block))]
    np.testing.assert_array_equal(pooled(matrix[:7], 128), matrix[:7])
    wide = pa.SoftmaxAttention(np.ones((600, 600)), np.ones((600, 1)))
    (axes,) = drawn(wide.plot()).axes
    assert axes.get_ylabel() == "size of the head"
    lines = axes.get_lines()[0].get_ydata()
    np.testing.assert_allclose(lines, head_sizes(wide))


def test_parts_that_are_added_are_drawn():
    form = pa.Form(decay=[0.5, 0.9], skip=True, intercept=True)
    rng = np.random.default_rng(0)
    layer = pa.LinearAttention(
        rng.standard_normal((2, 3, 3)), rng.standard_normal((2, 3, 2)), form=form,
        head_scales=[1, 0], skip=rng.standard_normal((3, 2)), intercept=[1.0, -1.0],
    )  # fmt: skip
    found = maps_in(drawn(layer.plot()))
    assert sum("decay 0.5" in title for title in found) == 2
    np.testing.assert_array_equal(found["skip"].images[0].get_array(), layer.skip)
    np.testing.assert_array_equal(found["intercept"].images[0].get_array(), [[1.0, -1.0]])
    with_bias = pa.SoftmaxAttention(np.eye(2), np.ones((2, 1)), bias=True)
    axes = maps_in(with_bias.plot())["head 1: attn"]
    assert names(axes.get_yticklabels()) == ["0", "const"]


def test_maps_of_tokens_are_named_as_what_they_are():
    form = pa.Form(key=[2, 0], value=pa.maps.polynomial(2))
    rng = np.random.default_rng(0)
    n_value = pa.Moments(3, 1, form=form).layout.pairs.n_values
    layer = pa.LinearAttention(
        rng.standard_normal((1, 3, 2)), rng.standard_normal((1, n_value, 1)), form=form, n_dims=3
    )
    found = maps_in(layer.plot(coordinate_names=["a", "b", "c"]))
    assert names(found["head 1: attn"].get_xticklabels()) == ["c", "a"]
    assert names(found["head 1: value"].get_yticklabels())[0].startswith("map ")


def test_a_fit_shows_how_its_ridge_was_chosen(task):
    fitted = without_search(pa.fit(task.X, task.Y, ridge="loo"))
    figure = drawn(fitted.plot())
    (curve,) = (axes for axes in figure.axes if axes.get_xlabel() == "ridge")
    np.testing.assert_array_equal(curve.get_lines()[0].get_ydata(), fitted.ridge_path.errors)
    assert len(maps_in(figure)) == 2 * fitted.layer.n_heads


def test_certificates_audits_and_curves(task, flat):
    (axes,) = drawn(pa.certify(flat).plot()).axes
    assert axes.get_ylabel() == "eigenvalue"
    (axes,) = drawn(pa.certify(np.zeros((4, 2, 2))).plot()).axes
    assert "all features of the data are zero" in axes.texts[0].get_text().replace("\n", " ")
    audit = pa.audit(task.layer, task.X, task.Y)
    risks, _ = drawn(audit.plot()).axes
    assert [bar.get_width() for bar in risks.patches] == [audit.risk, audit.optimal_risk]
    curve = pa.learning_curve(task.X, task.Y, random_state=0)
    (axes,) = drawn(curve.plot()).axes
    np.testing.assert_array_equal(axes.get_lines()[0].get_xdata(), curve.sizes)


def test_softmax_layers_that_were_learned():
    softmax = pa.data.planted_softmax(60, 4, 2, n_heads=1, random_state=0)
    for found in (
        pa.learn_softmax(softmax.X, softmax.Y, n_heads=1),
        pa.learn_from_queries(softmax.layer, n_dims=2),
    ):
        assert len(maps_in(drawn(found.plot()))) == 2


def test_forecasts():
    rng = np.random.default_rng(0)
    tokens = np.cumsum(rng.standard_normal((3, 40, 2)), axis=1) / 10
    result = pa.fit(tokens[:, :-1], tokens[:, 1:], mode="causal", bias=True, ridge=1.0)
    ahead = pa.forecast(result, tokens, 5)
    values, errors = drawn(ahead.plot()).axes
    np.testing.assert_array_equal(values.get_lines()[1].get_ydata(), ahead.values[0][:, 1])
    assert errors.get_xlabel() == "step"


def test_estimators_name_their_classes():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 3, 2)), np.repeat(["no", "yes"], 30)
    model = pa.LinearAttentionClassifier(ridge=1.0, bias=False).fit(X, y)
    axes = maps_in(drawn(model.plot(coordinate_names=["a", "b"])))["head 1: value"]
    assert (axes.get_xlabel(), names(axes.get_xticklabels())) == ("class", ["yes"])


def test_axes_that_are_given_are_drawn_on(task):
    given = Figure().subplots(1, 2)
    figure = task.layer.plot(ax=given)
    assert figure is given[0].figure
    assert [axes.get_title("left") for axes in given] == ["head 1: attn", "head 1: value"]
    inner = Figure().subfigures(1, 2)[0]
    assert pa.certify(task.X).plot(ax=inner.subplots()) is inner.figure


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"ax": "here"}, InvalidType, "ax must be Axes of matplotlib; got str"),
        ({"ax": Figure().add_subplot()}, InvalidInput, r"ax must hold 2 Axes.*'head 1: attn'.*1\."),
        ({"coordinate_names": ["a"]}, InvalidInput, "3 names, one for each coordinate; got 1"),
        ({"output_names": []}, InvalidInput, "3 names, one for each output; got 0"),
    ],
)
def test_what_does_not_fit_is_refused(task, given, error, said):
    with pytest.raises(error, match=said):
        task.layer.plot(**given)


def test_other_things_are_refused():
    with pytest.raises(InvalidType, match=r"a plot is made of one of.*got int"):
        make_plot(3)


def test_without_matplotlib_the_extra_is_named(task, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match="plots"):
        task.layer.plot()


def test_plots_leave_no_state_behind(task, monkeypatch):
    """Neither pyplot nor settings: a figure is drawn in a style of its own."""
    import matplotlib as mpl

    before = mpl.rcParams.copy()
    # Whoever imports it now fails.
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    drawn(task.layer.plot())
    assert mpl.rcParams.copy() == before
    with mpl.rc_context({"figure.facecolor": "black", "text.usetex": True}):
        figure = drawn(task.layer.plot())
    assert figure.get_facecolor() == (1.0, 1.0, 1.0, 1.0)


def test_a_layer_too_large_for_its_coefficients_has_a_page():
    rng = np.random.default_rng(0)
    layer = pa.LinearAttention(rng.standard_normal((1, 300, 300)), rng.standard_normal((300, 300)))
    (heads, _) = make_page(layer).sections
    assert heads.body.count("<image") == 2
    assert "neighbours share a point" in heads.body
    assert len(heads.body) < 200_000
