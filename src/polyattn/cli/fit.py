"""``polyattn fit``: data or statistics in, a fitted layer out."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from polyattn.cli.console import (
    FILE,
    NumberOr,
    Numbers,
    emit,
    json_option,
    output_option,
    passes,
    shown,
    working,
)
from polyattn.cli.io import read_data, require_output
from polyattn.errors import InvalidInput
from polyattn.fitting.fit import fit as fit_layer
from polyattn.quoting import counted
from polyattn.sequences import MODES
from polyattn.solve.ridge import RULES
from polyattn.solve.solvers import SOLVERS, plan
from polyattn.stats import Moments, TriangularFactor
from polyattn.stats.rows import Rows
from polyattn.storage import load, save


@click.command()
@click.argument("data", type=FILE)
@click.option("--targets", type=FILE, help="Y as a .npy file.")
@click.option("--mode", type=click.Choice(MODES), help="Positions to predict [default: last].")
@click.option(
    "--ridge", type=NumberOr(float, RULES), default=0.0, show_default=True,
    help="The penalty, or the rule that chooses it.",
)  # fmt: skip
@click.option("--ridge-grid", type=Numbers(), help="The ridges that a rule chooses from.")
@click.option(
    "--n-heads", "--heads", "n_heads", type=NumberOr(int, ("auto",)),
    help="Limit the number of heads.",
)  # fmt: skip
@click.option("--solver", type=click.Choice(("auto", *SOLVERS)), default="auto", show_default=True)
@click.option("--bias", is_flag=True, help="Append a constant 1 to every token.")
@click.option(
    "--random-state", "--seed", "random_state", type=int, default=0, show_default=True,
    help="Of the search for heads.",
)  # fmt: skip
@click.option("--explain", is_flag=True, help="Only say which solver would be taken, and why.")
@output_option("Where to save the result (.safetensors).")
@json_option
def fit(
    data: Path,
    targets: Path | None,
    mode: str | None,
    ridge: float | str,
    ridge_grid: list[float] | None,
    n_heads: int | str | None,
    solver: str,
    bias: bool,
    random_state: int,
    explain: bool,
    output: Path | None,
    as_json: bool,
) -> None:
    """Fit the best linear attention layer to DATA: the global optimum, in closed form.

    DATA is a .npz with arrays X (sequences, tokens, coordinates) and Y, and perhaps weights (one
    per sequence) and, for sequences of different lengths, lengths (X padded) or offsets (X
    without padding); or X as a .npy with --targets; or statistics that were saved
    (.safetensors).
    """
    require_output(output)
    with working("reading the data"):
        if data.suffix == ".safetensors":
            source: dict[str, Any] = {"statistics": _statistics(data, targets, mode, bias)}
        else:
            source = _sequences(data, targets, mode or "last", bias)
    if explain:
        _explain(source, solver, as_json)
        return
    start = time.perf_counter()
    with passes("solving for the optimum"):
        result = fit_layer(
            **source, ridge=ridge, ridge_grid=ridge_grid, n_heads=n_heads, solver=solver,
            random_state=random_state,
        )  # fmt: skip
    solved = time.perf_counter()
    with working("looking for as few heads as compute it"):
        n_found = result.heads.n_heads
    times = {"seconds": solved - start, "heads_seconds": time.perf_counter() - solved}
    content = result.to_dict() | times
    rows: dict[str, object] = {
        "time to solve": f"{times['seconds']:.3g} s (reading excluded)",
        "time to find heads": f"{times['heads_seconds']:.3g} s for {counted(n_found, 'head')}",
    }
    if output is not None:
        with working("writing"):
            save(result, output)
        content["model"] = rows["saved to"] = str(output)
    emit(content, shown(result, rows, numbers=False), as_json)


def _sequences(data: Path, targets: Path | None, mode: str, bias: bool) -> dict[str, Any]:
    """The arguments of ``polyattn.fit`` from a data file."""
    read = read_data(data, targets)
    return {
        "X": read.sequences(), "Y": read.targets(mode), "mode": mode, "bias": bias,
        "sample_weight": read.weights,
    }  # fmt: skip


def _statistics(
    path: Path, targets: Path | None, mode: str | None, bias: bool
) -> Moments | TriangularFactor:
    loaded = load(path)
    if not isinstance(loaded, Moments | TriangularFactor):
        raise InvalidInput(
            f"{str(path)!r} holds a {type(loaded).__name__}, which is fitted already; DATA must "
            "be sequences (.npz, .npy) or saved statistics."
        )
    if targets is not None or mode is not None or bias:
        raise InvalidInput(
            "statistics already contain targets, mode and bias; leave --targets, --mode and "
            "--bias out."
        )
    return loaded


def _explain(source: dict[str, Any], solver: str, as_json: bool) -> None:
    sums = source.get("statistics")
    if sums is not None:
        own = "primal" if isinstance(sums, Moments) else "direct"
        reason = f"{type(sums).__name__} of {sums.n_features} features are solved so"
        emit({"solver": own, "reason": reason}, [f"{own}: {reason}"], as_json)
        return
    rows = Rows.build(**source)
    made = plan(rows.n_rows, rows.n_dims, rows.n_outputs, solver, rows.bias)
    content = {
        "solver": made.solver, "reason": made.reason, "bytes": made.bytes,
        "n_rows": rows.n_rows, "n_features": rows.n_features, "n_outputs": rows.n_outputs,
    }  # fmt: skip
    emit(content, [str(made)], as_json)
