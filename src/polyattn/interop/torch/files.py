"""Files that torch wrote: their tensors, and nothing that would run code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from polyattn.errors import FileFormatError, InvalidInput
from polyattn.quoting import shown


def load_state(path: Path) -> dict[str, Tensor]:
    """The tensors by name; files that hold more than tensors and plain data are refused."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except torch.serialization.pickle.UnpicklingError:  # type: ignore[attr-defined]
        raise InvalidInput(
            f"source {str(path)!r} holds more than tensors, and reading it would run what it holds;"
            " convert it to safetensors (safetensors.torch.save_file) where you trust it."
        ) from None
    except (RuntimeError, EOFError, ValueError, KeyError) as error:
        raise FileFormatError(
            f"{str(path)!r} is no file of torch, or it is truncated ({shown(str(error))})."
        ) from None
    return require_state(content, f"source {str(path)!r}")


def require_state(content: Any, what: str) -> dict[str, Tensor]:
    """The tensors of a state dict; one that lies inside another mapping is named."""
    if isinstance(content, Mapping):
        tensors = {name: each for name, each in content.items() if isinstance(each, Tensor)}
        if tensors and all(isinstance(name, str) for name in tensors):
            return tensors
        inner = [name for name, each in content.items() if isinstance(each, Mapping)]
        if inner:
            raise InvalidInput(
                f"{what} holds {', '.join(shown(name) for name in inner[:6])}, each of which holds "
                "more; give the state dict itself, for example torch.load(path, "
                f"weights_only=True)[{shown(inner[0])}]."
            )
    raise InvalidInput(f"{what} must hold tensors by name; got {type(content).__name__}.")
