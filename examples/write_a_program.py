"""Write a program
===============

A program of your own, compiled to one head of attention: follow the pointers of a linked list.
"""

import matplotlib.pyplot as plt

import polyattn as pa

P = pa.programs

node = P.symbols("node", 6)
schema = P.Schema(
    (P.Attribute("cell", (node,)), P.Attribute("next", (node,)), P.Attribute("here", (node,)))
)
i, j = P.variables("i j")
follow = P.Lookup(schema.here(j) << schema.next(j), match=schema.cell(i), query=schema.here(i))
program = P.Program(schema, [follow], "linked list")
compiled = P.compile(program)
print(program, compiled.layer, sep="\n")

links = {4: 2, 0: 3, 1: 5, 3: 1}
prompt = [schema.token(cell=at, next=to) for at, to in links.items()] + [schema.token(here=0)]
written = compiled.decode(prompt, limit=10).tokens
print(*(schema.show(token) or "nothing: the list ends here" for token in written), sep="\n")

tokens = [*prompt, *written]
names = [schema.show(token) or "(end)" for token in tokens]
figure, axes = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
axes.imshow(schema.encode(tokens), cmap="BuGn", vmax=1.4)
axes.axhline(len(prompt) - 0.5, color="#b3541e")
axes.set_yticks(range(len(names)), names)
axes.set_xticks([2.5, 8.5, 14.5], ["cell", "next", "here"])
axes.vlines([5.5, 11.5], -0.5, len(tokens) - 0.5, color="#5c6675", linewidth=0.8)
axes.tick_params(length=0)
axes.set_title("Above the line the prompt, below it what one head writes", loc="left")
plt.savefig("write_a_program.png")
