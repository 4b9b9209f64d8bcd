"""Messages in the words of the command line: ``--sequence``, where Python says ``sequence=``.

Messages are written once, where things happen, and call arguments as Python does: a name with
``=`` and perhaps a value, or ``polyattn.fit``.  Here these become options and verbs.
"""

from __future__ import annotations

import re
from typing import Any

import click

# Functions that are verbs, too.
VERBS = ("fit", "certify", "audit", "learn_softmax", "learning_curve")

_CALL = re.compile(rf"\b(?:pa|polyattn)\.({'|'.join(VERBS)})\b(?:\([^()]*\))?")

# Parts of a form are options by themselves.
_FORM = re.compile(r"(?:\bform=)?\b(?:pa\.)?Form\(([^()]*)\)")

# A value as Python writes it; dots that stand for one belong to it.
_VALUE = r"(?:'([^']*)'|(\.\.\.|True|False|None|[\w.+-]*\w))?"

_GAPS = (
    "remove or impute them: pa.SequenceImputer fills missing values",
    "remove or impute them",
)
_FILL = "remove them, or fill them in with --impute"


def in_command_words(text: str, command: click.Command | None) -> str:
    """A message with the arguments that the command has as its options."""
    said = _CALL.sub(lambda found: f"polyattn {found[1].replace('_', '-')}", text)
    options = {} if command is None else _options(command)
    if "intercept" in options:
        said = _FORM.sub(r"\1", said)
    if "impute" in options:
        for phrase in _GAPS:
            said = said.replace(phrase, _FILL)
    for name, (option, flag) in options.items():
        said = _with_option(said, name, option, flag)
    return said


def _options(command: click.Command) -> dict[str, tuple[str, bool]]:
    """The options of a command by the names of their arguments, and whether they are flags."""
    found = {}
    for parameter in command.params:
        if not isinstance(parameter, click.Option):
            continue
        option = "--" + str(parameter.name).replace("_", "-")
        if option in parameter.opts:
            found[str(parameter.name)] = option, bool(parameter.is_flag)
    return found


def _with_option(text: str, name: str, option: str, flag: bool) -> str:
    """One argument as its option, wherever the text assigns it, or begins with it."""
    negated = name.removeprefix("no_")
    if negated != name and flag:
        return re.sub(rf"\b{negated}=False\b", option, text)

    def assigned(found: re.Match[str]) -> str:
        value = found[1] or found[2] or ""
        if flag or value in ("", "...", "True"):
            return option
        return f"no {option}" if value == "None" else f"{option} {value}"

    text = re.sub(rf"(?<![\w.]){name}={_VALUE}", assigned, text)
    if "_" in name:
        # Such a word is nothing but the name of an argument.
        return re.sub(rf"(?<![\w.=-]){name}\b(?!\()", option, text)
    return re.sub(rf"^{name}(?= must )", option, text)


def current_command() -> click.Command | None:
    """The verb that is being run, if there is one."""
    context: Any = click.get_current_context(silent=True)
    return None if context is None else context.command
