"""The papers' experiments: one command each, from settings to table, picture and page."""

from polyattn_papers.reproduction.experiment import Experiment, Gate, Row, Settings
from polyattn_papers.reproduction.registry import NAMES, find
from polyattn_papers.reproduction.reproduce import reproduce
from polyattn_papers.reproduction.result import Reproduction

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
