"""``polyattn learn-softmax``: examples in, the heads of a softmax attention layer out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import numpy as np
from rich.console import Console, RenderableType
from rich.table import Table

from polyattn.cli.console import (
    FILE,
    NumberOr,
    emit,
    json_option,
    output_option,
    plain,
    shown,
    working,
)
from polyattn.cli.io import DataFile, read_data, require_output
from polyattn.errors import InvalidInput
from polyattn.quoting import counted
from polyattn.sequences import MODES, SequenceBatch
from polyattn.softmax import LearnedSoftmax, learn_softmax
from polyattn.softmax.arguments import METHODS
from polyattn.softmax.outcomes import percent
from polyattn.storage import save
from polyattn.targets import as_weights

# The exit code for a layer that was found but not recovered: scripts can tell.
NOT_RECOVERED = 4


@click.command("learn-softmax")
@click.argument("data", type=FILE)
@click.option("--targets", type=FILE, help="Y as a .npy file.")
@click.option("--mode", type=click.Choice(MODES), default="full", show_default=True)
@click.option("--bias", is_flag=True, help="The layer sees a constant 1 beside every token.")
@click.option(
    "--n-heads", "--heads", "n_heads", type=NumberOr(int, ("auto",)), default="auto",
    show_default=True, help="The number of heads; auto: the data decide.",
)  # fmt: skip
@click.option("--max-heads", type=int, help="The most to look for when it is not given.")
@click.option("--method", type=click.Choice(METHODS), default="auto", show_default=True)
@click.option("--noise", type=float, help="Standard deviation of the targets' errors, if known.")
@click.option("--max-seconds", type=float, help="Stop with the best layer after this time.")
@click.option("--random-state", "--seed", "random_state", type=int, default=0, show_default=True)
@output_option("Where to save the result (.safetensors).")
@json_option
def learn_softmax_verb(
    data: Path,
    targets: Path | None,
    mode: str,
    bias: bool,
    n_heads: int | str,
    max_heads: int | None,
    method: str,
    noise: float | None,
    max_seconds: float | None,
    random_state: int,
    output: Path | None,
    as_json: bool,
) -> None:
    """Recover the heads of a softmax attention layer from DATA.

    DATA is a .npz with arrays X (sequences, tokens, coordinates) and Y, as for fit, but
    without weights: every sequence counts once.  Ctrl-C keeps the best layer so far.  Exit code
    0: recovered, the held-out check passed and the data determine every head; 4: a layer was
    found, but it is not the one, or that is open.
    """
    require_output(output)
    with working("reading the data"):
        read = read_data(data, targets)
        X, Y = read.sequences(), read.targets(mode)
        _require_equal_weights(read, X)
    start = time.perf_counter()
    with _following() as follow:
        learned = learn_softmax(
            X, Y, n_heads, method, random_state, mode=mode, bias=bias, noise=noise,
            max_heads=max_heads, max_seconds=max_seconds, callback=follow,
        )  # fmt: skip
    content = learned.to_full_dict() | {"seconds": time.perf_counter() - start}
    if output is not None:
        save(learned, output)
        content["model"] = str(output)
    text = learned_text(learned)
    if output is not None:
        text.append(f"saved to {output}")
    emit(content, text, as_json)
    if not learned.recovered:
        raise click.exceptions.Exit(NOT_RECOVERED)


def learned_text(learned: LearnedSoftmax) -> list[RenderableType]:
    """What it says of itself, a table of heads and one of phases, for people."""
    return [*shown(learned, numbers=False), _heads(learned), _phases(learned)]


def _require_equal_weights(read: DataFile, X: SequenceBatch) -> None:
    """Refuse weights that would make a difference: learning counts every sequence once."""
    weights = as_weights(read.weights, X)
    if weights is None or (weights[0] > 0 and np.all(weights == weights[0])):
        return
    raise InvalidInput(
        f"{str(read.path)!r} holds 'weights' from {weights.min():g} to {weights.max():g}, which "
        "learn-softmax does not use: every sequence counts once. Leave out the sequences of weight "
        "zero, then remove the array."
    )


def _share(error: float) -> str:
    return percent(error, 1) if np.isfinite(error) else "open"


def _heads(learned: LearnedSoftmax) -> Table:
    table = Table(title="heads", title_justify="left")
    for name in ("head", "|attn|", "rank", "expected error", "|value|", "rank", "expected error"):
        table.add_column(name, justify="right")
    for h in range(learned.n_heads):
        attn, value = learned.layer.attn[h], learned.layer.value[h]
        table.add_row(
            str(h + 1), f"{np.hypot.reduce(attn, axis=None):.3g}", str(np.linalg.matrix_rank(attn)),
            _share(learned.attn_error[h]), f"{np.hypot.reduce(value, axis=None):.3g}",
            str(np.linalg.matrix_rank(value)), _share(learned.value_error[h]),
        )  # fmt: skip
    return table


def _phases(learned: LearnedSoftmax) -> Table:
    table = Table(title="phases", title_justify="left")
    table.add_column("phase")
    table.add_column("what it measured", overflow="fold")
    table.add_column("seconds", justify="right")
    for phase in learned.phases:
        table.add_row(plain(phase.name), plain(phase.sentence), f"{phase.seconds:.2f}")
    return table


@contextmanager
def _following() -> Iterator[Callable[[str, int, float], None]]:
    """A line on stderr that follows the search; terminals only."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda *_: None
        return
    with console.status("looking for heads") as status:

        def follow(phase: str, n_heads: int, error: float) -> None:
            status.update(
                f"{phase}: {counted(n_heads, 'head')}, relative error {error:.1e} (Ctrl-C keeps it)"
            )

        yield follow
