"""make_plot: one figure of what matters most of a layer, a result or an estimator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from textwrap import wrap
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from polyattn.auditing import Audit, HeadAudit
from polyattn.certify import Certificate
from polyattn.display import figure
from polyattn.errors import InvalidInput, InvalidType
from polyattn.fitting.curve_result import LearningCurve
from polyattn.fitting.forecasting.result import Forecast
from polyattn.fitting.one_hot.result import OneHotFit
from polyattn.fitting.result import FitResult
from polyattn.interop import Circuits
from polyattn.linearising.result import Linearised
from polyattn.model.layer import AttentionLayer
from polyattn.model.linearised import LinearisedAttention
from polyattn.quoting import counted, shortened
from polyattn.report.certificates import draw_spectrum, spectrum_if_possible
from polyattn.report.circuits import composition_maps, matrices_of
from polyattn.report.figures import OTHER, OURS, PlotAxes, drawing, finish_ranked
from polyattn.report.fits import draw_decay, draw_ridge, heads_of
from polyattn.report.forecasts import draw_errors, draw_values
from polyattn.report.head_audits import bars_height, draw_heads
from polyattn.report.head_maps import MapsOfLayer, head_sizes, maps_of_layer, ranked
from polyattn.report.learning_curves import draw_curve
from polyattn.report.linearised import draw_losses
from polyattn.report.maps import legend_panel
from polyattn.report.names import SideNames
from polyattn.report.panels import Panel, panels_figure
from polyattn.softmax import LearnedSoftmax, QueryResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Panels that stay together, and legends, which given axes have no place for.
Groups: TypeAlias = "list[list[Panel]]"

# So many panels are named where axes do not fit them.
MOST_NAMED = 6


def make_plot(
    thing: Any,
    *,
    ax: Any = None,
    coordinate_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
) -> Figure:
    """The figure of a layer, a result, a certificate, an audit, a curve or an estimator.

    ax : Axes, or as many of them as there are panels, to draw on instead of a new figure
    """
    # Loaded when needed: scikit-learn is slow to load, and the command line imports this.
    from polyattn.report.estimators import as_shown

    shown = as_shown(thing)
    thing = shown.thing
    panels_of = next((row for kind, row in _PANELS.items() if isinstance(thing, kind)), None)
    if panels_of is None:
        kinds = ", ".join(kind.__name__ for kind in _PANELS)
        raise InvalidType(f"a plot is made of one of {kinds}; got {type(thing).__name__}.")
    sizes = thing.describe().sizes
    n_outputs = len(shown.classes) or sizes.get("n_outputs")
    known = shown.coordinate_names if coordinate_names is None else coordinate_names
    names = SideNames.of(known, output_names, sizes.get("n_dims"), n_outputs)
    if shown.classes:
        names = names.with_classes(shown.classes, shown.several)
    groups, legends = panels_of(thing, names)
    if ax is None:
        return panels_figure([*groups, *([legends] if legends else [])])
    return _on_given(ax, [panel for group in groups for panel in group])


def _on_given(ax: Any, panels: Sequence[Panel]) -> Figure:
    """The panels drawn on axes that were given, one each."""
    with drawing():
        from matplotlib.axes import Axes

        given = [ax] if isinstance(ax, Axes) else list(np.ravel(np.asarray(ax, dtype=object)))
        wrong = next((each for each in given if not isinstance(each, Axes)), None)
        if wrong is not None:
            raise InvalidType(f"ax must be Axes of matplotlib; got {type(wrong).__name__}.")
        if len(given) != len(panels):
            named = ", ".join(repr(panel.name) for panel in panels[:MOST_NAMED])
            named += ", ..." if len(panels) > MOST_NAMED else ""
            raise InvalidInput(
                f"ax must hold {len(panels)} Axes, one for each panel ({named}); got {len(given)}. "
                "Without ax a new figure is made."
            )
        for axes, panel in zip(given, panels, strict=True):
            panel.draw(axes)
    drawn: Any = given[0].figure
    return drawn if drawn.figure is None else drawn.figure


def _of_layer(layer: AttentionLayer, names: SideNames) -> tuple[Groups, list[Panel]]:
    """The maps of the heads; of matrices with too many entries the sizes of the heads."""
    found = _as_panels(maps_of_layer(layer, names, titled=True))
    return found or ([[Panel("sizes of heads", partial(_draw_sizes, layer))]], [])


def _of_fit(result: FitResult, names: SideNames) -> tuple[Groups, list[Panel]]:
    """The heads, then the errors by which ridge and decay were chosen."""
    layer, why_not = heads_of(result)
    groups, legends = _in_words("heads", why_not) if layer is None else _of_layer(layer, names)
    if result.decay_path is not None:
        groups.append([Panel("decay", partial(draw_decay, result.decay_path))])
    if result.ridge_path is not None:
        groups.append([Panel("ridge", partial(draw_ridge, result.ridge, result.ridge_path))])
    return groups, legends


def _of_one_hot(result: OneHotFit, _: SideNames) -> tuple[Groups, list[Panel]]:
    return _in_words("heads", f"The heads of many symbols are not drawn. {result.sentence}")


def _of_learned(
    found: LearnedSoftmax | QueryResult, names: SideNames
) -> tuple[Groups, list[Panel]]:
    if found.layer is None:
        return _in_words("heads", found.sentence)
    return _of_layer(found.layer, names)


def _of_certificate(certificate: Certificate, _: SideNames) -> tuple[Groups, list[Panel]]:
    spectrum, why_not = spectrum_if_possible(certificate)
    if spectrum is None:
        return _in_words("spectrum", f"{certificate.sentence} {why_not}")
    return [[Panel("spectrum", partial(draw_spectrum, spectrum))]], []


def _of_audit(found: Audit, names: SideNames) -> tuple[Groups, list[Panel]]:
    """The risk beside the least one, and whether the data determine the optimum."""
    groups, _ = _of_certificate(found.certificate, names)
    return [[Panel("risk", partial(_draw_risks, found), 2.6, 1.0, left=1.3)], *groups], []


def _of_heads(found: HeadAudit, _: SideNames) -> tuple[Groups, list[Panel]]:
    """The bars of each layer."""
    return [
        [
            Panel(
                f"layer {layer}", partial(draw_heads, found, layer), 3.0,
                bars_height(len(found.heads_of(layer))), top=0.65,
            )
        ]
        for layer in range(found.n_layers)
    ], []  # fmt: skip


def _of_curve(curve: LearningCurve, _: SideNames) -> tuple[Groups, list[Panel]]:
    return [[Panel("risk over sequences", partial(draw_curve, curve=curve))]], []


def _of_linearised(found: Linearised, _: SideNames) -> tuple[Groups, list[Panel]]:
    return [[Panel("what is lost", partial(draw_losses, found=found))]], []


def _of_linearised_layer(layer: LinearisedAttention, _: SideNames) -> tuple[Groups, list[Panel]]:
    return _in_words("layer", str(layer.describe()))


def _of_forecast(ahead: Forecast, _: SideNames) -> tuple[Groups, list[Panel]]:
    """The tokens that follow, and how errors grow."""
    if not np.any(ahead.n_done):
        return _in_words("forecast", ahead.sentence)
    values = Panel("tokens that follow", partial(draw_values, ahead=ahead))
    return [[values], [Panel("errors", partial(draw_errors, ahead=ahead))]], []


def _of_circuits(found: Circuits, _: SideNames) -> tuple[Groups, list[Panel]]:
    """How heads of several layers compose; the matrices of one layer."""
    if found.n_layers == 1:
        return _as_panels(matrices_of(found, titled=True)) or _in_words("circuits", found.sentence)
    maps = composition_maps(found)
    return [[each.panel for each in maps]], [legend_panel("composition", maps[0].largest)]


def _as_panels(found: MapsOfLayer | None) -> tuple[Groups, list[Panel]] | None:
    """Maps of heads, and what their colours mean; None where there are none."""
    if found is None:
        return None
    groups = [[part.panel for part in each.parts] for each in found.maps]
    return groups, [legend_panel(*each) for each in found.full_colour.items() if each[1] > 0]


def _in_words(name: str, text: str) -> tuple[Groups, list[Panel]]:
    """A panel that says why there is nothing to draw."""

    def draw(axes: PlotAxes) -> None:
        axes.set_axis_off()
        lines = "\n".join(wrap(shortened(text, 600), 60))
        axes.text(0, 1, lines, transform=axes.transAxes, va="top", fontsize=9)

    return [[Panel(name, draw, left=0.2)]], []


def _draw_sizes(layer: AttentionLayer, axes: PlotAxes) -> None:
    sizes = head_sizes(layer)
    sizes = sizes[ranked(sizes)]
    axes.set(xlabel="number, largest first", ylabel="size of the head")
    if np.any(sizes > 0):
        axes.set_yscale("log")
    heads = counted(layer.n_heads, "head")
    axes.plot(np.arange(len(sizes)) + 1, sizes, "o", color=OURS, label=heads)
    if np.any(sizes > 0):
        finish_ranked(axes)


def _draw_risks(found: Audit, axes: PlotAxes) -> None:
    risks = [found.risk, found.optimal_risk]
    axes.barh([0, 1], risks, color=[OURS, OTHER])
    axes.set_yticks([0, 1], ["the layer", "best layer"])
    axes.invert_yaxis()
    for place, risk in enumerate(risks):
        axes.annotate(
            figure(risk), (risk, place), (3, 0), textcoords="offset points", va="center", fontsize=9
        )
    axes.margins(x=0.35)
    axes.locator_params(axis="x", nbins=4)
    axes.set(xlabel="risk, mean ||y − F(X)||²")
    axes.grid(visible=False, axis="y")


# For each kind the function that lists its panels, in groups, and its legends.
_PANELS: dict[type, Callable[[Any, SideNames], tuple[Groups, list[Panel]]]] = {
    OneHotFit: _of_one_hot,
    FitResult: _of_fit,
    AttentionLayer: _of_layer,
    LearnedSoftmax: _of_learned,
    QueryResult: _of_learned,
    Certificate: _of_certificate,
    Audit: _of_audit,
    HeadAudit: _of_heads,
    LearningCurve: _of_curve,
    Linearised: _of_linearised,
    LinearisedAttention: _of_linearised_layer,
    Forecast: _of_forecast,
    Circuits: _of_circuits,
}
