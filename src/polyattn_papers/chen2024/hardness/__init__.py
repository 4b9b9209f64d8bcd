"""Layers that are hard to learn, from mild obstacles to parity.

One cell is one planted layer.  The learner, the same descent from random starts in the learner's
time, Adam, and queries, which choose their inputs.  For parities of several bits another layer
stands beside them that no Boolean sequence tells from the planted one.
"""

from polyattn_papers.chen2024.hardness import cells, figure, findings, gates
from polyattn_papers.reproduction.experiment import Experiment

EXPERIMENT = Experiment.of(
    "chen2024-hardness", cells, findings, gates, figure,
    title="Softmax layers that are hard to learn",
    claim="""
        Exponential dependence on the number of heads is unavoidable in the worst case: from random
        examples no statistical-query learner, and under cryptographic assumptions none at all,
        learns every layer of m heads in time polynomial in m. These are theorems; here are layers
        that hide parities, and families that are hard for milder reasons.
    """,
    reference="Chen and Li (arXiv 2402.04084), the lower bounds.",
    needs_torch=True,
)  # fmt: skip
