"""Where weights come from: a state dict, a module, a file or a folder, all seen alike."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput, InvalidType
from polyattn.interop.low_rank import Matrix
from polyattn.interop.weights.files import NamedTensors, config_beside, open_weights, read_config
from polyattn.numerics.arrays import real_array, require_finite
from polyattn.numerics.tensors import is_tensor
from polyattn.quoting import shown

# Attributes under which modules of transformers and TransformerLens keep their settings.
CONFIGS = ("config", "cfg")


@dataclass(frozen=True, eq=False)
class WeightSource:
    """Named tensors that are read one by one, and what is known of their model.

    names : of all tensors
    where : what they come from, for messages
    config : the settings of the model by name, or None
    module : the torch module that was given, or None
    """

    names: tuple[str, ...]
    where: str
    config: dict[str, Any] | None
    module: Any
    _read: Callable[[str], Any]

    @classmethod
    def of(cls, source: Any, config: Any = None) -> WeightSource:
        """Whatever ``from_weights`` takes; ``config`` goes before settings found beside it."""
        given = None if config is None else _settings(config)
        if isinstance(source, str | os.PathLike):
            found = open_weights(source)
            given = config_beside(source) if given is None else given
            return cls(found.names, found.where, given, None, found.read)
        module = None
        if not isinstance(source, Mapping) and callable(getattr(source, "state_dict", None)):
            module, source = source, source.state_dict()
        if not isinstance(source, Mapping):
            raise InvalidType(
                "source must be a state dict, a torch module, or the path of a .safetensors, .bin "
                f"or .pt file or of a folder with one; got {shown(source)}."
            )
        tensors = _of_mapping(source, "the module" if module is not None else "the state dict")
        if given is None and module is not None:
            given = _settings_of(module)
        return cls(tensors.names, tensors.where, given, module, tensors.read)

    def read(self, name: str) -> Matrix:
        """A tensor as finite float64 numbers; of float16 and bfloat16 they are exact."""
        array = _numbers(self._read(name), name)
        require_finite(array, name, missing="the weights of this layer are damaged")
        return np.asarray(array, dtype=np.float64)

    def part(self, name: str) -> Any:
        """The part of the module with this name; None where there is no module."""
        return None if self.module is None else self.module.get_submodule(name)

    def buffers_above(self, name: str, last: str) -> list[Matrix]:
        """What the module keeps as ``last`` in a part of itself, or of a model around ``name``."""
        found = [] if self.module is None else self.module.named_buffers()
        parts = ((each.split("."), tensor) for each, tensor in found)
        return [
            np.asarray(_numbers(tensor, last), dtype=np.float64)
            for each, tensor in parts
            if each[-1] == last and name.split(".")[: len(each) - 2] == each[:-2]
        ]

    def config_of(self, name: str) -> dict[str, Any] | None:
        """The settings of the model, or those that the part of this name has, or one in it."""
        if self.config is not None or self.module is None:
            return self.config
        parts = self.part(name).modules()
        return next((found for each in parts if (found := _settings_of(each)) is not None), None)


def _of_mapping(state: Mapping[Any, Any], where: str) -> NamedTensors:
    for name, each in state.items():
        if not isinstance(name, str):
            raise InvalidType(f"source must have texts as names; got {shown(name)}.")
        if isinstance(each, Mapping):
            raise InvalidInput(
                f"source holds more names under {name!r}; give the state dict itself, "
                f"source[{name!r}]."
            )
    return NamedTensors(tuple(state), state.__getitem__, where)


def _numbers(tensor: Any, name: str) -> NDArray:
    """The numbers of a tensor or an array, which must be floating-point ones."""
    if is_tensor(tensor) and tensor.device.type not in ("cpu", "meta"):
        tensor = tensor.detach().cpu()
    if getattr(getattr(tensor, "dtype", None), "name", "") == "bfloat16":
        # numpy knows the type by the package that made the array.
        tensor = np.asarray(tensor).astype(np.float32)
    array = real_array(tensor, name)
    if array.dtype.kind != "f":
        raise InvalidType(
            f"{name} must hold floating-point numbers; got {array.dtype}. Dequantise the model "
            "first."
        )
    return array


def _settings(config: Any) -> dict[str, Any]:
    """The settings of ``config``: a mapping, an object that has them, or a path of JSON."""
    if isinstance(config, str | os.PathLike):
        return read_config(config)
    found = _plain_settings(config)
    if found is None:
        raise InvalidType(
            "config must be a mapping, a configuration of transformers, or the path of a "
            f"config.json; got {shown(config)}."
        )
    return found


def _settings_of(module: Any) -> dict[str, Any] | None:
    """What a module keeps as its configuration."""
    for name in CONFIGS:
        found = _plain_settings(getattr(module, name, None))
        if found is not None:
            return found
    return None


def _plain_settings(config: Any) -> dict[str, Any] | None:
    if isinstance(config, Mapping):
        return dict(config)
    if callable(getattr(config, "to_dict", None)):
        return dict(config.to_dict())
    return None
