"""``polyattn fit`` and ``learn-softmax``: data in, a layer out."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

import polyattn as pa
from polyattn.cli import console, tables
from polyattn.cli.data import GivenData, data_argument, data_options, take_data
from polyattn.cli.estimator_options import Wanted, estimator_options
from polyattn.cli.form import form_options, refuse_form, take_form
from polyattn.cli.gathering import GatheringOptions, gathering_options, take_gathering
from polyattn.cli.io import NEEDED
from polyattn.cli.sections import SectionedCommand
from polyattn.cli.tables import Grid
from polyattn.errors import InvalidInput
from polyattn.quoting import counted, readable_bytes, readable_seconds
from polyattn.sequences import MODES
from polyattn.softmax.arguments import METHODS
from polyattn.softmax.outcomes import percent
from polyattn.solve.log_loss import LOSSES
from polyattn.solve.planning import plan_of
from polyattn.solve.ridge import RULES
from polyattn.solve.solvers import SOLVERS
from polyattn.sources import Source
from polyattn.stats.rows import Rows

NUMBERS = console.Parsed(
    "NUMBERS",
    lambda text: [float(part) for part in text.split(",")],
    "not a list of numbers such as 0.1,1,10",
)


@click.command(cls=SectionedCommand)
@data_argument()
@data_options
@form_options
@estimator_options
@click.option(
    "--ridge", type=console.number_or(float, RULES),
    help="The penalty, or the rule that chooses it [default: 0; with --classify loo, or 0.5 by "
    "log-loss].",
)  # fmt: skip
@click.option("--ridge-grid", type=NUMBERS, help="The ridges that a rule chooses from.")
@click.option(
    "--n-heads", "--heads", "n_heads", type=console.number_or(int, ("auto",)),
    help="Limit the number of heads.",
)  # fmt: skip
@click.option("--head-rank", type=int, help="Limit the rank of the attention matrices of heads.")
@click.option("--solver", type=click.Choice(("auto", *SOLVERS)), default="auto", show_default=True)
@click.option(
    "--loss", type=click.Choice(LOSSES), default="squared", show_default=True,
    help="What is minimised; logistic: Y holds class numbers from 0 on, or with --classify labels.",
)  # fmt: skip
@click.option(
    "--random-state", "--seed", "random_state", type=int, default=0, show_default=True,
    help="Of the search for heads.",
)  # fmt: skip
@click.option("--explain", is_flag=True, help="Only say which solver would be taken, and why.")
@gathering_options
@console.saved_option("Where to save the result")
@console.json_option
def fit(
    data: tuple[Path, ...], explain: bool, output: Path | None, as_json: bool, **options: Any
) -> None:
    """Fit the best linear attention layer to DATA.

    It is the global optimum, in closed form (of log-loss: by Newton's method).  DATA is a .npz
    with arrays X (sequences, tokens, coordinates) and Y, and perhaps weights (one per sequence),
    context (the sequences that those of X attend to) and, for sequences of different lengths,
    lengths (X padded) or offsets (X without padding), and context_lengths or context_offsets; or
    X as a .npy with --targets; or statistics that were saved (.safetensors).  Without options of
    the layer it is that of the papers.

    Several files, and patterns such as 'shards/*.npz', are one data set, which may be larger than
    memory.  So are tables (.parquet, .arrow, .feather, .csv) with one token per row, whose columns
    --sequence, --order, --tokens, --targets and --weight name.  Statistics are added up.

    With --classify targets are labels, and the layer is that of a classifier, which sees a
    constant 1 beside every token unless options of the layer other than --mode say which one is
    meant.  It is saved with its labels, and with what --impute and --scale did before:
    polyattn predict then writes labels, and takes DATA as they are.
    """
    form, given = take_form(options), take_data(data, options)
    given.refuse_output(output)
    gathering = take_gathering(options, output)
    wanted = Wanted(*(options.pop(name) for name in ("classify", "scale", "impute")))
    if wanted:
        _refuse_beside(wanted, given, gathering, explain)
        # scikit-learn is slow to load.
        from polyattn.cli.fit_estimator import fit_estimator

        fit_estimator(given, form, wanted, options, output, as_json)
        return
    options["ridge"] = 0.0 if options["ridge"] is None else options["ridge"]
    start = time.perf_counter()
    with console.working("reading the data"):
        source = _source(given, form, gathering)
    read = time.perf_counter()
    if explain and options["loss"] == "logistic":
        reason = "log-loss is minimised by Newton's method"
        console.emit({"solver": "newton", "reason": reason}, [f"newton: {reason}"], as_json)
        return
    if explain:
        _explain(source, options["solver"], as_json)
        return
    with gathering.arguments() as more:
        solving = time.perf_counter()
        with console.passes("solving for the optimum", source.get("X")):
            result = pa.fit(**source, **options, **more)
    solved = time.perf_counter()
    with console.working("looking for as few heads as compute it"):
        n_found = result.heads.n_heads
    times = {
        "reading_seconds": read - start, "seconds": solved - solving,
        "heads_seconds": time.perf_counter() - solved,
    }  # fmt: skip
    content = result.to_dict() | times
    rows = _times(times, result, n_found, isinstance(source.get("X"), Source))
    rows |= console.saved(result, output, content, "model")
    console.emit(content, console.shown(result, rows, numbers=False), as_json)


def _times(
    times: dict[str, float], result: pa.FitResult, n_heads: int, chunked: bool
) -> dict[str, str]:
    """What took how long, and what is in it: chunks are read while they are added up."""
    parts = ["reading"] if chunked else []
    # Heads that the fit itself looked for, as for a limit of their number, were not found later.
    parts += [] if result.known_heads is None else ["search for heads"]
    included = f", {' and '.join(parts)} included" if parts else ""
    rows = {} if chunked else {"time to read": f"{times['reading_seconds']:.3g} s"}
    rows["time to solve"] = f"{times['seconds']:.3g} s{included}"
    if result.known_heads is None:
        rows["time to find heads"] = (
            f"{times['heads_seconds']:.3g} s for {counted(n_heads, 'head')}"
        )
    return rows


def _refuse_beside(
    wanted: Wanted, given: GivenData, gathering: GatheringOptions, explain: bool
) -> None:
    """Refuse what estimators do not take."""
    if given.are_statistics:
        raise InvalidInput(f"statistics are of numbers already; leave {wanted.option} out.")
    gathering.refuse(f"with {wanted.option} the fit is made in this process")
    if explain:
        raise InvalidInput(f"--explain is about fits without {wanted.option}; leave one out.")


@click.command("learn-softmax", cls=SectionedCommand)
@data_argument()
@data_options
@click.option("--mode", type=click.Choice(MODES), default="full", show_default=True)
@click.option("--bias", is_flag=True, help="The layer sees a constant 1 beside every token.")
@click.option(
    "--n-heads", "--heads", "n_heads", type=console.number_or(int, ("auto",)), default="auto",
    show_default=True, help="The number of heads; auto: the data decide.",
)  # fmt: skip
@click.option("--max-heads", type=int, help="The most to look for when it is not given.")
@click.option("--method", type=click.Choice(METHODS), default="auto", show_default=True)
@click.option(
    "--polish/--no-polish", default=True, show_default=True,
    help="Descend from the heads of the method; without: take them as they are.",
)  # fmt: skip
@click.option("--noise", type=float, help="Standard deviation of the targets' errors, if known.")
@click.option("--max-seconds", type=float, help="Stop with the best layer after this time.")
@click.option("--random-state", "--seed", "random_state", type=int, default=0, show_default=True)
@console.saved_option("Where to save the result")
@console.json_option
def learn_softmax(
    data: tuple[Path, ...], output: Path | None, as_json: bool, **options: Any
) -> None:
    """Recover the heads of a softmax attention layer from DATA.

    DATA is a .npz with arrays X (sequences, tokens, coordinates) and Y, as for fit, but
    without weights: every sequence counts once.  Several files, and tables, are taken as by fit,
    and held in memory.  Ctrl-C keeps the best layer so far.  Exit code 0: recovered, the held-out
    check passed and the data determine every head; 4: a layer was found, but it is not the one, or
    that is open.
    """
    given = take_data(data, options)
    held = given.held("learn-softmax", options["mode"])
    held.require_equal_weights("learn-softmax")
    if held.context is not None:
        raise InvalidInput("softmax heads attend to X itself; leave 'context' out of DATA.")
    start = time.perf_counter()
    with console.working("looking for heads") as say:

        def follow(phase: str, n_heads: int, error: float) -> None:
            say(
                f"{phase}: {counted(n_heads, 'head')}, relative error {error:.1e} (Ctrl-C keeps it)"
            )

        learned = pa.learn_softmax(held.X, held.Y, **options, callback=follow)
    content = learned.to_full_dict() | {"seconds": time.perf_counter() - start}
    rows = console.saved(learned, output, content, "model")
    text = [*learned_text(learned), *(f"saved to {path}" for path in rows.values())]
    console.emit(content, text, as_json, 0 if learned.recovered else console.UNCONFIRMED)


def learned_text(learned: pa.LearnedSoftmax) -> list[str | Grid]:
    """What it says of itself, a table of heads and one of phases, for people."""
    headings = ("head", "|attn|", "rank", "expected error", "|value|", "rank", "expected error")
    heads = [
        (
            h + 1,
            *_of_matrix(learned.layer.attn[h], learned.attn_error[h]),
            *_of_matrix(learned.layer.value[h], learned.value_error[h]),
        )
        for h in range(learned.n_heads)
    ]
    phases = [(each.name, each.sentence, f"{each.seconds:.2f}") for each in learned.phases]
    return [
        *console.shown(learned, numbers=False),
        tables.table("heads", headings, heads, right=headings),
        tables.table(
            "phases", ("phase", "what it measured", "seconds"), phases, right=("seconds",)
        ),
    ]


def _source(given: GivenData, form: pa.Form | None, gathering: GatheringOptions) -> dict[str, Any]:
    """Data or statistics, as ``fit`` takes them."""
    if given.are_statistics:
        statistics = given.statistics(f", which is fitted already{NEEDED}")
        refuse_form(form, "statistics")
        gathering.refuse("statistics are sums already, and nothing is gathered")
        return {"statistics": statistics}
    form = form or pa.Form()
    return given.arguments(form.mode, gathering.asked) | {"form": form}


def _explain(source: dict[str, Any], solver: str, as_json: bool) -> None:
    sums = source.get("statistics")
    if sums is not None:
        own = "primal" if isinstance(sums, pa.Moments) else "direct"
        reason = f"{type(sums).__name__} of {sums.n_features} features are solved so"
        console.emit({"solver": own, "reason": reason}, [f"{own}: {reason}"], as_json)
        return
    if source["form"].decay == "loo":
        source["form"] = replace(source["form"], decay=1.0)
    with console.passes("looking at the data", source["X"]):
        rows = Rows.build(**({"Y": None} | source))
    made = plan_of(rows, solver)
    content = {
        "solver": made.solver, "reason": made.reason, "bytes": made.bytes,
        "seconds": made.seconds, "n_rows": rows.n_rows, "n_features": rows.n_features,
        "n_outputs": rows.n_outputs,
        "others": {
            each.solver: {"seconds": each.seconds, "bytes": each.bytes, "is_fit": each.is_fit}
            for each in made.others
        },
    }  # fmt: skip
    estimates = [
        (
            each.solver,
            readable_seconds(each.seconds),
            readable_bytes(each.bytes) + ("" if each.is_fit else ", too much"),
        )
        for each in made.others
    ]
    table = tables.table("estimates for one core", ("solver", "time", "memory"), estimates)
    console.emit(content, [str(made), table], as_json)


def _of_matrix(matrix: NDArray, error: float) -> tuple[str, int, str]:
    """Its norm, its rank, and the part of it that is expected to be wrong."""
    share = percent(error, 1) if np.isfinite(error) else "open"
    return f"{np.hypot.reduce(matrix, axis=None):.3g}", int(np.linalg.matrix_rank(matrix)), share
