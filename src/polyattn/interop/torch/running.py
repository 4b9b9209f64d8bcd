"""Any torch module as a function of sequences."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polyattn.errors import InvalidInput
from polyattn.sequences import SequenceBatch


def outputs(module: nn.Module, batch: SequenceBatch) -> NDArray | list[NDArray]:
    """What any module makes of sequences, in evaluation mode and without gradients.

    Sequences of one length are one tensor (B, n, d), of the dtype and on the device of the
    parameters (float64 without any); others come one by one, as tensors (1, n, d).
    """
    like = next((p for p in module.parameters() if p.is_floating_point()), None)
    target = torch.empty(0, dtype=torch.float64) if like is None else like
    length = batch.common_length
    with torch.no_grad(), _evaluating(module):
        if length is not None:
            return _run(module, batch.values.reshape(len(batch), length, batch.n_dims), target)
        return [_run(module, sequence[None], target)[0] for sequence in batch]


def _run(module: nn.Module, X: NDArray, like: Tensor) -> NDArray[np.float64]:
    """Outputs for X (B, n, d), computed in the dtype and on the device of ``like``."""
    result = module(torch.tensor(np.ascontiguousarray(X), dtype=like.dtype, device=like.device))
    if not isinstance(result, Tensor) or result.shape[:1] != (len(X),):
        came = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
        raise InvalidInput(
            f"the module must return one tensor with a row for each of the {len(X)} sequences; "
            f"got {came}. Wrap it in a function that does."
        )
    return result.to("cpu", torch.float64).numpy()


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode, without dropout; every part gets its own mode back."""
    before = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in before:
            part.training = training
