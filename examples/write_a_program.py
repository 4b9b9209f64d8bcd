"""A program of your own: follow the pointers of a linked list, by one head of attention."""

import polyattn as pa

P = pa.programs

node = P.symbols("node", 6)
schema = P.Schema(
    (P.Attribute("cell", (node,)), P.Attribute("next", (node,)), P.Attribute("here", (node,)))
)
i, j = P.variables("i j")
follow = P.Lookup(schema.here(j) << schema.next(j), match=schema.cell(i), query=schema.here(i))
program = P.Program(schema, [follow], "linked list")
print(program)

compiled = P.compile(program)
print(compiled.layer)

links = {0: 3, 3: 1, 1: 5}
prompt = [schema.token(cell=at, next=to) for at, to in links.items()] + [schema.token(here=0)]
for token in compiled.decode(prompt, limit=10).tokens:
    print(schema.show(token) or "nothing: the list ends here")

# What one layer cannot do is refused, with all reasons at once.
try:
    both = P.Lookup(
        schema.here(j) << schema.next(j), (schema.cell(i), schema.here(j)), schema.here(i)
    )
    P.compile(
        P.Program(schema, [both, P.Constant(schema.here(9), when=schema.here(i))], "too much")
    )
except P.ProgramRefused as refusal:
    print(refusal)
