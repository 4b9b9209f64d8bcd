"""show_run: a program is run, watched, and made into what people look at, by its encoding.

With it what the encodings of the library check alike, and how they read tokens.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from operator import index
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np

from polyattn.errors import InvalidInput, InvalidType, PolyattnError, require_integer
from polyattn.programs.language.attributes import Value
from polyattn.programs.language.schema import Encoding, Task, Token, decode
from polyattn.programs.machines import DFA, NamedMachine, TuringMachine
from polyattn.programs.machines.automata import check_letters
from polyattn.programs.running.runnable import MarginKeeper, Runnable
from polyattn.programs.running.shown import ShownRun, WatchedRun

Machine = TypeVar("Machine", DFA, TuringMachine)

# The least and the most: of lengths, of steps.
Range: TypeAlias = tuple[int, int]


class BrokenTrace(PolyattnError, RuntimeError):
    """Tokens that no machine writes: the layer that wrote them does not compute the program."""


@dataclass(frozen=True)
class PlannedRun:
    """A task whose run is to be shown.

    show : from what was decoded, what was read from it, and the most steps to be worded;
        BrokenTrace if that is no run
    named : the machine with its names, if there is one
    drawn : whether the machine, and whether its input, was drawn at random
    """

    task: Task
    show: Callable[[WatchedRun, Any, int], ShownRun]
    named: NamedMachine | None = None
    drawn: tuple[bool, bool] = (False, False)


@dataclass(frozen=True)
class LibraryEncoding(Encoding):
    """An encoding of the library, whose fields are its sizes; it knows how its runs are shown.

    name : in files
    least : the smallest sizes, where they are not 1
    """

    name: ClassVar[str]
    least: ClassVar[Mapping[str, int]] = {}

    def __post_init__(self) -> None:
        for name, size in self.sizes.items():
            require_integer(name, size, self.least.get(name, 1))

    @property
    def sizes(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @abstractmethod
    def plan_run(self, machine: Any, given: Any, max_steps: int) -> PlannedRun:
        """What ``show_run`` runs, and how it shows it."""


def show_run(
    program: Runnable,
    machine: Any = None,
    given: Any = None,
    max_steps: int = 1000,
    n_shown: int | None = None,
    margins: bool = True,
) -> ShownRun | None:
    """The run of a program, to look at; None if there is no prompt to run it on.

    Parameters
    ----------
    program : Compiled or Learned
    machine, given : a machine and its input
        Those that are not given are drawn at random, and the findings say so.  For a program
        whose schema has no encoding, ``given`` is the prompt, a list of tokens.
    max_steps : int
        The longest run of a Turing machine, or the most tokens.
    n_shown : int
        The most steps that are worded; ``max_steps`` unless given.
    margins : bool
        Whether each token comes with its margin.  Cost: that of computing every output twice.
    """
    schema, encoding = program.schema, program.schema.encoding
    most = max_steps if n_shown is None else n_shown
    if isinstance(encoding, LibraryEncoding):
        plan = encoding.plan_run(machine, given, max_steps)
    elif encoding is not None:
        plan = _planned(encoding, machine, given, max_steps)
    elif given is None:
        return None
    elif machine is not None:
        raise InvalidInput(
            "machine must be left out for a program whose schema has no encoding of machines; "
            "inputs is its prompt, a list of tokens."
        )
    else:
        task = Task(list(given), max_steps, lambda decoded: decoded)
        plan = PlannedRun(task, lambda watched, _, most: watched.by_tokens(most))
    predictor, prompt = program.predictor(), plan.task.prompt
    keeper = MarginKeeper(schema, predictor) if margins else None
    decoded = decode(schema, keeper or predictor, prompt, plan.task.limit)
    watched = WatchedRun(schema, prompt, decoded, keeper.margins if keeper else None, plan.named)
    try:
        found = plan.show(watched, plan.task.read(decoded), most)
    except BrokenTrace as error:
        said = f"The tokens that the layer wrote are no run of this machine: {error}"
        found = watched.by_tokens(most, [said], agrees=False)
    drawn = [what for what, random in zip(("machine", "input"), plan.drawn, strict=True) if random]
    if drawn:
        said = f"The {' and the '.join(drawn)} of this run {'was' if len(drawn) == 1 else 'were'}"
        found = replace(found, findings=[f"{said} drawn at random.", *found.findings])
    return found


def _planned(encoding: Encoding, machine: Any, given: Any, max_steps: int) -> PlannedRun:
    """The run of a program whose encoding is not of the library: token by token."""
    arguments: tuple[Any, ...] = tuple(each for each in (machine, given) if each is not None)
    options: dict[str, Any] = {}
    if machine is None:
        arguments, options = encoding.sample(np.random.default_rng(0), machine, given)
    task = encoding.task(*arguments, **options)

    def show(watched: WatchedRun, answer: Any, n_shown: int) -> ShownRun:
        return watched.by_tokens(n_shown, [f"What was read from it: {answer}."], result=answer)

    task = replace(task, limit=min(task.limit, max_steps))
    return PlannedRun(task, show, drawn=(machine is None, given is None))


def require_kind(machine: object, kind: type[Machine], example: str) -> Machine:
    """A machine of the right kind; an error that says what ``run`` takes."""
    if not isinstance(machine, kind):
        raise InvalidType(
            f"this program runs a {kind.__name__}, as in {example}; got {type(machine).__name__}."
        )
    return machine


def require_fit(machine: Any, n_states: int, n_letters: int) -> None:
    """A machine that is not larger than the program."""
    if machine.n_states > n_states or machine.n_letters > n_letters:
        raise InvalidInput(
            f"the machine has {machine.n_states} states and {machine.n_letters} letters; this "
            f"program was made for up to {n_states} and {n_letters}."
        )


def require_range(name: str, given: Any, least: int, most: int | None = None) -> Range:
    """Two integers, the smaller first, that do not leave what is possible."""
    said = f"from {least} to {most}" if most is not None else f"of at least {least}"
    try:
        low, high = (index(each) for each in given)
    except (TypeError, ValueError):
        raise InvalidType(
            f"{name} must be two integers {said}, as in {name}=({least}, {most or 25}); got "
            f"{given!r}."
        ) from None
    if not least <= low <= high or (most is not None and high > most):
        raise InvalidInput(f"{name} must be two integers {said}, the smaller first; got {given!r}.")
    return low, high


def named_machine(machine: Any, kind: type[Machine]) -> tuple[NamedMachine, Machine]:
    """The machine with names and alone, if it is of the kind that the program runs."""
    alone = machine.machine if isinstance(machine, NamedMachine) else machine
    found = require_kind(alone, kind, f"machine={kind.__name__}(...), or a NamedMachine of one")
    return machine if isinstance(machine, NamedMachine) else NamedMachine.plain(found), found


def letters_of(named: NamedMachine, given: Any) -> list[int]:
    """Letters by name in a text or a list, or by number in a list."""
    if not isinstance(given, Iterable):
        raise InvalidType(
            f"inputs must be a text or a list of letters for this program; got {given!r}."
        )
    letters: Any = given if isinstance(given, str) else list(given)
    if any(isinstance(each, str) for each in letters):
        return named.read(letters, "inputs")
    return check_letters(letters, len(named.letters), "inputs")


def held(token: Token, attribute: str, number: int) -> Value:
    """The value of a one-hot attribute in token ``number`` of what came out."""
    for name, value in token:
        if name == attribute:
            return value
    raise BrokenTrace(
        f"token {number} holds no {attribute}, but {[*token] or 'nothing'}: the layer does not "
        "compute the program here."
    )
