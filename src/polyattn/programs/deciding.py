"""decide: whether a machine accepts a word, within a bound on its steps.

[yau2024: Definition C.3] is the language of all pairs of a machine and a word that it accepts,
which no program decides.  [yau2024: Definition C.4] asks of the universal machine that it decides
those pairs whose machine answers in polynomial time.  Every run that ends keeps some polynomial, so
that means something only with a polynomial that is given: the machine is run for as many steps as
it allows, and there may be no answer by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from polyattn.errors import InvalidInput, InvalidType, require_integer
from polyattn.outcome import Meaning, Outcome, OutcomeSet
from polyattn.programs.language.program import Program
from polyattn.programs.library.universal_turing_machine import TapeEncoding
from polyattn.programs.machines.automata import TuringMachine, TuringRun
from polyattn.programs.running.runnable import Runnable
from polyattn.quoting import counted

# So many steps, or as many as a function of the length of the word says.
StepBound: TypeAlias = int | Callable[[int], int]

Answer = Literal["accepted", "rejected", "undecided"]

DECISION_OUTCOMES = OutcomeSet[Answer](
    "Decision",
    {
        "accepted": Meaning(True, "The machine accepts the word within the bound."),
        "rejected": Meaning(True, "The machine rejects the word within the bound."),
        "undecided": Meaning(
            False,
            "No answer: the bound ended the run, the machine halted without accepting or "
            "rejecting, or the tape was too short for the run to be that on an endless one.",
        ),
    },
)


@dataclass(frozen=True)
class Decision:
    """Whether a machine accepts a word, as far as a bounded run says.

    outcome : ``accepted``, ``rejected`` or ``undecided``, in words
    bound : the steps that were allowed
    run : the run that says it
    """

    outcome: Outcome[Answer]
    bound: int
    run: TuringRun

    @property
    def answer(self) -> str:
        """The name of the outcome."""
        return self.outcome.name

    def __str__(self) -> str:
        return str(self.outcome)


def decide(
    program: Program | Runnable,
    machine: TuringMachine,
    word: Iterable[int],
    bound: StepBound,
    position: int = 0,
) -> Decision:
    """Whether a machine accepts a word, by a program that runs Turing machines.

    Parameters
    ----------
    program : Program, Compiled or Learned
        A program is run by its interpreter, the others by their layers.
    machine : TuringMachine
        With rules that accept or reject (``machines.ACCEPT``, ``machines.REJECT``).
    word : letters on the tape, at its beginning
    bound : int, or function of the length of the word
        The most steps, such as ``lambda n: 4 * n * n + 4``.
    position : the cell to start at

    Guarantee: if the program runs the machine rightly, as compiled ones do, ``accepted`` and
    ``rejected`` are what the machine says on an endless tape.  Cost: that of the run.

    >>> from polyattn import programs as P
    >>> machine = P.machines.equal_blocks()
    >>> compiled = P.compile(P.universal_turing_machine(n_states=4, n_letters=3, n_cells=12))
    >>> P.decide(compiled, machine, [1, 1, 2, 2], bound=lambda n: (n + 2) ** 2).answer
    'accepted'
    """
    if not isinstance(program, Program | Runnable):
        raise InvalidType(
            "program must be a Program, or one that was compiled or learned; got "
            f"{type(program).__name__}."
        )
    if not isinstance(program.schema.encoding, TapeEncoding):
        raise InvalidInput("decide needs a program that runs Turing machines; this one does not.")
    letters = list(word)
    steps = bound(len(letters)) if callable(bound) else bound
    steps = require_integer("bound", steps, least=0)
    options: dict[str, Any] = {"max_steps": steps, "position": position}
    run_it = program.interpret if isinstance(program, Program) else program.run
    run = run_it(machine, letters, **options)
    return Decision(_outcome(run, steps), steps, run)


def _outcome(run: TuringRun, bound: int) -> Outcome[Answer]:
    """What a bounded run says about the word."""
    made, most = counted(run.steps, "step"), counted(bound, "step")
    # On the last cell that a machine moved to when it halted, nothing is read any more.
    last = run.steps if run.halted else run.steps + 1
    if run.wrapped_at is not None and run.wrapped_at < last:
        return DECISION_OUTCOMES(
            "undecided",
            f"No answer: at step {run.wrapped_at} the head has come around the tape of "
            f"{len(run.tape)} cells, where an endless tape would be blank.",
            "Use a program with more cells (n_cells).",
        )
    if run.verdict == "accepted":
        return DECISION_OUTCOMES("accepted", f"The machine accepts the word after {made}.")
    if run.verdict == "rejected":
        return DECISION_OUTCOMES("rejected", f"The machine rejects the word after {made}.")
    if run.halted:
        return DECISION_OUTCOMES(
            "undecided",
            f"No answer: the machine halts after {made}, but neither accepts nor rejects.",
            "Let its rules end in ACCEPT and REJECT (machines.ACCEPT is -2, machines.REJECT -3).",
        )
    return DECISION_OUTCOMES(
        "undecided",
        f"No answer within {most}: the machine is still in state {run.state}.",
        "Allow more steps (bound); for some machines no number is enough.",
    )
