"""ModelCall: what the model of an attention module of transformers gives it beside hidden states.

Masks, positions and whatever else a module is called with are made by its model, from the
configuration and the number of tokens.  A model of one layer with the same configuration is run up
to such a module, and what it is called with there is recorded: no rule of any model is known here.
"""

from __future__ import annotations

import inspect
import sys
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from polyattn.errors import InvalidInput
from polyattn.interop.torch.calls import arguments_of, require_self_attention, tokens_of

# Words in the names of arguments that a model makes.
MADE_BY_MODELS = ("mask", "position", "alibi", "bias")

# Cosines and sines made in float32 are wrong by this, for every token of the distance.
ROUNDING = 1e-6

INSTEAD = "Wrap it in a function of arrays that calls it as its model does."


class _Reached(Exception):
    """No error: how a run of the model ends where the module is called, with these."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__()
        self.call = args, kwargs


@dataclass(frozen=True)
class ModelCall:
    """Calls a module as the model of ``place`` does, which is one of its layers."""

    model: nn.Module
    place: nn.Module

    @classmethod
    def of(cls, module: nn.Module, config: Any) -> ModelCall | None:
        """None where the module needs nothing but hidden states."""
        parameters = list(inspect.signature(module.forward).parameters)[1:]
        if not any(word in name for name in parameters for word in MADE_BY_MODELS):
            return None
        if config is None:
            raise _refusal(module, "it does not hold the configuration of its model")
        small = _of_one_layer(config, getattr(module, "layer_idx", 0) or 0)
        for name, kind in vars(sys.modules[type(module).__module__]).items():
            if not name.endswith("Model") or name.endswith("PreTrainedModel"):
                continue
            if getattr(kind, "config_class", None) is not type(config):
                continue
            try:
                model = kind(small)
            except Exception as error:
                raise _refusal(module, f"{name} cannot be made of one layer ({error})") from error
            place = next((each for each in model.modules() if _alike(each, module)), None)
            if place is not None:
                return cls(model, place)
        raise _refusal(module, "no model of its kind shows what it is called with")

    def __call__(self, module: nn.Module, tokens: Tensor) -> Any:
        """What ``module`` returns for tokens (B, n, d), called as by its model."""
        args, kwargs = self._recorded(torch.ones(tokens.shape[:2], dtype=torch.long))
        arguments = arguments_of(module, args, kwargs)
        given = tokens_of(arguments, args, kwargs)
        require_self_attention(module, arguments, given)
        for name, each in arguments.items():
            if isinstance(each, Tensor) and each is not given and each.shape == given.shape:
                raise _refusal(module, f"its model gives it {name}, too, which depends on tokens")
        positions = arguments.get("position_embeddings")
        exact = None if positions is None else self._exact_positions(*positions)

        def replaced(each: Any) -> Any:
            if each is given:
                return tokens
            if each is positions:
                return exact
            return each.double() if isinstance(each, Tensor) and each.is_floating_point() else each

        return module(*map(replaced, args), **{name: replaced(e) for name, e in kwargs.items()})

    def _recorded(self, ids: Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What the module is called with where the model is given ids (B, n)."""

        def stop(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            raise _Reached(args, kwargs)

        hook = self.place.register_forward_pre_hook(stop, with_kwargs=True)
        try:
            self.model(ids, use_cache=False)
        except _Reached as reached:
            return reached.call
        finally:
            hook.remove()
        raise _refusal(self.place, "its model does not call it")

    def _exact_positions(self, *rounded: Tensor) -> tuple[Tensor, ...]:
        """Cosines and sines in float64, if some frequencies of the model are behind these."""
        shape = rounded[0].shape
        at = torch.arange(shape[-2], dtype=torch.float64)[:, None]
        for maker in self.model.modules():
            for name, frequencies in maker.named_buffers(recurse=False):
                if not name.endswith("inv_freq"):
                    continue
                scale = getattr(maker, name.replace("inv_freq", "attention_scaling"), 1.0)
                angles = at * frequencies.double()
                for laid in (torch.cat([angles, angles], -1), angles.repeat_interleave(2, -1)):
                    exact = scale * laid.cos(), scale * laid.sin()
                    if laid.shape == shape[-2:] and all(
                        torch.allclose(mine, theirs.double(), 0.0, ROUNDING * (10 + shape[-2]))
                        for mine, theirs in zip(exact, rounded, strict=True)
                    ):
                        return tuple(each.expand(shape) for each in exact)
        return tuple(each.double() for each in rounded)


def _of_one_layer(config: Any, number: int) -> Any:
    """The configuration with layer ``number`` alone, and hardly any words."""
    small = deepcopy(config)
    for name, value in vars(config).items():
        if isinstance(value, list) and len(value) == config.num_hidden_layers:
            setattr(small, name, [value[number]])
        elif name.endswith("_token_id"):
            setattr(small, name, 0)
    # Every model has this implementation, and it is given its mask as numbers that are added.
    small.num_hidden_layers, small.vocab_size, small._attn_implementation = 1, 2, "eager"
    return small


def _alike(other: nn.Module, module: nn.Module) -> bool:
    """Whether it is the same module, but for numbers: causal or not, windowed or not."""
    settings = {name: each for name, each in vars(module).items() if isinstance(each, bool | str)}
    settings.pop("training")
    return type(other) is type(module) and settings.items() <= vars(other).items()


def _refusal(module: nn.Module, why: str) -> InvalidInput:
    return InvalidInput(f"oracle, a {type(module).__name__}, cannot be queried: {why}. {INSTEAD}")
