"""Films: a run as a sequence of pictures, each with what the layer wrote for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from polyattn.programs.machines.tape import cells_line


@dataclass(frozen=True)
class Written:
    """A token that the layer wrote: its number, what it holds in words, and its margin."""

    number: int
    words: list[tuple[str, str]]
    margin: float


@dataclass(frozen=True)
class Frame:
    """One picture: how things are before a step, and what the step does.

    head : the place of the cell that is looked at, if there is one
    changed : the place and the new content of the cell that the step before has written to
    rule : the state and the letter whose rule is applied
    """

    state: str
    text: str
    head: int | None = None
    changed: tuple[int, str] | None = None
    rule: tuple[int, int] | None = None
    written: list[Written] = field(default_factory=list)


@dataclass(frozen=True)
class Film:
    """A run to look at.

    cells : the tape or the word at the start; empty where tokens are all there is to see
    first : the number of the first cell; 0 is the first letter of the input
    reads : whether cells are a word that is read from left to right, and not a tape
    prompt : the tokens that were given, where tokens are all there is to see
    n_steps : of the whole run, of which the frames may be the beginning
    findings : what came out, in sentences
    agrees : whether the law gives the same; None if there is none
    law : what the run is judged by
    """

    frames: list[Frame]
    n_steps: int
    findings: list[str]
    agrees: bool | None = None
    law: str = "machine's own rules"
    cells: list[str] = field(default_factory=list)
    first: int = 0
    reads: bool = False
    prompt: list[list[tuple[str, str]]] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether the last frame is the end of the run."""
        return len(self.frames) == self.n_steps + 1

    @property
    def n_shown(self) -> int:
        """How many steps of a run that was cut are shown; of tokens the first frame is none."""
        return len(self.frames) if self.cells else len(self.frames) - 1

    @property
    def attributes(self) -> list[str]:
        """The attributes that some token has, in the order of their first appearance."""
        written = (token.words for frame in self.frames for token in frame.written)
        return list(dict.fromkeys(name for words in (*self.prompt, *written) for name, _ in words))

    def lines(self) -> Iterator[tuple[int, Frame, str]]:
        """The number of each frame, the frame, and its cells on one line."""
        cells = list(self.cells)
        for number, frame in enumerate(self.frames):
            if frame.changed:
                cells[frame.changed[0]] = frame.changed[1]
            yield number, frame, cells_line(cells, frame.head)

    def to_dict(self) -> dict[str, Any]:
        """What the script of the page needs, in plain types."""
        frames = [
            {
                "state": frame.state, "text": frame.text, "head": frame.head,
                "changed": frame.changed, "rule": frame.rule,
                "written": [[one.number, f"{one.margin:.3g}", one.words] for one in frame.written],
            }
            for frame in self.frames
        ]  # fmt: skip
        return {
            "cells": self.cells,
            "reads": self.reads,
            "prompt": self.prompt,
            "attributes": self.attributes if self.prompt else [],
            "frames": frames,
        }
