"""What came out, in sentences: what each learner needed, and what it can be compared with."""

from __future__ import annotations

from polyattn_papers.reproduction.experiment import Row
from polyattn_papers.reproduction.rows import where
from polyattn_papers.tasks.automata import Sizes
from polyattn_papers.yau2024.universal_automaton.cells import TRANSFORMER
from polyattn_papers.yau2024.universal_automaton.decoder_findings import about_decoder
from polyattn_papers.yau2024.universal_automaton.needs import (
    SizeGrowth,
    growths,
    needed_by,
    sizes_of,
    span,
)


def findings(rows: list[Row]) -> list[str]:
    """What each learner needed, and what that can be compared with."""
    prompts, runs = _span(rows, "untied", "tokens"), _span(rows, "tied", "traces")
    n_sizes = len({sizes_of(row) for row in where(rows, learner="tied")})
    first = (
        "Closed form, one coefficient each: 99 % of next tokens on machines never seen take "
        f"{_span(rows, 'untied')} predicted tokens ({prompts} with the prompts), over all sizes "
        f"and seeds; the paper's unit, examples times length of the word, counts "
        f"{_span(rows, 'untied', 'letters')}. The picture shows medians over seeds, in this unit."
    )
    second = (
        f"Tied by relation, {_span(rows, 'tied')} predicted tokens are enough at "
        f"{len(needed_by(rows, 'tied'))} of "
        f"{n_sizes} sizes: {runs} runs of machines with 3 states and 3 letters "
        f"({_span(rows, 'tied', 'letters')} in the paper's unit), after which the "
        "learner says itself that it is done."
    )
    said = [first, second]
    if needed_by(rows, "untied", "rows_for_histories"):
        whole = _span(rows, "untied", "rows_for_histories")
        said.append(
            f"All histories of the fresh machines without any wrong token: {whole} "
            "predicted tokens, one coefficient each (sought at the smaller sizes)."
        )
    grown = growths(rows, "untied")
    if grown:
        said.append(_about_growth(grown))
    if where(rows, learner="transformer"):
        said.append(_about_transformer(rows))
    return [*said, *about_decoder(rows)]


def _about_growth(grown: dict[str, SizeGrowth]) -> str:
    """Powers of Q, V, L beside exponentials."""
    each = [
        f"{name}^{one.exponent:.1f} (off by {100 * one.power_error:.0f} %, an exponential by "
        f"{100 * one.exponential_error:.0f} %; {one.line[-1][1] / one.line[0][1]:.1f} times from "
        f"{one.line[0][0]} to {one.line[-1][0]})"
        for name, one in grown.items()
    ]
    seen = [name for name, one in grown.items() if one.is_power]
    open_ = [name for name, one in grown.items() if not one.is_power]
    said = [f"One coefficient each, examples times letters grow like {', '.join(each)}."]
    if seen:
        said.append(
            'The "sub-exponential dependence" that the paper finds suggested is seen along '
            f"{' and '.join(seen)}."
        )
    if open_:
        said.append(f"Along {' and '.join(open_)} a power is not told from an exponential.")
    return " ".join(said)


def _about_transformer(rows: list[Row]) -> str:
    """What the Transformer on our tokens needed, and how it was trained."""
    others = needed_by(rows, "transformer")
    reached = f"{len(others)} of {len(where(rows, learner='transformer'))} sizes"
    needs = f", from {_span(rows, 'transformer')} predicted tokens" if others else ""
    third = (
        f"A small Transformer on the same tokens, chosen by its best look at the judged machines, "
        f"reaches 99 % at {reached}{needs} (four steps to a decade)."
    )
    chosen = TRANSFORMER
    trained = (
        f"It has {chosen['n_layers']} layers of width {chosen['width']} and {chosen['n_heads']} "
        f"heads, and is trained for at most {chosen['n_steps']} steps with {chosen['batch_size']} "
        f"runs each, fewer where {chosen['look'] * chosen['patience']} steps bring nothing: longer "
        "training might do with fewer tokens."
    )
    parts = (third, _compared(needed_by(rows, "untied"), others), trained)
    return " ".join(filter(None, parts))


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
    return span(needed) if needed else "no number of"
