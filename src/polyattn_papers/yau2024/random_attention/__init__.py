"""Random linear attention: the closed form against trained models [yau2024: figures 1 and 3].

Data: one planted causal head with the paper's random parameters, as many outputs as coordinates,
Gaussian sequences of 100 tokens (``polyattn.data.planted``), and 128 further sequences for
validation.  Errors are means over positions of ||y - F(X)||^2.

Trained models: linear attention with 1, 2, 4, 8, 16 heads, or with 2, 4 layers of one head, and
Transformers of 1, 2 layers.  The grid is the paper's [yau2024: appendix G.1]: rates 0.01 and
0.001, batches of 32 and 64; the profile ``full`` runs all of it for every seed.  What the paper
leaves open is decided in favour of the trained models: no weight decay, the fastest known form of
each forward pass, the smallest validation error of the whole run, and the point of the grid that
is best on validation.  Training stops after a fixed time of one core, so steps and errors of
trained models depend on the machine; a limit of ``n_steps`` repeats the run of a row exactly.
"""

from polyattn_papers.reproduction.experiment import Experiment
from polyattn_papers.yau2024.random_attention import cells, figure, findings, gates

EXPERIMENT = Experiment.of(
    "yau2024-fig1", cells, findings, gates, figure,
    title="Random linear attention: closed form against training",
    claim="""
        Data come from a random head of linear attention. Learning by regression (Algorithm 1)
        reaches floating-point precision. Trained by gradients, more heads help, up to d² heads that
        come close to the regression; more layers, or a full Transformer, help little.
    """,
    reference="Yau et al. (arXiv 2410.10101), section 4.1, figures 1 and 3, Appendix G.1.",
    needs_torch=True,
    revision=2,
)  # fmt: skip
