"""What came out, in sentences: distances, steps, risks and heads, task by task."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from polyattn_papers.reproduction.experiment import Row
from polyattn_papers.reproduction.rows import mean, rms, where
from polyattn_papers.tasks.in_context import optimum_of


def findings(rows: list[Row]) -> list[str]:
    """Distances, steps, risks and heads, task by task."""
    shape = (
        f"Tokens (x, y) with d = {rows[0]['n_dims']} inputs and n = {rows[0]['n_examples']} "
        "examples, then the question (x, 0); the target is w·x with w fresh for each sequence. "
        "pa.fit sees streamed moments of all cubic features and assumes neither gradient "
        "descent nor one head. Distances are relative: Frobenius norms of differences of "
        "folded coefficients over that of the theory's."
    )
    last = [row for _, group in tasks(rows) for row in largest(group)]
    single, every = rms(last, "one_head_distance"), rms(last, "distance")
    heads = (
        f"The distance of the best layer with one head is {single:.2g}, that of the optimum over "
        f"all heads {every:.2g}: one head has fewer coefficients to fit noise with. Asked for as "
        f"many heads as the noise calls for, fit takes {_counts(last)} fits. Its rule supposes "
        "noise of one size for all sequences; here residuals grow with the features, and a second "
        "head may look needed where none is."
    )
    return [shape, *(_finding(name, group) for name, group in tasks(rows)), heads]


def tasks(rows: list[Row]) -> Iterator[tuple[str, list[Row]]]:
    """The rows of each covariance and noise, with a name for them."""
    for covariance, noise in dict.fromkeys((row["covariance"], row["noise"]) for row in rows):
        yield f"{covariance}, noise {noise:g}", where(rows, covariance=covariance, noise=noise)


def largest(rows: list[Row]) -> list[Row]:
    """The rows with most sequences."""
    most = max(row["n_sequences"] for row in rows)
    return where(rows, n_sequences=most)


def by_size(rows: list[Row], column: str) -> tuple[list[int], list[float]]:
    """Numbers of sequences and the root mean square of a column over seeds."""
    sizes = sorted({row["n_sequences"] for row in rows})
    return sizes, [rms(where(rows, n_sequences=n), column) for n in sizes]


def slope(rows: list[Row], column: str) -> float:
    """The slope of log column against log N by least squares."""
    sizes, values = by_size(rows, column)
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def gains(rows: list[Row]) -> list[float]:
    """n times the fitted step along the eigenvectors of the covariance, largest first."""
    return [mean(rows, f"gain_{place}") for place in range(1, rows[0]["n_dims"] + 1)]


def _finding(name: str, group: list[Row]) -> str:
    last = largest(group)
    known = 1 / np.linalg.eigvalsh(optimum_of(last[0]).gamma)[::-1]
    theory, fitted = (", ".join(f"{one:.3f}" for one in many) for many in (known, gains(last)))
    return (
        f"{name}: the distance falls like N^{slope(group, 'distance'):.2f}, to "
        f"{rms(last, 'distance'):.3g} at N = {last[0]['n_sequences']:,}, where the covariance of "
        f"least squares says {rms(last, 'expected_distance'):.3g}; coefficients that the theory "
        f"wants to be zero are {rms(last, 'other_coefficients'):.3g}. n times the step along the "
        f"eigenvectors of Σ, largest first: {fitted}; Γ⁻¹ says {theory}. "
        f"Error on fresh sequences: {last[0]['theory_risk']:.4g} by the formula, "
        f"{mean(last, 'theory_fresh'):.4g} measured; of the fit {mean(last, 'excess'):.1e} more; "
        f"{mean(last, 'plain_fresh'):.4g} for the best step without a preconditioner, "
        f"{mean(last, 'bayes_fresh'):.3g} for the Bayes-optimal ridge regression, which no single "
        "layer of linear attention can be."
    )


def _counts(rows: list[Row]) -> str:
    counts = [row["chosen_heads"] for row in rows]
    one = sorted(set(counts))
    return ", ".join(f"{heads} in {counts.count(heads)} of {len(counts)}" for heads in one)
