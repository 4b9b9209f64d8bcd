"""Whether a graph is being made of a module: then nothing may depend on the length of inputs."""

from __future__ import annotations

import torch
from torch.jit._trace import is_tracing


def is_traced() -> bool:
    """Whether the module is being traced, exported or compiled."""
    return bool(is_tracing()) or torch.compiler.is_compiling()
