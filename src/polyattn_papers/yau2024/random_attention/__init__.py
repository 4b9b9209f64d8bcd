"""Random linear attention: the closed form against trained models [yau2024: figures 1 and 3].

Data: one causal head with one output, Gaussian sequences of 100 tokens, the paper's law (``task``),
and 128 further sequences for validation.  Errors are means over positions of (y - F(X))^2.

Trained models: linear attention with 1, 2, 4, 8, 16 heads, stacks of 2 and 4 layers of one head,
and a Transformer, for three seeds and the paper's grid [yau2024: appendix G.1] of rates 0.01 and
0.001 and batches of 32 and 64.  Single layers are trained for the paper's 500 epochs; the dearer
models for fewer, which findings name.  Training is deterministic; only times depend on the machine.
"""

from polyattn_papers.reproduction.experiment import Experiment
from polyattn_papers.yau2024.random_attention import cells, figure, findings, gates

EXPERIMENT = Experiment.of(
    "yau2024-fig1", cells, findings, gates, figure,
    title="Random linear attention: closed form against training",
    claim="""
        Data come from a random head of linear attention with one output. Learning by regression
        (Algorithm 1) reaches floating-point precision. Trained by gradients for 500 epochs, more
        heads help, up to d² heads that come close to the regression; more layers, or a full
        Transformer, help little.
    """,
    reference="Yau et al. (arXiv 2410.10101), section 4.1, figures 1 and 3, Appendix G.1.",
    needs_torch=True,
    revision=3,
)  # fmt: skip
