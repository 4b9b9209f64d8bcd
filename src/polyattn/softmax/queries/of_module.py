"""What is queried: a function as it is, and a torch module by a copy of it that answers exactly."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from polyattn.errors import InvalidInput, InvalidType, require_integer


def as_oracle(oracle: Any, n_dims: int | None, mode: str) -> tuple[Callable[[Any], Any], int, str]:
    """The function to call, the coordinates of its tokens, and the mode of the layer in it.

    What a layer or a module says of itself need not be given.
    """
    if not callable(oracle):
        raise InvalidType(f"oracle must be callable; got {type(oracle).__name__}.")
    known = getattr(oracle, "n_dims", None)
    # By name: torch modules are handled above this package, and torch is imported for them alone.
    if import_module("polyattn.interop").is_torch_module(oracle):
        module = import_module("polyattn.interop.torch.queries").ModuleOracle.of(oracle)
        oracle, known = module, module.n_dims
        mode = module.mode if mode == "auto" and module.mode else mode
    if n_dims is None and known is None:
        raise InvalidInput(
            "n_dims is missing: the coordinates of a token, which the oracle does not say."
        )
    chosen = require_integer("n_dims", known if n_dims is None else n_dims)
    if isinstance(known, int) and chosen != known:
        raise InvalidInput(
            f"n_dims must be {known}, the coordinates of the tokens of the oracle; got {chosen}. "
            "Leave it out."
        )
    return oracle, chosen, mode
