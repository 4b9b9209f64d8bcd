"""Sequences in: one validated container for equal-length, ragged and padded data."""

from polyattn.sequences.arguments import (
    Sequences,
    as_batch,
    in_layout,
    is_frame,
    is_list,
    refuse_frame,
)
from polyattn.sequences.batch import MODES, OwnedBatch, SequenceBatch, checked_before
from polyattn.sequences.coordinate_names import common_names, names_of, require_same_names
from polyattn.sequences.equal import equal_sequences, split_apart
from polyattn.sequences.frame_columns import is_indexed
from polyattn.sequences.long_rows import require_aligned

__all__ = [
    "MODES",
    "OwnedBatch",
    "SequenceBatch",
    "Sequences",
    "as_batch",
    "checked_before",
    "common_names",
    "equal_sequences",
    "in_layout",
    "is_frame",
    "is_indexed",
    "is_list",
    "names_of",
    "refuse_frame",
    "require_aligned",
    "require_same_names",
    "split_apart",
]
