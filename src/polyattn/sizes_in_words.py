"""Sizes of layers and of data in one line of words, the same wherever they are printed."""

from __future__ import annotations

from polyattn.quoting import counted


def sizes_in_words(n_dims: int, n_outputs: int, mode: str, bias: bool, form: str = "") -> str:
    """What a layer takes and gives: "3 coordinates to 2 outputs, mode last".

    form : what was chosen beside mode and bias, in words
    """
    sizes = f"{counted(n_dims, 'coordinate')} to {counted(n_outputs, 'output')}, mode {mode}"
    return ", ".join(each for each in (sizes, "with a constant" if bias else "", form) if each)


def data_sizes_in_words(
    n_sequences: int, n_dims: int, shortest: int | None = None, longest: int | None = None
) -> str:
    """What data are: "300 sequences, 4 tokens of 50 coordinates"; lengths as far as they are known.

    >>> data_sizes_in_words(300, 50, 4, 4)
    '300 sequences, 4 tokens of 50 coordinates'
    >>> data_sizes_in_words(1, 2, 3, 9)
    '1 sequence, 3..9 tokens of 2 coordinates'
    >>> data_sizes_in_words(5, 2, longest=9)
    '5 sequences, at most 9 tokens of 2 coordinates'
    """
    tokens = "tokens"
    if longest is not None:
        tokens = counted(longest, "token")
        if shortest is None:
            tokens = f"at most {tokens}"
        elif shortest != longest:
            tokens = f"{shortest:,}..{tokens}"
    return f"{counted(n_sequences, 'sequence')}, {tokens} of {counted(n_dims, 'coordinate')}"


def data_in_words(sizes: str, mode: str, form: str = "") -> str:
    """Which data something is about: "150 sequences, 9 tokens of 3 coordinates, mode last".

    sizes : by ``data_sizes_in_words``
    form : what was chosen beside mode and bias, in words
    """
    data = f"{sizes}, mode {mode}"
    return f"{data}, {form}" if form else data
