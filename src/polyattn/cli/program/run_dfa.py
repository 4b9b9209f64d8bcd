"""Runs of finite automata."""

from __future__ import annotations

from rich.console import RenderableType

from polyattn.cli.program.running import Ran, execute
from polyattn.errors import InvalidInput
from polyattn.programs import DFA, universal_dfa
from polyattn.programs.machines import NamedMachine

# With registers, tables of many states and long words take long to compile.
_REGISTERS_UP_TO = {"states": 50, "letters": 100}


def run_dfa(
    named: NamedMachine, given: str | None, style: str | None, steps: int, check: bool
) -> Ran:
    """Run an automaton on a word by the universal automaton of its size."""
    dfa, word = named.machine, _word(named, given)
    assert isinstance(dfa, DFA)  # noqa: S101 - the caller has looked
    if style is None:
        small = dfa.n_states <= _REGISTERS_UP_TO["states"]
        style = "registers" if small and len(word) <= _REGISTERS_UP_TO["letters"] else "one-hot"
    sizes = (dfa.n_states, dfa.n_letters, max(1, len(word)))
    program = universal_dfa(*sizes, style=style.replace("-", "_"))
    compiled, states, tokens = execute(program, dfa, word)
    names = [named.states[state] for state in states]
    last = [0, *states][-1]
    accepts = last in dfa.accepting if named.decides else None
    checks = {}
    if check:
        checks = {
            "interpreter": program.interpret(dfa, word) == states,
            "rules": dfa.run(word) == states,
        }
    content = {
        "kind": "dfa", "machine": named.name, "word": [named.letters[x] for x in word],
        "start": named.states[0], "states": names, "final": named.states[last], "accepts": accepts,
    }  # fmt: skip
    rows: dict[str, object] = {
        "machine": named.title,
        "word": named.written(word) or "(empty)",
        "final state": named.states[last],
    }
    if accepts is not None:
        rows["accepted"] = "yes" if accepts else "no"
    text = _text(named, word, names, steps)
    return Ran(named, compiled, tokens, content, text, rows, checks)


def _word(named: NamedMachine, given: str | None) -> list[int]:
    if given is not None:
        return named.read(given, "word")
    if named.input is not None:
        return list(named.input)
    raise InvalidInput(
        f"there is no word to run {named.name or 'the machine'} on: give one after it, of the "
        f"letters {', '.join(named.letters)}."
    )


def _text(
    named: NamedMachine, word: list[int], names: list[str], steps: int
) -> list[RenderableType]:
    width = max(map(len, named.letters))
    text: list[RenderableType] = [f"    0  {'':{width}}     {named.states[0]}"]
    text += [
        f"{at + 1:5d}  {named.letters[letter]:{width}}  -> {state}"
        for at, (letter, state) in enumerate(zip(word[:steps], names[:steps], strict=True))
    ]
    if len(word) > steps:
        text.append(f"       ... {len(word) - steps} letters more (--steps)")
    return text
