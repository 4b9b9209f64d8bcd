"""A universal Turing machine, learned from traces and run on machines never seen.

[yau2024: Appendix C, Lemma C.5] for the claim; the traces are of random machines of 2 or 3 states.
How often whole histories go wrong is held against the bound of the lemma, with its constant.
"""

from polyattn_papers.reproduction.experiment import Experiment
from polyattn_papers.yau2024.turing_machine import cells, figure, findings, gates

EXPERIMENT = Experiment.of(
    "yau2024-utm", cells, findings, gates, figure,
    title="A universal Turing machine, learned from runs",
    claim="""
        Linear attention that writes one token after the other can run any Turing machine for a
        bounded time on a bounded tape, and enough runs determine it: it can be learned from them in
        polynomial time. A whole history then goes wrong no more often than its length times the
        error of a token, up to a constant.
    """,
    reference="Yau et al. (arXiv 2410.10101), Appendix C, Lemma C.5.",
)  # fmt: skip
