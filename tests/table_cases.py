"""Tables that tests read: random ones in long format, and what they hold according to pandas."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from hypothesis import strategies as st

from polyattn.sequences import SequenceBatch
from polyattn.sources.source import Source

NAMES = {"sequence": "who", "order": "when", "tokens": ["a", "b"], "targets": ["y"], "weight": "w"}


class Held(NamedTuple):
    """All sequences of a source or a frame: lists of arrays, one per sequence."""

    names: list[object]
    tokens: list[np.ndarray]
    targets: list[np.ndarray]
    weights: list[float]


@st.composite
def frames(draw: st.DrawFn) -> pd.DataFrame:
    """A frame in long format; sequences of 1 to 25 tokens, rows of each in any order."""
    lengths = draw(st.lists(st.integers(1, 25), min_size=1, max_size=8))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n_rows = sum(lengths)
    numbers = rng.permutation(1000)[: len(lengths)]
    names = [f"s{i:03}" for i in numbers] if draw(st.booleans()) else numbers.tolist()
    return pd.DataFrame(
        {
            "who": np.repeat(np.array(names), lengths),
            "unused": ["text"] * n_rows,
            "when": rng.permutation(n_rows),
            "a": rng.normal(size=n_rows),
            "b": rng.integers(-5, 5, size=n_rows),
            "y": rng.normal(size=n_rows),
            "w": np.repeat(rng.integers(1, 9, size=len(lengths)), lengths),
        }
    )


def expected(frame: pd.DataFrame, mode: str) -> Held:
    """What pandas finds in the whole frame."""
    groups = [
        (name, rows.sort_values("when", kind="stable"))
        for name, rows in frame.groupby("who", sort=False)
    ]
    return Held(
        [str(name) for name, _ in groups],
        [rows[["a", "b"]].to_numpy(dtype=float) for _, rows in groups],
        [rows[["y"]].to_numpy()[-1 if mode == "last" else slice(None)] for _, rows in groups],
        [float(rows["w"].iloc[0]) for _, rows in groups],
    )


def held(source: Source, mode: str) -> Held:
    """What the chunks of a source hold, one after the other."""
    found = Held([], [], [], [])
    for chunk in source.chunks:
        data = chunk.read(mode)
        if data is None:
            continue
        assert data.names is not None
        found.names.extend(str(name) for name in data.names)
        found.tokens.extend(data.batch)
        found.weights.extend(data.weights if data.weights is not None else [])
        assert (mode != "last") == isinstance(data.targets, SequenceBatch)
        found.targets.extend(data.targets)
    return found


def read_all(source: Source, mode: str = "last") -> None:
    """Read all chunks, for what they may refuse."""
    for chunk in source.chunks:
        chunk.read(mode)


def assert_same(found: Held, wanted: Held) -> None:
    """Refuse any difference, of a single bit too."""
    assert found.names == wanted.names
    assert found.weights == wanted.weights
    for mine, theirs in ((found.tokens, wanted.tokens), (found.targets, wanted.targets)):
        assert len(mine) == len(theirs)
        for one, other in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(one, other, strict=False)
            assert one.shape == other.shape
