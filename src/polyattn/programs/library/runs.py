"""show_run: a program is run, watched, and made into what people look at, by its encoding."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from polyattn.errors import InvalidInput, InvalidType
from polyattn.files.fields import Check, integer
from polyattn.programs.language.encoding import Encoding, Task, decode
from polyattn.programs.library.arguments import BrokenTrace, require_kind
from polyattn.programs.machines import DFA, NamedMachine, TuringMachine
from polyattn.programs.machines.dfa import check_letters
from polyattn.programs.running.runnable import MarginKeeper, Runnable
from polyattn.programs.running.shown import ShownRun, WatchedRun

# Larger programs take longer than ten seconds, or more than a gigabyte, to become heads.
MOST_COORDINATES = 1 << 18

# The check of a size in files.
SIZE = integer(1, MOST_COORDINATES)

Machine = TypeVar("Machine", DFA, TuringMachine)


@dataclass(frozen=True)
class RunOptions:
    """How a run is to be shown; see ``show_run``."""

    max_steps: int
    n_shown: int
    margins: bool


class LibraryEncoding(Encoding):
    """An encoding of the library: it has a name in files, and knows how its runs are shown.

    name : in files
    fields : the checks of its sizes in files
    """

    name: ClassVar[str]
    fields: ClassVar[Mapping[str, Check]]

    @abstractmethod
    def show(self, program: Runnable, machine: Any, given: Any, wanted: RunOptions) -> ShownRun:
        """The run of a program; see ``show_run``."""


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
    encoding = program.schema.encoding
    wanted = RunOptions(max_steps, max_steps if n_shown is None else n_shown, margins)
    if isinstance(encoding, LibraryEncoding):
        return encoding.show(program, machine, given, wanted)
    if encoding is not None:
        arguments: tuple[Any, ...] = tuple(each for each in (machine, given) if each is not None)
        options: dict[str, Any] = {}
        if machine is None:
            arguments, options = encoding.sample(np.random.default_rng(0), machine, given)
        task = encoding.task(*arguments, **options)
        watched = watch(program, replace(task, limit=min(task.limit, max_steps)), margins)
        try:
            answer = task.read(watched.decoded)
        except BrokenTrace as error:
            return noted(broken(watched, wanted, str(error)), machine is None, given is None)
        found = watched.by_tokens(wanted.n_shown, [f"What was read from it: {answer}."])
        return noted(replace(found, result=answer), machine is None, given is None)
    if given is None:
        return None
    if machine is not None:
        raise InvalidInput(
            "machine must be left out for a program whose schema has no encoding of machines; "
            "inputs is its prompt, a list of tokens."
        )
    task = Task(list(given), max_steps, lambda decoded: decoded)
    return watch(program, task, margins).by_tokens(wanted.n_shown)


def watch(
    program: Runnable, task: Task, margins: bool, named: NamedMachine | None = None
) -> WatchedRun:
    """Decode a task by a program, and keep the margins if they are wanted."""
    schema, kept = program.schema, None
    if not margins:
        decoded = program.decode(task.prompt, task.limit)
    else:
        keeper = MarginKeeper(schema, program.predictor())
        decoded, kept = decode(schema, keeper, task.prompt, task.limit), keeper.margins
    return WatchedRun(schema, task.prompt, decoded, kept, named)


def broken(watched: WatchedRun, wanted: RunOptions, reason: str) -> ShownRun:
    """What was written, where it is no run of a machine."""
    said = f"The tokens that the layer wrote are no run of this machine: {reason}"
    return watched.by_tokens(wanted.n_shown, [said], agrees=False)


def noted(found: ShownRun, machine: bool, given: bool) -> ShownRun:
    """The run with a sentence about what was drawn at random."""
    drawn = [name for name, random in (("machine", machine), ("input", given)) if random]
    if not drawn:
        return found
    said = f"The {' and the '.join(drawn)} of this run {'was' if len(drawn) == 1 else 'were'}"
    return replace(found, findings=[f"{said} drawn at random.", *found.findings])


def named_machine(machine: Any, kind: type[Machine]) -> tuple[NamedMachine, Machine]:
    """The machine with names and alone, if it is of the kind that the program runs."""
    found = machine.machine if isinstance(machine, NamedMachine) else machine
    require_kind(found, kind, f"machine={kind.__name__}(...), or a NamedMachine of one")
    assert isinstance(found, kind)  # noqa: S101 - it has just been required
    return machine if isinstance(machine, NamedMachine) else NamedMachine.plain(found), found


def letters_of(named: NamedMachine, given: Any) -> list[int]:
    """Letters by name in a text or a list, or by number in a list."""
    if not isinstance(given, Iterable):
        raise InvalidType(
            f"inputs must be a text or a list of letters for this program; got {given!r}."
        )
    listed = list(given)
    if isinstance(given, str) or any(isinstance(each, str) for each in listed):
        return named.read(given if isinstance(given, str) else listed, "inputs")
    return check_letters(listed, len(named.letters), "inputs")
