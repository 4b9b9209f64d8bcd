"""ModuleOracle: a torch module as a function of arrays, for ``learn_from_queries``."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polyattn.errors import InvalidInput
from polyattn.interop.torch.model_call import ModelCall
from polyattn.interop.torch.modules import TorchAttention

# Where modules, or their configurations, say how many coordinates their tokens have.
SIZES = ("n_dims", "embed_dim", "in_features", "d_model", "hidden_size")

# What normalises the sum of attention and its input in modules of transformers.
AFTERWARDS = ("LayerNorm", "output.LayerNorm")


@dataclass(frozen=True)
class ModuleOracle:
    """A copy of a module, in float64, in evaluation mode and on the CPU.

    n_dims : coordinates of a token; None where the module does not say it
    mode : that of a module of ``to_torch``; None of others
    called : how its model calls a module of transformers that needs more than hidden states
    """

    module: nn.Module
    n_dims: int | None
    mode: str | None
    called: ModelCall | None = None

    @classmethod
    def of(cls, module: nn.Module) -> ModuleOracle:
        """The module as it would answer without dropout and rounding; it stays as it is.

        Of an ``nn.TransformerEncoderLayer`` its attention is taken: what it adds to that, its
        normalisation and its other layers are no attention.  Attention of transformers is called
        as its model calls it, with masks, windows and positions of the model, in the exact
        implementation; what normalises its sum with the input afterwards is left out.
        """
        if isinstance(module, nn.TransformerEncoderLayer):
            module = module.self_attn
        if isinstance(module, nn.MultiheadAttention):
            _require_self_attention(module)
        _require_no_block(module)
        try:
            copied = deepcopy(module)
        except Exception as error:
            raise InvalidInput(
                f"oracle, a {type(module).__name__}, cannot be copied ({error}); wrap it in a "
                "function of arrays."
            ) from error
        exact = copied.to("cpu", torch.float64).eval()
        configs = (getattr(each, "config", None) for each in exact.modules())
        config = next((each for each in configs if hasattr(each, "_attn_implementation")), None)
        called = None
        if type(module).__module__.startswith("transformers."):
            called = ModelCall.of(exact, config)
            if config is not None:
                # The exact implementation; the other one rounds weights to float32.
                config._attn_implementation = "sdpa"
            _without_normalisation_after(exact)
        sizes = (getattr(each, name, None) for each in (module, config) for name in SIZES)
        n_dims = next((size for size in sizes if type(size) is int), None)
        mode = module.mode if isinstance(module, TorchAttention) else None
        return cls(exact, n_dims, mode, called)

    def __call__(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Outputs (B, n, e) for X (B, n, d); of a module of mode last the same for all tokens."""
        tokens = torch.tensor(np.ascontiguousarray(X))
        with torch.no_grad():
            outputs = self._outputs(tokens)
        if not isinstance(outputs, Tensor):
            raise InvalidInput(
                "oracle must return a tensor, or a tuple that begins with one; the "
                f"{type(self.module).__name__} returned {type(outputs).__name__}. Wrap it in a "
                "function of arrays."
            )
        if self.mode == "last":
            outputs = outputs[:, None].expand(-1, tokens.shape[1], -1)
        return np.asarray(outputs.numpy())

    def _outputs(self, tokens: Tensor) -> object:
        if isinstance(self.module, nn.MultiheadAttention):
            given = tokens if self.module.batch_first else tokens.transpose(0, 1)
            outputs = self.module(given, given, given, need_weights=False)[0]
            return outputs if self.module.batch_first else outputs.transpose(0, 1)
        call = self.module if self.called is None else partial(self.called, self.module)
        outputs = call(tokens)
        return outputs[0] if isinstance(outputs, tuple) else outputs


def _require_self_attention(module: nn.MultiheadAttention) -> None:
    if module.kdim != module.embed_dim or module.vdim != module.embed_dim:
        raise InvalidInput(
            f"oracle, an nn.MultiheadAttention with kdim={module.kdim} and vdim={module.vdim}, "
            "attends to other sequences than its queries; wrap its self-attention in a function "
            "of arrays."
        )


def _require_no_block(module: nn.Module) -> None:
    """Refuse a block of attention and other layers, with what to give in its place."""
    names = dict(module.named_children())
    inner = next((name for name in ("self_attn", "attn", "attention") if name in names), None)
    beside = next((name for name in ("mlp", "feed_forward", "intermediate") if name in names), None)
    if inner is not None and beside is not None:
        norm = next((name for name in ("input_layernorm", "ln_1") if name in names), None)
        around = (
            ""
            if norm is None
            else f", or a function of arrays that adds its input to {inner}({norm}(X)), whose "
            "residual connection and normalisation are found"
        )
        raise InvalidInput(
            f"oracle, a {type(module).__name__}, is attention ({inner}) and other layers "
            f"({beside}): give its .{inner}{around}."
        )


def _without_normalisation_after(module: nn.Module) -> None:
    """Replace what normalises the sum of attention and its input by nothing."""
    for name in AFTERWARDS:
        *path, last = name.split(".")
        owner: Any = module
        for part in path:
            owner = getattr(owner, part, None)
        if isinstance(getattr(owner, last, None), nn.LayerNorm):
            setattr(owner, last, nn.Identity())
