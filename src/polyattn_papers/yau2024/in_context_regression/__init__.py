"""In-context linear regression: the fitted optimum against one step of gradient descent.

Beyond the paper.  For this task the best layer is known in closed form, so that the coefficients
of a fit can be compared with it one by one, and so can the speed at which they come near.
"""

from polyattn_papers.reproduction.experiment import Experiment
from polyattn_papers.yau2024.in_context_regression import cells, figure, findings, gates

EXPERIMENT = Experiment.of(
    "yau2024-icl", cells, findings, gates, figure,
    title="In-context regression: the fitted layer is one step of gradient descent",
    claim="""
        Not in the paper, but a consequence of it. Its theorem says that least squares in cubic
        features finds the best linear attention layer over any number of heads. For linear
        regression in context that layer can be written down: it predicts as one step of gradient
        descent does, preconditioned by Γ⁻¹/n, Γ = (1 + 1/n) Σ + ((tr Σ + σ²)/n) I. One head
        computes it, and more heads cannot do better. So a fit to N sequences must come near to it
        like N^(-1/2), in every coefficient.
    """,
    reference="""
        Yau et al. (arXiv 2410.10101), Theorem 2.2, with the one-head theory of Ahn and others
        (2023), Zhang, Frei and Bartlett (2024), Mahankali and others (2024); for any number of
        heads: docs/derivations/in_context_regression.md.
    """,
)  # fmt: skip
