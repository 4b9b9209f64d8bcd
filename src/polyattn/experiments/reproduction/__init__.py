"""The papers' experiments: one command each, from settings to table, picture and page."""

from polyattn.experiments.reproduction.catalogue import NAMES, find
from polyattn.experiments.reproduction.experiment import Experiment, Gate, Row, Settings
from polyattn.experiments.reproduction.outcome import Reproduction
from polyattn.experiments.reproduction.running import reproduce

__all__ = [
    "NAMES",
    "Experiment",
    "Gate",
    "Reproduction",
    "Row",
    "Settings",
    "find",
    "reproduce",
]
