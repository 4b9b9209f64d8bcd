"""The formula of terms, written down a second time: sums over all values, tokens and products.

    y[write] = sum over the values of all variables  weight * sum_i z_i[read] z_i[match] x[query]

A variable stands for the same value wherever it occurs; where a step leads beyond the end of a
line, or a place does not have the value, there is no product.
"""

from itertools import product

import numpy as np
from hypothesis import strategies as st

import polyattn as pa
from polyattn.programs.language.attributes import Field, Pattern, Variable
from polyattn.programs.language.terms import Beyond, Unequal

P = pa.programs
MOST = 9  # no line of these tests is longer, with all steps


def reference_outputs(schema, terms, X):
    """The output (d,) for tokens X (n, d), from the formula alone."""
    at = {atom: i for i, atom in enumerate(schema.atoms)}
    y = np.zeros(schema.n_dims)
    for term in terms:
        for known in _assignments(schema, term):
            places = [place_of(pattern, known) for pattern in term.patterns]
            if all(place in at for place in places):
                write, read, match, query = (at[place] for place in places)
                y[write] += term.weight * (X[:, read] * X[:, match]).sum() * X[-1, query]
    return y


def _assignments(schema, term):
    """All values of all variables that meet the conditions; more than any place can have."""
    found = {}
    for pattern in term.patterns:
        # A whole value has no arguments.
        for argument, sort in zip(pattern.arguments, pattern.attribute.sorts, strict=False):
            if isinstance(argument, Variable):
                found.setdefault(argument.name, set()).update(_values(schema, sort))
    for values in product(*found.values()):
        known = dict(zip(found, values, strict=True))
        if all(_meets(condition, known) for condition in term.where):
            yield known


def _values(schema, sort):
    same = [s for each in schema.attributes for s in each.sorts if s.name == sort.name]
    named = {name for each in same for name in each.named}
    return named | {*range(MOST if sort.kind == "line" else max(each.size for each in same))}


def place_of(pattern, known):
    """The atom of a pattern, or something that is no atom."""
    if pattern.whole is not None:
        return pattern.attribute.name, pattern.whole
    parts = []
    for argument, sort in zip(pattern.arguments, pattern.attribute.sorts, strict=True):
        part = known[argument.name] if isinstance(argument, Variable) else argument
        if isinstance(argument, Variable) and argument.offset:
            if isinstance(part, str):
                return None
            part += argument.offset
            part = part % sort.size if sort.kind == "circle" else part
        parts.append(part)
    return pattern.attribute.name, tuple(parts)


def _meets(condition, known):
    left, right = (
        known[side.name] if isinstance(side, Variable) else side
        for side in (condition.left, condition.right)
    )
    if isinstance(condition, Unequal):
        return left != right
    if condition.sort.kind == "line":
        return left - right > condition.steps
    n = condition.sort.size
    return min((left - right) % n, (right - left) % n) > condition.steps


# ---------------------------------------------------------------- random programs

STATE = P.symbols("state", 2)
CELL = P.circle("cell", 3)
TIME = P.line("time", 3)
SCHEMA = P.Schema(
    (
        P.Attribute("flag"),
        P.Attribute("count", rounding="integer"),
        P.Attribute("state", (STATE,)),
        P.Attribute("next", (P.names("move", "L", "R"), STATE.plus("HALT"))),
        P.Attribute("key", (STATE, STATE), whole=("START",)),
        P.Attribute("sum", (STATE,), rounding="integer"),
        P.Attribute("pos", (TIME,)),
        P.Attribute("end", (P.line("time", 4),)),
        P.Attribute("cell", (CELL,)),
        P.Attribute("dp", (CELL,), rounding="integer"),
    )
)
ONE_HOT = [each for each in SCHEMA.attributes if each.rounding == "one_hot"]
REGISTERS = [each for each in SCHEMA.attributes if each.rounding == "integer"]
WEIGHTS = (1.0, 1.0, -1.0, 2.0, 0.5, -0.5)


@st.composite
def patterns(draw, attributes=SCHEMA.attributes, only=None):
    """A pattern; ``only`` names the variables that it may have."""
    attribute = draw(st.sampled_from(list(attributes)))
    if attribute.whole and draw(st.booleans()):
        return attribute(draw(st.sampled_from(attribute.whole)))
    return Pattern(attribute, tuple(draw(_arguments(sort, only)) for sort in attribute.sorts))


@st.composite
def _arguments(draw, sort, only):
    named = [f"{sort.name}{i}" for i in range(2)]
    known = [name for name in named if only is None or name in only]
    if not known or draw(st.integers(0, 6)) == 6:
        return draw(st.sampled_from(sort.parts))
    steps = st.sampled_from((0, 0, 1, -1, 2, -2, 3)) if sort.is_ordered else st.just(0)
    return Variable(draw(st.sampled_from(known)), draw(steps))


def _names(*given):
    return {a.name for each in given for a in each.arguments if isinstance(a, Variable)}


@st.composite
def _fields(draw, match, query, attributes=SCHEMA.attributes):
    read = draw(patterns(attributes))
    write = draw(patterns(only=_names(read, match, query)))
    return Field(write, read, draw(st.sampled_from(WEIGHTS)))


@st.composite
def _conditions(draw, *given):
    """Conditions between variables that all terms have."""
    names = sorted(_names(*given))
    found = []
    for name in names:
        other = draw(st.sampled_from(names))
        if other[:-1] != name[:-1] or not draw(st.booleans()):
            continue
        sort = {"time": TIME, "cell": CELL}.get(name[:-1])
        left, right = Variable(name), Variable(other)
        far = sort is not None and draw(st.booleans())
        found.append(
            Beyond(left, right, draw(st.integers(0, 1)), sort) if far else Unequal(left, right)
        )
    return tuple(found)


@st.composite
def lookups(draw):
    match, query = draw(patterns()), draw(patterns())
    found = draw(st.lists(_fields(match, query), min_size=1, max_size=2))
    # A variable of one read may be in a condition if there is no other field.
    reads = [found[0].read] if len(found) == 1 else []
    return P.Lookup(found, match, query, draw(_conditions(match, query, *reads)))


@st.composite
def registers(draw):
    flag = SCHEMA.flag() if draw(st.booleans()) else SCHEMA.count()
    given = draw(patterns())
    found = draw(st.lists(_fields(flag, given, REGISTERS), min_size=1, max_size=2))
    return P.Register(found, flag, given, draw(_conditions(given)))


@st.composite
def conditionals(draw):
    when = draw(patterns(ONE_HOT))
    if draw(st.booleans()):
        write, seen = draw(patterns(only=_names(when))), draw(st.integers(1, 2))
        return P.IfThen(write, when, seen, draw(_conditions(when)))
    first = draw(patterns())
    return P.Conjunction(draw(patterns(only=_names(first, when))), first, when)


instructions = st.one_of(lookups(), lookups(), registers(), conditionals())
programs = st.lists(instructions, min_size=1, max_size=3).map(lambda each: P.Program(SCHEMA, each))


@st.composite
def tokens(draw):
    """A token that holds some values, and differences of some."""
    content = {}
    for attribute in SCHEMA.attributes:
        # Most tokens hold most things: otherwise most products are zero.
        if draw(st.integers(0, 7)) == 7:
            continue
        value = st.sampled_from(attribute.values)
        if attribute.rounding == "one_hot":
            content[attribute.name] = draw(value)
        else:
            content[attribute.name] = draw(
                st.dictionaries(value, st.sampled_from((1, -1, 2, -2)), max_size=2)
            )
    return SCHEMA.token(**content)


prompts = st.lists(tokens(), min_size=1, max_size=2) | st.lists(tokens(), min_size=3, max_size=6)
