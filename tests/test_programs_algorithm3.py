"""Autoregressive programs of the paper, literally: they are layers, by its lemma as corrected.

[yau2024: Algorithm 3] is acted out on objects with attributes; the layer has the heads of the proof
of [yau2024: Lemma F.1] and nothing of the compiler.
"""

from dataclasses import dataclass

import numpy as np
import pytest

import polyattn as pa
from polyattn.model import LinearAttention

P = pa.programs

SIZE, N_OBJECTS, N_NEW = 5, 4, 6
ATTRIBUTES = ("pos", "key", "val", "state", "out")
LONGEST = N_OBJECTS + N_NEW


def alphabet(name):
    return LONGEST if name == "pos" else SIZE


@dataclass(frozen=True)
class Pair:
    """AttrSource, AttrDest, AttrKey, AttrValue and the functions B_Q and B_V as lists."""

    source: str
    dest: str
    key: str
    value: str
    ask: tuple[int, ...]
    write: tuple[int, ...]


def random_pairs(rng):
    """Three lookups with functions of their own; no attribute is written by two."""
    ways = [("state", "state", "key", "val"), ("pos", "out", "pos", "state"),
            ("out", "val", "key", "val")]  # fmt: skip
    return [
        Pair(*way, tuple(rng.integers(alphabet(way[2]), size=alphabet(way[0])).tolist()),
             tuple(rng.integers(SIZE, size=SIZE).tolist()))
        for way in ways
    ]  # fmt: skip


def random_objects(rng):
    """Objects with keys of their own, as the paper aims at."""
    keys = rng.permutation(SIZE)[:N_OBJECTS]
    return [
        {"pos": at, "key": int(key), "val": int(rng.integers(SIZE)),
         "state": int(rng.integers(SIZE)), "out": int(rng.integers(SIZE))}
        for at, key in enumerate(keys)
    ]  # fmt: skip


def algorithm_3(pairs, objects, n_new):
    """Lines 3 to 19, one new object after the other."""
    objects = list(objects)
    for r in range(len(objects) - 1, len(objects) - 1 + n_new):
        new = {"pos": r + 1}
        for pair in pairs:
            # An attribute that is zero is not in the table.
            table = {each[pair.key]: each[pair.value] for each in objects
                     if pair.key in each and pair.value in each}  # fmt: skip
            if pair.source in objects[r]:
                query = pair.ask[objects[r][pair.source]]
                if query in table:
                    new[pair.dest] = pair.write[table[query]]
        objects.append(new)
    return objects


def schema():
    sorts = {"pos": P.line("pos", LONGEST)}
    return P.Schema(tuple(
        P.Attribute(name, (sorts.get(name, P.symbols("symbol", SIZE)),)) for name in ATTRIBUTES
    ))  # fmt: skip


def heads_of_the_lemma(schema, pairs, as_printed=False):
    """Q = B_Q from AttrSource to AttrKey and V = B_V from AttrValue to AttrDest, for each pair.

    As printed, V stands between AttrSource and AttrKey, Q between AttrValue and AttrDest.
    """
    d, at = schema.n_dims, {name: block.start for name, block in schema.blocks.items()}
    attn, value = np.zeros((len(pairs) + 1, d, d)), np.zeros((len(pairs) + 1, d, d))
    for number, pair in enumerate(pairs):
        for a, b in enumerate(pair.ask):
            attn[number, at[pair.source] + a, at[pair.key] + b] = 1.0
        for a, b in enumerate(pair.write):
            value[number, at[pair.value] + a, at[pair.dest] + b] = 1.0
        if as_printed:
            attn[number], value[number] = value[number].copy(), attn[number].copy()
    # Line 5: the position of the new object is the next one.
    for r in range(LONGEST):
        attn[-1, at["pos"] + r, at["pos"] + r] = 1.0
        if r + 1 < LONGEST:
            value[-1, at["pos"] + r, at["pos"] + r + 1] = 1.0
    return LinearAttention(attn, value, mode="last")


def autoregressive(schema, layer, objects, n_new):
    """[yau2024: eq. 24, 25]: the next token is appended, and so on (with y^{t+1}, not y^t)."""
    Z = schema.encode([schema.token(**each) for each in objects]).astype(float)
    for _ in range(n_new):
        Z = np.vstack([Z, layer(Z)])
    return Z


def compiled(schema, pairs):
    """The same lookups in our language: one for each value that is asked, functions spelt out."""
    t, instructions = P.variables("t")[0], []
    for pair in pairs:
        source, dest, key, value = (
            getattr(schema, name) for name in (pair.source, pair.dest, pair.key, pair.value)
        )
        fields = [dest(b) << value(a) for a, b in enumerate(pair.write)]
        instructions += [P.Lookup(fields, key(b), source(a)) for a, b in enumerate(pair.ask)]
    instructions.append(P.IfThen(schema.pos(t + 1), when=schema.pos(t)))
    return P.compile(P.Program(schema, instructions, "Algorithm 3"))


@pytest.mark.parametrize("seed", range(20))
def test_a_program_of_algorithm_3_is_a_layer_and_a_program_of_ours(seed):
    rng, own = np.random.default_rng(seed), schema()
    pairs, objects = random_pairs(rng), random_objects(rng)
    expected = algorithm_3(pairs, objects, N_NEW)
    rows = own.encode([own.token(**each) for each in expected])
    layer = heads_of_the_lemma(own, pairs)
    # Exact at every step, before any rounding: values, keys and positions are found once.
    np.testing.assert_array_equal(autoregressive(own, layer, objects, N_NEW), rows)
    found = compiled(own, pairs).decode([own.token(**each) for each in objects], N_NEW)
    np.testing.assert_array_equal(own.encode(found.tokens), rows[N_OBJECTS:])


def test_with_its_matrices_as_printed_the_lemma_is_wrong():
    wrong = 0
    for seed in range(20):
        rng, own = np.random.default_rng(seed), schema()
        pairs, objects = random_pairs(rng), random_objects(rng)
        rows = own.encode([own.token(**each) for each in algorithm_3(pairs, objects, 1)])
        layer = heads_of_the_lemma(own, pairs, as_printed=True)
        wrong += not np.array_equal(autoregressive(own, layer, objects, 1), rows)
    assert wrong >= 15  # in the others nothing is found


def test_two_objects_with_one_key_give_the_sum_of_their_values():
    """Line 9: "if multiple objects have same obj.AttrKey then returns sum"."""
    own = schema()
    same = tuple(range(SIZE))
    pairs = [Pair("state", "out", "key", "val", same, same)]
    objects = [{"pos": 0, "key": 2, "val": 1}, {"pos": 1, "key": 2, "val": 3, "state": 2}]
    output = autoregressive(own, heads_of_the_lemma(own, pairs), objects, 1)[-1]
    np.testing.assert_array_equal(output[own.blocks["out"]], [0, 1, 0, 1, 0])
