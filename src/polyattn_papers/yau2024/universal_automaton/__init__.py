"""The universal automaton: how many tokens it takes to learn it [yau2024: figure 4]."""

from polyattn_papers.reproduction.experiment import Experiment
from polyattn_papers.yau2024.universal_automaton import cells, figure, findings, gates

EXPERIMENT = Experiment.of(
    "yau2024-fig4", cells, findings, gates, figure,
    title="Learning to run any automaton",
    claim="""
        A layer of linear attention can run any finite automaton that its prompt describes, and can
        be learned from runs in polynomial time. The paper trains a Transformer of 4 layers, 2048
        wide, on such runs; for 2 to 8 states, letters and lengths of the word it needs 10⁴ to 10⁶
        tokens until 99 % of next tokens are right.
    """,
    reference="Yau et al. (arXiv 2410.10101), figure 4, Appendix G.4, Lemma C.5.",
    needs_torch=True,
)  # fmt: skip
