"""What came out in the paper's encoding, and what of its figure that shows."""

from __future__ import annotations

from polyattn_papers.reproduction.experiment import Row
from polyattn_papers.reproduction.rows import where
from polyattn_papers.tasks.automata import Sizes
from polyattn_papers.yau2024.universal_automaton.cells import (
    BASE,
    DECODER,
    DECODER_SIZES,
    DECODER_STRINGS,
    DECODER_SWEPT,
    LARGEST,
    swept,
)
from polyattn_papers.yau2024.universal_automaton.needs import PLACES, along, needed_by, span


def about_decoder(rows: list[Row]) -> list[str]:
    """What the decoder needed, beside the closed form, and what was reduced; none without one."""
    tried = where(rows, learner="decoder")
    if not tried:
        return []
    needed, closed_form = (needed_by(rows, one, "letters") for one in ("decoder", "untied"))
    return [_needs(tried), *_lines(needed), *_beside(needed, closed_form), _reduced()]


def _needs(tried: list[Row]) -> str:
    """For all tokens of the histories, and for the new states alone."""
    letters = [row["letters"] for row in tried if row["letters"] is not None]
    states = [row["letters_for_states"] for row in tried if row["letters_for_states"] is not None]
    first = f"99 % of the tokens of histories at {len(letters)} of {len(tried)} sizes"
    if letters:
        first += f", from {span(letters)} examples times letters"
    second = f"99 % of the new states at {len(states)}"
    if states:
        second += f", from {span(states)}"
    return (
        "In the paper's encoding – table, word and history as symbols, five for each entry of the "
        f"table and each step – a decoder in the style of Llama reaches {first}, and {second}. "
        "Four of five tokens of a history need no table (parentheses, the state that was just "
        "written, the letter of the word): where these are right, 99 % of all tokens are 95 % of "
        "the new states."
    )


def _lines(needed: dict[Sizes, float]) -> list[str]:
    """The need along each of Q, V, L, where two sizes or more were reached."""
    lines = {name: along(needed, varied) for varied, name in PLACES.items()}
    said = [
        f"{name}: " + ", ".join(f"{letters:,.0f} at {size}" for size, letters in line)
        for name, line in lines.items()
        if len(line) > 1
    ]
    if not said:
        return []
    said_of = (
        f"Examples times letters along each size, the others being {BASE}: {'; '.join(said)}. "
        "Numbers of strings are powers of two, as in the paper, so each may be too large by a "
        "factor below 2. Of the paper's figure, which goes on to 8, this is the beginning: sizes "
        "too few to tell an exponential from a power law."
    )
    return [said_of]


def _beside(needed: dict[Sizes, float], closed_form: dict[Sizes, float]) -> list[str]:
    """The same task in two encodings, counted alike."""
    ratios = [needed[sizes] / closed_form[sizes] for sizes in needed if sizes in closed_form]
    if not ratios:
        return []
    beside = (
        f"Counted alike, the decoder needs {min(ratios):.1f} to {max(ratios):.1f} times the "
        "letters of the closed form with one coefficient each. The encodings differ, and must: "
        "one layer of linear attention sees earlier tokens as a sum, whatever their order, so two "
        "tables with the same symbols in other places are the same to it. Tokens of our encoding "
        "carry state, letter and position at once."
    )
    return [beside]


def _reduced() -> str:
    """What a reader must know before this is compared with the paper's figure."""
    sizes, chosen = DECODER_SIZES, DECODER
    return (
        f"Reduced against the paper: width {sizes['width']} for 2048 and {sizes['n_heads']} heads "
        f"for 16 ({sizes['n_layers']} layers as there), at most {DECODER_STRINGS[-1]:,} strings "
        f"for 65,536, {len(DECODER_SWEPT)} sizes for {len(swept(LARGEST['full']))}, and one seed. "
        f"Training: at most {chosen['n_epochs']} epochs as there and {chosen['n_steps']:,} steps, "
        f"ended where {chosen['look'] * chosen['patience']} steps bring nothing; batches of "
        f"{chosen['batch_size']} and the rate {chosen['learning_rate']:g} (the paper: 0.00025, "
        "batches not given); the best look at the judged machines counts. A wider model may need "
        "fewer or more strings; with epochs fixed, few strings also mean few steps. The order of "
        "the table is fixed here and not given in the paper."
    )
