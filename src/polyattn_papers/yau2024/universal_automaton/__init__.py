"""The universal automaton: how many tokens it takes to learn it [yau2024: figure 4].

Two encodings.  The paper's strings (``tasks.automaton_strings``) are one-hot symbols whose place
says what they mean.  A single layer of linear attention cannot use them: it gives the sum over
earlier tokens of a function of that token and the last one, which is the same for every order of
them, so two tables that have the same symbols in other places get the same answers.  Our tokens
(``programs.universal_dfa``) carry state, letter and position as attributes of one token, and two
of them are written for each letter.  So that needs can be held side by side, they are also counted
in the paper's unit: the number of examples times the length of the word.
"""

from polyattn_papers.reproduction.experiment import Experiment
from polyattn_papers.yau2024.universal_automaton import cells, figure, findings, gates

EXPERIMENT = Experiment.of(
    "yau2024-fig4", cells, findings, gates, figure,
    title="Learning to run any automaton",
    claim="""
        A layer of linear attention can run any finite automaton that its prompt describes, and can
        be learned from runs in polynomial time. The paper trains a Transformer (a Llama variant of
        4 layers and 16 heads, 2048 wide, 100 epochs, at most 65,536 examples) on such runs as
        strings of symbols, and counts examples times length of the word until 99 % of next tokens
        are right, for 2 to 8 states, letters and lengths: "suggestive of a sub-exponential
        dependence". That dependence is shown by a picture, without numbers in the text.
    """,
    reference="Yau et al. (arXiv 2410.10101), figure 4, Appendices G.2 and G.4, Lemma C.5.",
    needs_torch=True,
    revision=2,
)  # fmt: skip
