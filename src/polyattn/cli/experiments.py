"""``polyattn reproduce``, ``bench`` and ``demo``: what is claimed, run on this machine."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import RenderableType

from polyattn.cli.console import emit, json_option, output_option, progress, table, working
from polyattn.cli.io import require_output
from polyattn.errors import MissingExtra, PolyattnError
from polyattn.model import coefficient_distance
from polyattn.report import Page, Section, fill
from polyattn.report.figures import draw_error_over_time
from polyattn.report.fits import fit_page
from polyattn.report.page import plot, statement
from polyattn.report.page_data import PageData
from polyattn_papers.comparisons import ALL, Comparison, comparisons
from polyattn_papers.reproduction import NAMES, Reproduction, find
from polyattn_papers.reproduction import reproduce as run
from polyattn_papers.reproduction.experiment import PROFILES
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


@click.command(epilog="Names: " + ", ".join((*NAMES, "all")) + ".")
@click.argument("name")
@click.option(
    "--profile", type=click.Choice(PROFILES), default="smoke", show_default=True,
    help="smoke: under a minute each; full: the paper's sizes, an hour or two in all.",
)  # fmt: skip
@output_option("The folder to write to.", "--out", default=Path("reproduction"), metavar="DIR")
@click.option("--recompute", "--fresh", "fresh", is_flag=True, help="Run finished cells again.")
@click.option(
    "--jobs", type=click.IntRange(1), default=1, show_default=True,
    help="Cells at a time; above 1 measured times share the machine.",
)  # fmt: skip
@json_option
def reproduce(name: str, profile: str, output: Path, fresh: bool, jobs: int, as_json: bool) -> None:
    """Run an experiment of the papers again.

    It writes DIR/NAME with table, picture and page.  An interrupted run goes on where it was when
    the same command is given again.  The exit code is 1 if a gate fails.
    """
    names = NAMES if name == "all" else (find(name).name,)
    made = [_one(one, profile, output, fresh, jobs) for one in names]
    # The rows are in the table that was written.
    summaries = [
        {key: value for key, value in one.to_dict().items() if key != "rows"} for one in made
    ]
    index = str(output / "index.html")
    tables = [
        table(
            f"{one.experiment.name}: {one.experiment.title}",
            ("gate", "seen", ""),
            ((gate.claim, gate.seen, "holds" if gate.passed else "FAILS") for gate in one.gates),
        )
        for one in made
    ]
    emit({"reproductions": summaries, "index": index}, [*tables, f"page: {index}"], as_json)
    failed = [one.experiment.name for one in made if not one.passed]
    if failed:
        raise PolyattnError(f"gates fail in: {', '.join(failed)}.")


def _one(name: str, profile: str, output: Path, fresh: bool, jobs: int) -> Reproduction:
    done = 0
    total = len(find(name).cells(profile))
    try:
        with progress(name, total) as move:

            def follow(number: int, _: int, __: str) -> None:
                nonlocal done
                done = number
                move(number)

            return run(name, output, profile, fresh, jobs, follow)
    except KeyboardInterrupt:
        click.echo(
            f"\n{name}: interrupted, {done} of {total} cells are finished; "
            f"the same command{' without --recompute' if fresh else ''} goes on from there.",
            err=True,
        )
        raise


@click.command()
@click.option(
    "--size-factor", "--scale", "scale", type=click.FloatRange(0, min_open=True), default=1.0,
    show_default=True, help="Multiplies the number of sequences.",
)  # fmt: skip
@json_option
def bench(scale: float, as_json: bool) -> None:
    """Compare polyattn with the obvious way to do the same.

    On small data, both sides in this process; answers that differ beyond rounding are an error.
    """
    found: list[Comparison] = []
    with progress("comparing", len(ALL)) as move:
        for comparison in comparisons(scale):
            found.append(comparison)
            move(len(found))
    rows = [asdict(one) | {"ratio": one.ratio, "agrees": one.agrees} for one in found]
    headings = ("job", "polyattn", "other way", "ratio", "answers differ by")
    lines = [
        (
            f"{one.name} ({one.sizes})\nagainst {one.other}",
            f"{1e3 * one.seconds:.1f} ms",
            f"{1e3 * one.other_seconds:.1f} ms",
            f"{one.ratio:.2f}x",
            f"{one.difference:.0e}" + ("" if one.agrees else " – WRONG"),
        )
        for one in found
    ]
    text = table("polyattn bench: the best of a few runs each", headings, lines)
    emit({"comparisons": rows}, [text], as_json)
    wrong = [one.name for one in found if not one.agrees]
    if wrong:
        raise PolyattnError(f"the answers differ beyond rounding in: {', '.join(wrong)}.")


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
@output_option("Where to write the report.", "--out", default=Path("demo-report.html"))
@json_option
def demo(seconds: float, no_adam: bool, random_state: int, output: Path, as_json: bool) -> None:
    """Plant an attention layer, recover it from data, and report.

    Generates the data of the paper's experiment (4 coordinates, 2048 sequences of 100 tokens,
    causal, one head), fits in closed form, says whether the data determine the layer, trains
    the same by Adam for a while, and writes one self-contained HTML page.
    """
    require_output(output)
    settings = RecoverySettings(seed=random_state)
    with working("making the data"):
        task = make_task(settings)
    with working("fitting"):
        found = recover(task)
    adam, note = (None, "Adam was left out (--no-adam).") if no_adam else _adam(task, seconds)
    content = _figures(settings, found, task, adam, note)
    content["report"], line = str(output), f"report: {output}"
    try:
        with working("writing the report"):
            demo_page(content, found, task).write(output)
    except MissingExtra as error:
        # Figures need no page.
        content["report"], line = None, f"no report was written: {error}"
    emit(content, [*_text(content), line], as_json)


def _adam(task: RecoveryTask, seconds: float) -> tuple[LinearRun | None, str]:
    """A run of Adam, or the reason why there is none."""
    try:
        from polyattn_papers.baselines.train_linear import train_linear
    except MissingExtra as error:
        return None, f"Adam was left out: {error}"
    sets = (task.X, task.Y, task.X_validation, task.Y_validation)
    with progress("training by Adam", seconds) as move:
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


def _text(content: dict[str, Any]) -> list[RenderableType]:
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
    compared = table("recovering the planted layer", headings, rows)
    sentences = [closed["outcome"], content["certificate"]["sentence"], content["note"]]
    return [data, compared, *filter(None, sentences)]


def demo_page(figures: dict[str, Any], found: Recovery, task: RecoveryTask) -> Page:
    """The figures of a demo first, then all that a report shows of the fit."""
    layer, size = task.layer, figures["task"]
    validation = PageData.of(task.X_validation, task.Y_validation, layer.mode, layer.n_dims)
    sections = [
        Section("The result", fill("result", "polyattn.cli", **figures)),
        *fit_page(found.result, validation, found.certificate),
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
    figure = draw_error_over_time("Adam", curve["seconds"], curve["errors"], done)
    picture = plot(figure, "Validation error over time, both logarithmic", caption)
    return statement("Beside gradient descent", pictures=[picture])
