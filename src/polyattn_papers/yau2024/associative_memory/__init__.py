"""Associative memory: the smallest eigenvalue of the data against the distance of what is learnt.

[yau2024: figure 2]: mixtures of sequences with orthogonal and with Gaussian keys and values.  The
closed form is given the targets of the layer, and those that the paper prints, which leave out the
query token's own term (``without_own_token``).
"""

from polyattn_papers.reproduction.experiment import Experiment
from polyattn_papers.yau2024.associative_memory import cells, figure, findings, gates

EXPERIMENT = Experiment.of(
    "yau2024-fig2", cells, findings, gates, figure,
    title="""
        Associative memory: the smallest eigenvalue says how far learners end from the truth
    """,
    claim="""
        Sequences store four keys with four values and ask for one. In 95 to 100 % of them keys and
        values are orthogonal (unitary) matrices, in the rest Gaussian. The more are Gaussian, the
        larger is the smallest eigenvalue of the second moment of the features (0.06 at 95 %), and
        the nearer to the true layer, in coefficients, end (a) the closed form and (b) layers of 1,
        2, 4, 8 heads trained by stochastic gradients. With orthogonal keys alone it is zero, and
        nothing singles out the true layer.
    """,
    reference="""
        Yau et al. (arXiv 2410.10101), section 4.2, equations (13) to (15), figure 2, and Lemma A.3.
    """,
    needs_torch=True,
    revision=4,
)  # fmt: skip
