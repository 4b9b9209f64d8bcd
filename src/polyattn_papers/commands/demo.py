"""``polyattn demo``: a planted layer, recovered from data, beside gradient descent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from polyattn.cli import console, tables
from polyattn.cli.tables import Grid
from polyattn.errors import MissingExtra
from polyattn.model import coefficient_distance
from polyattn.report.figures import OTHER, OURS, PlotAxes, log_ticks
from polyattn.report.fits import fit_page
from polyattn.report.page import Page, Section, fill, plot, statement
from polyattn.report.page_data import PageData
from polyattn_papers.tasks.recovery import (
    Recovery,
    RecoverySettings,
    RecoveryTask,
    make_task,
    recover,
)

if TYPE_CHECKING:
    from polyattn_papers.baselines.train_linear import LinearRun

#: What is reported of the certificate.
CERTIFIED = (
    "verdict", "verdict_on_real_inputs", "lambda_min", "lambda_max", "rank", "n_features",
    "method", "rounding", "sentence",
)  # fmt: skip

# Errors below this are drawn at it: a perfect fit has no logarithm.
SMALLEST = 1e-40


@click.command()
@click.option(
    "--seconds", type=click.FloatRange(0, min_open=True), default=10.0, show_default=True,
    help="How long Adam may train.",
)  # fmt: skip
@click.option("--no-adam", is_flag=True, help="Leave the comparison with Adam out.")
@click.option(
    "--random-state", "--seed", "random_state", type=click.IntRange(0), default=0,
    show_default=True, help="Of the data.",
)  # fmt: skip
@console.output_option("Where to write the report.", "--out", default=Path("demo-report.html"))
@console.json_option
def demo(seconds: float, no_adam: bool, random_state: int, output: Path, as_json: bool) -> None:
    """Plant an attention layer, recover it from data, and report.

    Generates the data of the paper's experiment (4 coordinates, 2048 sequences of 100 tokens,
    causal, one head), fits in closed form, says whether the data determine the layer, trains
    the same by Adam for a while, and writes one self-contained HTML page.
    """
    settings = RecoverySettings(seed=random_state)
    with console.working("making the data"):
        task = make_task(settings)
    with console.working("fitting"):
        found = recover(task)
    adam, note = (None, "Adam was left out (--no-adam).") if no_adam else _adam(task, seconds)
    content = _figures(settings, found, task, adam, note)
    content["report"], line = str(output), f"report: {output}"
    try:
        with console.working("writing the report"):
            demo_page(content, found, task).write(output)
    except MissingExtra as error:
        # Figures need no page.
        content["report"], line = None, f"no report was written: {error}"
    console.emit(content, [*_text(content), line], as_json)


def _adam(task: RecoveryTask, seconds: float) -> tuple[LinearRun | None, str]:
    """A run of Adam, or the reason why there is none."""
    try:
        from polyattn_papers.baselines.train_linear import train_linear
    except MissingExtra as error:
        return None, f"Adam was left out: {error}"
    sets = (task.X, task.Y, task.X_validation, task.Y_validation)
    with console.progress("training by Adam", seconds) as move:
        return train_linear(*sets, seconds, on_look=lambda elapsed, _: move(elapsed)), ""


def _figures(
    settings: RecoverySettings,
    found: Recovery,
    task: RecoveryTask,
    adam: LinearRun | None,
    note: str,
) -> dict[str, Any]:
    """All that is reported, in plain types: the same for JSON, terminal and page."""
    figures: dict[str, Any] = {
        "task": asdict(settings) | {"mode": "causal", "n_outputs": task.layer.n_outputs},
        "closed_form": {
            "seconds": found.fit_seconds + found.heads_seconds,
            "fit_seconds": found.fit_seconds,
            "heads_seconds": found.heads_seconds,
            "validation_error": found.validation_error,
            "n_heads": found.n_heads,
            "distance": found.distance,
            "outcome": str(found.result.outcome),
            "solver": found.result.solver,
        },
        "target_power": found.target_power,
        "certificate": {name: getattr(found.certificate, name) for name in CERTIFIED},
        "adam": None,
        "note": note,
    }
    if adam is not None:
        figures["adam"] = asdict(adam.settings) | {
            "seconds": adam.seconds[-1],
            "n_steps": adam.n_steps,
            "validation_error": adam.errors[-1],
            "distance": coefficient_distance(adam.layer, task.layer),
            "curve": {"seconds": adam.seconds, "errors": adam.errors},
        }
    return figures


def _text(content: dict[str, Any]) -> list[str | Grid]:
    size, closed, adam = content["task"], content["closed_form"], content["adam"]
    sides = [side for side in (closed, adam) if side]
    rows = [
        (name, *(form.format(side[key]) if key in side else "" for side in sides))
        for name, key, form in (
            ("time", "seconds", "{:.3g} s"),
            ("of it for the search for heads", "heads_seconds", "{:.3g} s"),
            ("validation error", "validation_error", "{:.2e}"),
            ("heads", "n_heads", "{}"),
            ("distance to the planted layer", "distance", "{:.2e}"),
        )
    ]
    headings = ("", "closed form", "Adam")[: 1 + len(sides)]
    head = "one planted head" if size["n_heads"] == 1 else f"{size['n_heads']} planted heads"
    data = (
        f"data: {size['n_sequences']} sequences of {size['n_tokens']} tokens with "
        f"{size['n_dims']} coordinates, causal, {head}; {size['n_validation']} more for validation"
    )
    compared = tables.table("recovering the planted layer", headings, rows)
    sentences = [closed["outcome"], content["certificate"]["sentence"], content["note"]]
    return [data, compared, *filter(None, sentences)]


def demo_page(figures: dict[str, Any], found: Recovery, task: RecoveryTask) -> Page:
    """The figures of a demo first, then all that a report shows of the fit."""
    layer, size = task.layer, figures["task"]
    validation = PageData.of(task.X_validation, task.Y_validation, layer.layout)
    sections = [
        Section("The result", fill("result", "polyattn_papers.commands", **figures)),
        *fit_page(found.result, validation, certificate=found.certificate),
        _beside(figures),
    ]
    heads = "1 head" if size["n_heads"] == 1 else f"{size['n_heads']} heads"
    lead = (
        f"{size['n_sequences']} sequences of {size['n_tokens']} tokens with {size['n_dims']} "
        f"coordinates were given to a random causal linear attention layer with {heads}. Only its "
        f"inputs and outputs were kept. {size['n_validation']} further sequences judge the answer."
    )
    return Page("A planted attention layer, recovered", lead, sections)


def _beside(figures: dict[str, Any]) -> Section:
    adam = figures["adam"]
    if adam is None:
        return statement("Beside gradient descent", lines=[figures["note"]])
    caption = (
        f"Adam: {adam['n_heads']} head, rate {adam['learning_rate']}, batches of "
        f"{adam['batch_size']}, gradient norm clipped at {adam['max_norm']:g}, "
        f"{adam['n_steps']:,} steps. Looking at the validation error is not counted in its time."
    )
    curve, closed = adam["curve"], figures["closed_form"]
    done = (closed["seconds"], closed["validation_error"])
    draw = partial(draw_error_over_time, curve["seconds"], curve["errors"], done)
    picture = plot(draw, "Validation error over time, both logarithmic", caption)
    return statement("Beside gradient descent", pictures=[picture])


def draw_error_over_time(
    seconds: Sequence[float], errors: Sequence[float], done: tuple[float, float], axes: PlotAxes
) -> None:
    """The error of Adam over time beside ``done``, the seconds and error of the closed form."""
    axes.set(xscale="log", yscale="log", xlabel="seconds", ylabel="validation error")
    axes.plot(seconds, [max(error, SMALLEST) for error in errors], color=OTHER, label="Adam")
    end = max(done[1], SMALLEST)
    axes.plot(done[0], end, "o", color=OURS, markersize=8, label="closed form, done")
    axes.legend(loc="best")
    log_ticks(axes.xaxis)
    log_ticks(axes.yaxis)
