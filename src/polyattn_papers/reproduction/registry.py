"""The names of all experiments and their packages, which are imported when they are run."""

from __future__ import annotations

from importlib import import_module

from polyattn.errors import InvalidInput
from polyattn_papers.reproduction.experiment import Experiment

PACKAGES = {
    "yau2024-fig1": "polyattn_papers.yau2024.random_attention",
    "yau2024-fig2": "polyattn_papers.yau2024.associative_memory",
    "yau2024-fig4": "polyattn_papers.yau2024.universal_automaton",
    "yau2024-utm": "polyattn_papers.yau2024.turing_machine",
    "yau2024-icl": "polyattn_papers.yau2024.in_context_regression",
    "chen2024-recovery": "polyattn_papers.chen2024.recovery",
    "chen2024-hardness": "polyattn_papers.chen2024.hardness",
    "chen2024-lower": "polyattn_papers.chen2024.lower_bounds",
    "letey2025": "polyattn_papers.letey2025.task_diversity",
}

NAMES = tuple(PACKAGES)


def find(name: str) -> Experiment:
    """The experiment of that name."""
    if name not in PACKAGES:
        raise InvalidInput(
            f"there is no experiment {name!r}; the names are {', '.join(NAMES)}, "
            "and for the command line also all."
        )
    experiment: Experiment = import_module(PACKAGES[name]).EXPERIMENT
    return experiment
