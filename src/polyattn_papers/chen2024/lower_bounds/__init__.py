"""Lower bounds for parity layers: statistical queries, and learning parity with noise.

Four kinds of cells: the bound on statistical queries, computed; its argument, played out on all
sequences of small families; secrets of learning parity with noise, read out of learned layers; and
the work of the attacks that there are.
"""

from polyattn_papers.chen2024.lower_bounds import cells, figure, findings, gates
from polyattn_papers.reproduction.experiment import Experiment

EXPERIMENT = Experiment.of(
    "chen2024-lower", cells, findings, gates, figure,
    title="Lower bounds for learning softmax layers",
    claim="""
        Exponential dependence on the number of heads is unavoidable in the worst case: a lower
        bound for learners by statistical queries, and one under a cryptographic assumption. Both
        are theorems with constructions of the paper's own. Here are others, of ours, with numbers:
        s heads that compute a parity of s of d - 1 bits.
    """,
    reference="Chen and Li (arXiv 2402.04084), the lower bounds; family and proofs are ours.",
)  # fmt: skip
