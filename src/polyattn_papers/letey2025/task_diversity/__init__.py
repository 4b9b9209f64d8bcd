"""Test error in context over the diversity of tasks, against theory.

Prompts of k = kappa d tasks are fitted, and tested on tasks of the same, of no, and of the opposite
structure: by exact formulas, on fresh prompts, and beside theory for finite and for infinite d.
"""

from polyattn_papers.letey2025.task_diversity import cells, figure, findings, gates
from polyattn_papers.reproduction.experiment import Experiment

EXPERIMENT = Experiment.of(
    "letey2025", cells, findings, gates, figure,
    title="In-context learning: task diversity and alignment",
    claim="""
        Linear attention is fitted to n = τd² prompts of l = αd examples, of k = κd different
        tasks. For d → ∞ its error on new tasks has a limit in closed form, for any covariances of
        the tasks in training and in testing: it peaks at τ = 1, is the lower the better the test
        tasks are aligned with those of training, and on tasks like those it falls with κ.
    """,
    reference="""
        Letey, Zavatone-Veth, Lu and Pehlevan, Pretrain-Test Task Alignment Governs Generalization
        in In-Context Learning (arXiv 2509.26551); the theory for finite d is ours:
        docs/derivations/in_context_learning_curves.md.
    """,
)  # fmt: skip
