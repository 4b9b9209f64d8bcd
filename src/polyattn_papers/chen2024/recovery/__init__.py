"""Heads of random softmax layers from random examples, against every size.

One cell is one planted layer.  The learner (with its number of heads given, and counted), its two
methods, the six phases of the paper alone, without any polish, the same polish from random starts
in the learner's time, and Adam.
"""

from polyattn_papers.chen2024.recovery import cells, figure, findings, gates
from polyattn_papers.reproduction.experiment import Experiment

EXPERIMENT = Experiment.of(
    "chen2024-recovery", cells, findings, gates, figure,
    title="Softmax heads from random examples",
    claim="""
        The attention and value matrices of a softmax layer of m heads can be learned from uniformly
        random Boolean examples, up to the order of heads, in time (dk)^O(m^3) for d coordinates and
        k tokens, if the heads are not degenerate. This is a theorem; here its method is run alone,
        and with a polish of ours, beside faster ones, beside chance and beside Adam.
    """,
    reference="Chen and Li (arXiv 2402.04084), the main theorem.",
    needs_torch=True,
    revision=2,
)  # fmt: skip
