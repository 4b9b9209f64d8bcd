"""Circuits of attention heads: what they read, what they write, and how they compose."""

from polyattn.interop.circuits.circuits import circuits
from polyattn.interop.circuits.result import Circuits

__all__ = ["Circuits", "circuits"]
