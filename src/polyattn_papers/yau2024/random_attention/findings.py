"""What came out, in sentences: means over seeds, and the best point of the grid for each model."""

from __future__ import annotations

import numpy as np

from polyattn_papers.reproduction.experiment import Row
from polyattn_papers.reproduction.rows import where
from polyattn_papers.yau2024.random_attention.cells import (
    HEADS,
    LAYERS,
    N_HEADS,
    TIMES,
    TRAINED,
    TRANSFORMER,
    TRANSFORMER_HEADS,
    WIDTH,
)
from polyattn_papers.yau2024.random_attention.curves import (
    FOLLOWED,
    GRID,
    ModelSummary,
    by_heads,
    closed_form,
    common_point,
    counted,
    epochs_by_heads,
    summaries,
    trained,
)


def findings(rows: list[Row]) -> list[str]:
    """The closed form, all models of each size, what heads do, and how models were trained."""
    found = summaries(trained(rows))
    plain = [one for one in found if not one.weight_decay]
    sizes = sorted({(one.n_dims, one.n_sequences) for one in plain}, key=lambda size: size[::-1])
    return [
        _closed(rows),
        *(_of_size([one for one in plain if one.size == size]) for size in sizes),
        *(_heads(rows, *size) for size in sizes),
        _exceptions(plain),
        _equal_epochs(plain),
        _equal_time(rows, sizes),
        *_decay(rows, sizes),
        _training(rows),
    ]


def _closed(rows: list[Row]) -> str:
    fits = closed_form(rows)
    worst = max(row["validation_error"] for row in fits)
    smallest = min(
        r["validation_error"] for r in trained(rows) if r["validation_error"] is not None
    )
    times = ", ".join(
        f"{max(r['seconds'] for r in fits if r['n_dims'] == d):.2g} s at d = {d}"
        for d in sorted({row["n_dims"] for row in fits})
    )
    return (
        f"The closed form has a validation error of at most {worst:.1e} on all {len(fits)} data "
        f"sets. On one core, heads included, it took at most {times}. The smallest error of any "
        f"trained model, at any look, is {smallest:.1e}."
    )


def _of_size(found: list[ModelSummary]) -> str:
    size = found[0]
    errors = "; ".join(f"{one.label}: {one.error:.1e} ({max(one.curve)} epochs)" for one in found)
    return (
        f"d = {size.n_dims}, N = {size.n_sequences}, geometric means over {size.n_seeds} seeds of "
        f"the smallest error, at the best point of the grid. {errors}."
    )


def _heads(rows: list[Row], n_dims: int, n_sequences: int) -> str:
    """The curves of heads over epochs, at the point of the grid that is best for most heads."""
    rate, batch = common_point(rows, n_dims, n_sequences)
    same = by_heads(rows, n_dims, n_sequences)[rate, batch]
    epochs = [one for one in same[0].curve if one in (5, 20, 60, 100, 200, 500)]
    errors = "; ".join(
        f"after {epoch}: "
        + ", ".join(f"{10 ** one.curve[epoch][0]:.0e} ({one.n_heads})" for one in same)
        for epoch in epochs
    )
    return (
        f"Heads after equal steps, d = {n_dims}, N = {n_sequences}, rate {rate:g}, batches of "
        f"{batch}, epochs of {-(-n_sequences // batch)} steps, heads in brackets. {errors}."
    )


def _exceptions(found: list[ModelSummary]) -> str:
    """Numbers of heads that end above a smaller number of heads on the same data."""
    singles = [one for one in found if one.method == HEADS]
    above = []
    for one in singles:
        fewer = [
            each for each in singles
            if each.size == one.size and (each.n_heads or 0) < (one.n_heads or 0)
        ]  # fmt: skip
        best = min(fewer, key=lambda each: each.log_error, default=one)
        if one.log_error > best.log_error:
            above.append(
                f"d = {one.n_dims}, N = {one.n_sequences}: {one.error:.0e} with {one.n_heads}, "
                f"{best.error:.0e} with {best.n_heads}"
            )
    if not above:
        return "By the smallest error of the whole training, every step to more heads helped."
    return (
        "Not every step to more heads helps. By the smallest error of the whole training, at the "
        f"best point of the grid, more are above fewer here: {'; '.join(above)}."
    )


def _equal_epochs(found: list[ModelSummary]) -> str:
    """Stacks and Transformers against single layers at the epoch where their training ended."""
    compared = []
    for one in found:
        if one.method != HEADS:
            last = max(one.curve)
            singles = [same for same in found if same.method == HEADS and same.size == one.size]
            best = min(singles, key=lambda same: same.curve[last][0])
            compared.append(
                f"d = {one.n_dims}, {one.label}: {10 ** one.curve[last][0]:.0e} after {last}, "
                f"{10 ** best.curve[last][0]:.0e} with {counted(best.n_heads, 'head')}"
            )
    return (
        "More layers and Transformers after as many epochs as they had, and the best single layer "
        f"after as many. {'; '.join(compared)}."
    )


def relative_times(rows: list[Row], n_dims: int, n_sequences: int) -> dict[int, float | None]:
    """The time to an error of ``FOLLOWED`` by number of heads, by scores, in that of one head.

    At the rate of the common point and batches of 32, for which steps are timed; None if never.
    """
    cost = {r["n_heads"]: r["scores_ms"] for r in where(rows, method=TIMES, n_dims=n_dims)}
    rate, _ = common_point(rows, n_dims, n_sequences)
    epochs = epochs_by_heads(rows, n_dims, n_sequences)[rate, 32]
    taken = {heads: epochs[heads] * cost[heads] for heads in epochs}
    return {
        heads: each / taken[1] if np.isfinite(each) and np.isfinite(taken[1]) else None
        for heads, each in taken.items()
    }


def _equal_time(rows: list[Row], sizes: list[tuple[int, int]]) -> str:
    times = where(rows, method=TIMES)
    costs = "; ".join(
        f"d = {d}: "
        + ", ".join(f"{r['scores_ms']:.2g}/{r['features_ms']:.2g}" for r in where(times, n_dims=d))
        for d in sorted({row["n_dims"] for row in times})
    )
    taken = "; ".join(
        f"d = {d}, N = {count}: "
        + ", ".join(
            "not reached" if each is None else f"{each:.2g}"
            for each in relative_times(rows, d, count).values()
        )
        for d, count in sizes
    )
    return (
        "Equal time is another matter. Milliseconds of one step of a layer of "
        f"{', '.join(map(str, N_HEADS))} heads by itself, with batches of 32, by the masked scores "
        f"of its definition and by features that are kept: {costs}. By features heads cost little, "
        "and equal steps are nearly equal time. By scores, the time until the error is "
        f"{FOLLOWED:g} of the target power, for the same numbers of heads in units of that of one "
        f"head: {taken}. Above 1, more heads come later."
    )


def _decay(rows: list[Row], sizes: list[tuple[int, int]]) -> list[str]:
    """What torch's default weight decay does, at the same point of the grid."""
    decays = sorted({row["weight_decay"] for row in trained(rows) if row["weight_decay"]})
    said = []
    for decay, (d, count) in ((decay, size) for decay in decays for size in sizes):
        point = common_point(rows, d, count)
        decayed = by_heads(rows, d, count, decay).get(point, [])
        plain = {one.n_heads: one for one in by_heads(rows, d, count)[point]}
        said += [
            f"d = {d}, {counted(one.n_heads, 'head')}: {10 ** one.curve[last][0]:.0e} and "
            f"{10 ** plain[one.n_heads].curve[last][0]:.0e}"
            for one in decayed
            if (last := max(one.curve))
        ]
    if not said:
        return []
    run = next(row for row in trained(rows) if row["weight_decay"])
    sentence = (
        f"With a weight decay of {run['weight_decay']}, torch's default for AdamW, errors stop far "
        f"above rounding. With and without it, after {run['n_epochs']} epochs, N = "
        f"{run['n_sequences']}: {'; '.join(said)}. So the paper's floating-point precision needs "
        "training without decay."
    )
    return [sentence]


def _training(rows: list[Row]) -> str:
    runs = trained(rows)
    rates, batches = (sorted({row[name] for row in runs}) for name in GRID)
    plain = where(runs, weight_decay=0.0)
    epochs = {kind: {row["n_epochs"] for row in where(plain, method=kind)} for kind in TRAINED}
    return (
        "Training: Adam (the paper's text; its table says AdamW, without a decay), constant rates "
        f"{_list(rates)}, batches of {_list(batches)}, no clipping. Single layers were trained for "
        f"{_list(sorted(epochs[HEADS]))} epochs, stacks of layers of one head for "
        f"{_list(sorted(epochs[LAYERS]))} and Transformers for {_list(sorted(epochs[TRANSFORMER]))}"
        " (500 for all in the paper's figures): steps of stacks and Transformers take 10 to 50 "
        "times as long as ours of single layers, and we stopped there. Layers are the plain sum "
        "of equation (4) and start with the entries' law of the layer that makes the data; the "
        "paper does not say how its own start. Transformers have one layer of "
        f"{TRANSFORMER_HEADS} heads, width {WIDTH} and learned positions, and see and give numbers "
        "of order one; the paper does not give the size of its own. Of the grid the best point is "
        "taken, by validation and in favour of the trained models; the picture shows all heads at "
        "the point that is best for 16, so that steps are equal. Lines of the picture are "
        "geometric means over seeds, shading one standard error of the mean of logarithms. Entries "
        "of V and Q have the variance 1/d, those of tokens 1/T: the paper's N(0, I/√d) and "
        "N(0, I/√T) read as standard deviations."
    )


def _list(items: list) -> str:
    return " and ".join(item if isinstance(item, str) else f"{item:g}" for item in items)
