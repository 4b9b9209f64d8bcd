"""The page that ``polyattn demo`` writes: the report of its fit, and Adam beside it."""

from __future__ import annotations

from typing import Any

from polyattn.report import Page, Section, fill
from polyattn.report.fits import fit_page
from polyattn.report.page_data import GivenData
from polyattn.report.races import draw_race
from polyattn.report.statement import plot, statement
from polyattn_papers.tasks.recovery import Recovery, RecoveryTask


def demo_page(figures: dict[str, Any], found: Recovery, task: RecoveryTask) -> Page:
    """The figures of a demo first, then all that a report shows of the fit."""
    validation = GivenData.of(
        task.X_validation, task.Y_validation, task.layer.mode, task.layer.n_dims
    )
    sections = [
        Section("The result", fill("result", "polyattn.cli", **figures)),
        *fit_page(found.result, validation, found.certificate),
        _beside(figures),
    ]
    size = figures["task"]
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
    race = draw_race("Adam", curve["seconds"], curve["errors"], done)
    picture = plot(race, "Validation error over time, both logarithmic", caption)
    return statement("Beside gradient descent", pictures=[picture])
