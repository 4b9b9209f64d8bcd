"""torch tensors as numpy arrays, without importing torch; nothing is rounded.

Whoever has a tensor has torch; what is needed of it are methods of the tensor.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidType


def is_tensor(values: object) -> bool:
    """Whether it is a torch tensor, or of a class made from it."""
    return any(
        each.__name__ == "Tensor" and each.__module__.partition(".")[0] == "torch"
        for each in type(values).__mro__
    )


def without_tensors(values: Any, name: str) -> Any:
    """A tensor, or a list of them, as arrays; anything else as it is."""
    if is_tensor(values):
        return tensor_array(values, name)
    if isinstance(values, list | tuple) and any(is_tensor(item) for item in values):
        return [without_tensors(item, f"{name}[{i}]") for i, item in enumerate(values)]
    return values


def tensor_array(tensor: Any, name: str) -> NDArray:
    """The numbers of a tensor; a view where numpy has its type.

    bfloat16 and types of fewer bits become float32, which holds all their numbers.
    """
    _require_numbers(tensor, name)
    plain = tensor.detach().resolve_conj().resolve_neg()
    try:
        return np.asarray(plain.numpy())
    except TypeError:
        if not plain.dtype.is_floating_point:
            raise InvalidType(
                f"{name} must hold real numbers; got a tensor of {plain.dtype}. Convert it first, "
                "for example with .float()."
            ) from None
        return np.asarray(plain.float().numpy())


def _require_numbers(tensor: Any, name: str) -> None:
    """Refuse tensors whose numbers are not at hand, each with what to do."""
    if tensor.is_nested:
        raise InvalidType(
            f"{name} is a nested tensor; give sequences of unequal length as list({name}.unbind())."
        )
    if str(tensor.layout) != "torch.strided":
        raise InvalidType(
            f"{name} must be a dense tensor; got the layout {tensor.layout}. Call .to_dense()."
        )
    if tensor.is_quantized:
        raise InvalidType(
            f"{name} must hold real numbers; got the quantised type {tensor.dtype}. Call "
            ".dequantize()."
        )
    if tensor.device.type == "meta":
        raise InvalidType(f"{name} is a tensor on the device 'meta', which holds no numbers.")
    if tensor.device.type != "cpu":
        raise InvalidType(
            f"{name} must be in the memory of the processor; it is on the device "
            f"{str(tensor.device)!r}. Call .cpu()."
        )
