"""What came out, in sentences: what each learner needed, and what it can be compared with."""

from __future__ import annotations

from statistics import median

from polyattn_papers.reproduction.experiment import Row
from polyattn_papers.reproduction.rows import where
from polyattn_papers.tasks.automata import Sizes
from polyattn_papers.yau2024.universal_automaton.cells import LEARNERS, TRANSFORMER


def findings(rows: list[Row]) -> list[str]:
    """What each learner needed, and what that can be compared with."""
    by_coefficients, by_rules, others = (needed_by(rows, learner) for learner in LEARNERS)
    prompts, runs = _span(rows, "untied", "tokens"), _span(rows, "tied", "traces")
    n_sizes = len({sizes_of(row) for row in where(rows, learner="tied")})
    first = (
        "Closed form, one coefficient each: 99 % of next tokens on machines never seen take "
        f"{_span(rows, 'untied')} predicted tokens ({prompts} with the prompts), over all sizes "
        "and seeds; the picture shows medians over seeds."
    )
    second = (
        f"Tied by relation, {_span(rows, 'tied')} predicted tokens are enough at "
        f"{len(by_rules)} of "
        f"{n_sizes} sizes: {runs} runs of machines with 3 states and 3 letters, after which the "
        "learner says itself that it is done."
    )
    said = [first, second]
    if needed_by(rows, "untied", "rows_for_histories"):
        whole = _span(rows, "untied", "rows_for_histories")
        said.append(
            f"All histories of the fresh machines without any wrong token: {whole} "
            "predicted tokens, one coefficient each (sought at the smaller sizes)."
        )
    tried = where(rows, learner="transformer")
    if tried:
        reached = f"{len(others)} of {len(tried)} sizes"
        needs = f", from {_span(rows, 'transformer')} predicted tokens" if others else ""
        third = (
            f"A small Transformer, chosen by its best look at the judged machines, reaches 99 % at "
            f"{reached}{needs} (four steps to a decade)."
        )
        parts = (third, _compared(by_coefficients, others), _transformer())
        said.append(" ".join(filter(None, parts)))
    said.append(
        "The paper's tokens are counted in its own encoding, so orders of magnitude can be "
        "compared, not factors."
    )
    return said


def needed_by(rows: list[Row], learner: str, name: str = "rows") -> dict[Sizes, float]:
    """The median over seeds of what a learner needed, at the sizes where it got there."""
    seen: dict[Sizes, list[int]] = {}
    for row in where(rows, learner=learner):
        if row[name] is not None:
            seen.setdefault(sizes_of(row), []).append(row[name])
    return {sizes: median(values) for sizes, values in seen.items()}


def sizes_of(row: Row) -> Sizes:
    """States, letters and length of a row."""
    return row["n_states"], row["n_letters"], row["length"]


def _compared(ours: dict[Sizes, float], others: dict[Sizes, float]) -> str:
    ratios = [others[sizes] / ours[sizes] for sizes in others if sizes in ours]
    if not ratios:
        return ""
    return (
        f"That is {min(ratios):.1f} to {max(ratios):.1f} times what the closed form needs with one "
        "coefficient each."
    )


def _span(rows: list[Row], learner: str, name: str = "rows") -> str:
    """From the least to the most that a search of a learner needed, whatever size and seed."""
    needed = [row[name] for row in where(rows, learner=learner) if row[name] is not None]
    if not needed:
        return "no number of"
    least, most = min(needed), max(needed)
    return f"{least:,} to {most:,}" if most > least else f"{least:,}"


def _transformer() -> str:
    """What a reader must know before the Transformer is compared with anything."""
    chosen = TRANSFORMER
    return (
        f"It has {chosen['n_layers']} layers of width {chosen['width']} and {chosen['n_heads']} "
        f"heads, and is trained for at most {chosen['n_steps']} steps with {chosen['batch_size']} "
        f"runs each, fewer where {chosen['look'] * chosen['patience']} steps bring nothing: longer "
        "training might do with fewer tokens."
    )
