"""The papers' experiments: one command each, from settings to table, picture and page."""

from polyattn_papers.reproduction.catalogue import NAMES, find
from polyattn_papers.reproduction.experiment import Experiment, Gate, Row, Settings
from polyattn_papers.reproduction.outcome import Reproduction
from polyattn_papers.reproduction.running import reproduce

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
