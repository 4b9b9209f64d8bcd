"""Learning rules: relations, rules, spans, and outcomes that claim no more than was checked."""

from dataclasses import replace

import numpy as np
import pytest

from polyattn.errors import InvalidInput
from polyattn.programs.language.attributes import Attribute
from polyattn.programs.language.schema import Schema
from polyattn.programs.language.sorts import circle, line, names, symbols
from polyattn.programs.learning.rules.candidates import admitted, dictionaries
from polyattn.programs.learning.rules.facts import SchemaLayout, facts_of
from polyattn.programs.learning.rules.learn_rules import learn_rules
from polyattn.programs.learning.rules.learned_rules import terms_at
from polyattn.programs.learning.rules.pursuit import Choice, ColumnMoments, pursue, snapped
from polyattn.programs.learning.rules.relation_span import RelationSpan, features_of
from polyattn.programs.learning.rules.relations import Relations
from polyattn.programs.learning.rules.rule import all_links, term_of
from polyattn.programs.library.associative_memory import associative_memory
from polyattn.programs.library.universal_dfa import universal_dfa
from polyattn.programs.library.universal_turing_machine import universal_turing_machine
from polyattn.programs.machines.ready import busy_beaver
from polyattn.programs.traces import TraceRows, traces

ONE_HOT, REGISTERS = "one_hot", "registers"


class Formula:
    """A program by the formula: y[a] += weight G[read, match] x[query], entry by entry."""

    def __init__(self, schema, terms):
        self.d = schema.n_dims
        found = []
        for term in terms:
            attributes = [pattern.attribute.name for pattern in term.patterns]
            for values in term.entries():
                atoms = zip(attributes, values, strict=True)
                found.append((*(schema.coordinates[atom] for atom in atoms), term.weight))
        self.at = np.array([each[:4] for each in found], dtype=int).reshape(-1, 4)
        self.weights = np.array([each[4] for each in found])

    def step(self, gram, last):
        a, j, k, query = self.at.T
        used = np.flatnonzero(last[query])
        values = self.weights[used] * gram[j[used], k[used]] * last[query[used]]
        return np.bincount(a[used], weights=values, minlength=self.d)

    def is_exact(self, trace):
        prompt = trace.prompt.astype(float)
        gram, last, outputs = prompt.T @ prompt, prompt[-1], []
        for token in trace.completion.astype(float):
            outputs.append(self.step(gram, last))
            held = np.flatnonzero(token)
            gram[np.ix_(held, held)] += np.outer(token[held], token[held])
            last = token
        return np.array_equal(trace.schema.round(np.array(outputs)), trace.completion)


def n_exact(fit, program, n_traces=20, seed=99, **options):
    formula = Formula(program.schema, terms_at(fit.terms, program.schema))
    fresh = traces(program, n_traces=n_traces, random_state=seed, **options)
    return sum(formula.is_exact(trace) for trace in fresh)


def dfa_traces(n_traces, seed=0, style=ONE_HOT, sizes=(3, 3, 5)):
    return traces(universal_dfa(*sizes, style=style), n_traces=n_traces, random_state=seed)


def labelled(found, labels):
    return [replace(t, labels=own) for t, own in zip(found, labels, strict=True)]


def with_flips(found, share, seed=0):
    """Labels of which a share are those of another row of the same trace."""
    rng, labels = np.random.default_rng(seed), []
    for trace in found:
        wrong = rng.random(trace.n_rows) < share
        other = rng.integers(trace.n_rows, size=trace.n_rows)
        labels.append(trace.completion[np.where(wrong, other, np.arange(trace.n_rows))])
    return labels


def program_of(fit):
    return {str(term) for term in fit.terms}


# Relations


def small_schema(n_symbols=4, length=9, n_cells=11):
    kind = symbols("kind", n_symbols, landmarks=1)
    return Schema(
        (
            Attribute("flag"),
            Attribute("at", (line("time", length, landmarks=1), kind)),
            Attribute("cell", (circle("cell", n_cells),)),
            Attribute("go", (names("way", "left", "right"), kind.plus("END")), whole=("START",)),
        )
    )


def codes_of(schema, relations, atoms):
    where = np.array([[schema.coordinates[atom] for atom in each] for each in atoms]).T
    return relations.at(schema).code(*where)


def random_atoms(schema, n, seed=0):
    rng = np.random.default_rng(seed)
    at = rng.integers(schema.n_dims, size=(n, 4))
    return [[schema.atoms[each] for each in row] for row in at]


def test_a_relation_has_the_same_code_at_all_sizes():
    small, large = small_schema(), small_schema(n_symbols=7, length=20)
    relations, atoms = Relations(small), random_atoms(small_schema(), 3000)
    one, other = (codes_of(schema, relations, atoms) for schema in (small, large))
    assert np.array_equal(one, other)
    assert np.array_equal(one, codes_of(small, Relations(large), atoms))


def test_relations_are_symmetric_in_the_pair_and_blind_to_which_symbol_it_is():
    schema = small_schema()
    relations, atoms = Relations(schema), random_atoms(schema, 3000, seed=1)
    codes = codes_of(schema, relations, atoms)
    assert np.array_equal(
        codes, codes_of(schema, relations, [[a, k, j, x] for a, j, k, x in atoms])
    )

    def renamed(atom):  # 0 is a landmark, the others are exchangeable
        name, value = atom
        swap = {1: 2, 2: 3, 3: 1}
        if name not in {"at", "go"} or isinstance(value, str):
            return atom
        return name, (value[0], swap.get(value[1], value[1]))

    others = [[renamed(atom) for atom in each] for each in atoms]
    assert np.array_equal(codes, codes_of(schema, relations, others))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (("cell", (0,)), ("cell", (2,)), False),  # one step this way or that way round
        (("cell", (5,)), ("cell", (7,)), True),  # far is far
        (("cell", (3,)), ("cell", (4,)), False),
        (("go", ("left", 1)), ("go", ("right", 1)), False),
        (("go", ("left", 1)), ("go", ("left", 2)), True),
        (("go", ("left", "END")), ("go", ("left", 2)), False),
        (("go", "START"), ("go", ("left", 2)), False),
        (("at", (0, 1)), ("at", (1, 1)), False),  # the first position is a landmark
        (("at", (1, 1)), ("at", (6, 1)), True),
        (("at", (5, 0)), ("at", (5, 1)), False),  # nothing but a landmark comes from nowhere
    ],
)
def test_what_relations_tell_apart(one, other, same):
    schema = small_schema()
    rest = [("flag", ()), ("flag", ()), ("cell", (1,))]
    codes = codes_of(schema, Relations(schema), [[one, *rest], [other, *rest]])
    assert (codes[0] == codes[1]) == same


def test_half_way_round_a_small_circle_is_one_place_and_called_positive():
    relations = Relations(small_schema())

    def code(n_cells, start, stop):
        rest = [("flag", ()), ("flag", ())]
        atoms = [[("cell", (stop,)), *rest, ("cell", (start,))]]
        return codes_of(small_schema(n_cells=n_cells), relations, atoms)[0]

    assert code(4, 0, 2) == code(4, 2, 0) == code(11, 2, 0)
    assert code(11, 0, 2) != code(11, 2, 0)


def test_a_symbol_that_is_also_read_is_no_landmark():
    schema = small_schema()
    body = [("flag", ()), ("cell", (1,))]
    atoms = [[("at", (5, s)), ("at", (5, s)), *body] for s in (0, 1)]
    codes = codes_of(schema, Relations(schema), atoms)
    assert codes[0] == codes[1]


def test_too_many_relations_for_64_bits_are_refused():
    sort = symbols("kind", 3)
    schema = Schema(tuple(Attribute(f"a{i}", (sort,) * 4) for i in range(3)))
    with pytest.raises(InvalidInput, match="64 bits"):
        Relations(schema)


def test_traces_of_different_attributes_are_refused():
    one, other = dfa_traces(1)[0], dfa_traces(1, style=REGISTERS)[0]
    with pytest.raises(InvalidInput, match="same attributes"):
        learn_rules(one.schema, [one, other])


# Rules and their terms


def test_links_split_slots_in_all_ways():
    assert len(all_links((0, 1, 2), (), 0)) == 5
    assert len(all_links((0, 1), (), 3)) == 1 + 7
    assert len(all_links((0, 1), ((4, True), (5, True)), 0)) == 3 + 9


@pytest.mark.parametrize(
    ("small", "large"),
    [
        (universal_dfa(3, 3, 5, style=ONE_HOT), universal_dfa(4, 2, 8, style=ONE_HOT)),
        (universal_dfa(2, 2, 4, style=REGISTERS), universal_dfa(3, 2, 6, style=REGISTERS)),
        (universal_turing_machine(2, 2, 7), universal_turing_machine(3, 2, 10)),
    ],
)
def test_a_term_has_exactly_the_coefficients_of_its_rule(small, large):
    """Candidates of all sorts, most of them wrong: what they write is what their terms write."""
    found = traces(small, n_traces=4, random_state=0)
    fresh = traces(large, n_traces=1, random_state=1)
    layout = SchemaLayout((small.schema, large.schema))
    candidates = dictionaries(facts_of(layout, found))
    facts, rows = facts_of(layout, fresh), TraceRows.of(fresh[0])
    kinds, parts = layout.coordinates(large.schema)
    rng, n_written = np.random.default_rng(0), 0
    for kind, dictionary in candidates.items():
        for at in rng.integers(len(dictionary.rules), size=25):
            rule = dictionary.rules[at]
            products, places = admitted(rule, facts)
            written = np.zeros(facts.targets[kind].shape)
            np.add.at(written, (products.rows, places), products.values)
            own = np.flatnonzero(kinds == kind)
            steps = np.array(layout.strides(kind), dtype=int)
            by_rule = written[:, parts[own, : len(steps)] @ steps]
            formula = Formula(large.schema, [term_of(rule, 1.0, layout, large.schema)])
            by_term = [formula.step(g, x) for g, x in zip(rows.grams, rows.queries, strict=True)]
            assert np.array_equal(np.array(by_term)[:, own], by_rule), str(rule)
            assert np.abs(by_term).sum() == np.abs(by_rule).sum()
            n_written += bool(by_rule.any())
    assert n_written > 20


def planted(n_columns=60, n_rows=400, seed=0):
    rng = np.random.default_rng(seed)
    columns = rng.integers(-1, 2, size=(n_rows, n_columns)).astype(float)
    wanted = columns[:, [3, 17, 40]] @ np.array([1.0, -0.5, 2.0])
    return columns, wanted


def moments(columns, wanted):
    return ColumnMoments(columns.T @ columns, columns.T @ wanted, float(wanted @ wanted))


def test_pursuit_finds_planted_columns():
    found = pursue(moments(*planted()))
    assert found[-1][0].support == (3, 17, 40)
    assert np.allclose(found[-1][0].weights, [1.0, -0.5, 2.0])


def test_pursuit_exchanges_what_looked_best_alone():
    """Nearly the sum of two columns beats each of them, but must go when both are there."""
    columns, _ = planted()
    blend = columns[:, 3] + columns[:, 17] + 0.3 * np.random.default_rng(1).normal(size=400)
    columns = np.column_stack([columns, blend])
    wanted = columns[:, 3] + columns[:, 17]
    assert pursue(moments(columns, wanted), beam=1)[-1][0].support == (3, 17)


def test_weights_are_rounded_only_if_that_stays_exact():
    columns, _ = planted()
    own = moments(columns, columns[:, 3] / 3)
    third = Choice((3,), np.array([1 / 3]), 0.0)
    assert snapped(third, own, 0.5) is third
    own = moments(columns, columns[:, 3] / 2 + 1e-13)
    assert snapped(pursue(own)[1][0], own, 0.5).weights.tolist() == [0.5]


# Programs


@pytest.mark.parametrize("seed", range(3))
def test_the_one_hot_automaton_is_learned_from_few_traces(seed):
    fit = learn_rules(universal_dfa(3, 3, 5, style=ONE_HOT).schema, dfa_traces(8, seed))
    assert fit.outcome.name == "learned", str(fit.outcome)
    assert len(fit.terms) == 5
    assert n_exact(fit, universal_dfa(10, 6, 30, style=ONE_HOT)) == 20


def test_the_one_hot_automaton_reads_as_a_person_would_write_it():
    fit = learn_rules(universal_dfa(3, 3, 5, style=ONE_HOT).schema, dfa_traces(8))
    assert program_of(fit) == {
        "+1 px(t, x) <- px(t, x) given cpos(t)",
        "+0.5 cpos(t+1) <- px(t, x) given px(t, x)",
        "+1 state(0) <- cpos(0) given cpos(0)",
        "+1 state(q) <- state(q) & key(r, x) given key(r, x)",
        "+1 key(q, x) <- state(q) & px(t, x) given px(t, x)",
    }


def test_the_automaton_with_registers_is_learned_from_few_traces():
    small = universal_dfa(3, 2, 5, style=REGISTERS)
    fit = learn_rules(small.schema, traces(small, n_traces=10, random_state=0))
    assert fit.outcome.name == "learned", str(fit.outcome)
    assert n_exact(fit, universal_dfa(10, 6, 30, style=REGISTERS)) == 20


def test_the_associative_memory_is_one_term():
    small = associative_memory(4, 4)
    fit = learn_rules(small.schema, traces(small, n_traces=10, random_state=0))
    assert fit.outcome.name == "learned"
    assert len(fit.terms) == 1
    assert n_exact(fit, associative_memory(12, 9)) == 20


def test_the_turing_machine_is_learned_and_runs_at_sizes_never_seen():
    small = universal_turing_machine(3, 2, 9)
    fit = learn_rules(small.schema, traces(small, n_traces=16, random_state=0))
    assert fit.outcome.name == "learned", str(fit.outcome)
    assert len(fit.terms) <= 20
    assert n_exact(fit, universal_turing_machine(4, 3, 16)) == 20
    assert runs_busy_beaver(fit, 4, 32, 200)


def test_traces_of_different_sizes_are_learned_together():
    found = [trace for n in (2, 3, 4) for trace in dfa_traces(3, n, sizes=(n, 5 - n, n + 2))]
    fit = learn_rules(found[0].schema, found)
    assert fit.outcome.name == "learned", str(fit.outcome)
    assert n_exact(fit, universal_dfa(8, 8, 8, style=ONE_HOT)) == 20


def runs_busy_beaver(fit, n_states, n_cells, n_steps):
    program = universal_turing_machine(n_states, 2, n_cells)
    given = {"machines": [busy_beaver(n_states)], "inputs": [[0] * n_cells]}
    return n_exact(fit, program, 1, steps=(n_steps, n_steps), **given) == 1


# Noise


@pytest.mark.parametrize("seed", range(2))
def test_flipped_labels_do_not_change_the_program_but_are_owned_up_to(seed):
    found = dfa_traces(15, seed)
    clean = learn_rules(found[0].schema, found)
    fit = learn_rules(found[0].schema, labelled(found, with_flips(found, 0.1, seed)))
    assert program_of(fit) == program_of(clean)
    assert fit.outcome.name != "learned"
    assert fit.findings.n_wrong > 0


def test_noisy_numbers_do_not_change_the_program():
    found, rng = dfa_traces(15), np.random.default_rng(0)
    labels = [t.completion + 0.1 * rng.standard_normal(t.completion.shape) for t in found]
    fit = learn_rules(found[0].schema, labelled(found, labels))
    assert program_of(fit) == program_of(learn_rules(found[0].schema, found))


# What must not be claimed


def test_shuffled_labels_are_not_claimed():
    found, rng = dfa_traces(8), np.random.default_rng(0)
    labels = [rng.permutation(trace.completion) for trace in found]
    fit = learn_rules(found[0].schema, labelled(found, labels))
    assert fit.outcome.name == "unexplained"
    assert "trace 0, token" in str(fit.outcome)


def test_one_trace_does_not_check_itself():
    found = dfa_traces(1)
    assert learn_rules(found[0].schema, found).outcome.name == "unchecked"


def test_words_of_one_letter_do_not_teach_what_comes_next():
    program = universal_dfa(3, 3, 5, style=ONE_HOT)
    found = traces(program, n_traces=12, random_state=0, lengths=(1, 1))
    fit = learn_rules(program.schema, found)
    assert fit.outcome.name == "untested"
    assert "time was always the same" in str(fit.outcome)


def test_a_small_circle_does_not_tell_left_from_right():
    small = universal_turing_machine(2, 2, 4)
    fit = learn_rules(small.schema, traces(small, n_traces=12, random_state=0))
    assert fit.outcome.name != "learned"
    assert any("on a circle of 4" in gap for gap in fit.findings.gaps)


def test_a_trace_that_contradicts_the_others_is_named():
    found = dfa_traces(10)
    odd = found[4]
    wrong = odd.completion.copy()
    state = odd.schema.blocks["state"]
    wrong[0, state] = np.roll(wrong[0, state], 1)
    labels = [wrong if trace is odd else trace.completion for trace in found]
    fit = learn_rules(found[0].schema, labelled(found, labels))
    assert fit.outcome.name == "noisy"
    assert [str(each) for each in fit.findings.mismatches] == [
        "trace 4, token 0, attribute 'state'"
    ]


def test_rules_that_fit_as_well_and_go_on_differently_are_named():
    """No cell is left twice to the left: where the head is and where it was look the same."""
    program = universal_turing_machine(3, 3, 9)
    fit = learn_rules(program.schema, traces(program, 10, random_state=19))
    assert fit.outcome.name == "ambiguous"
    assert not fit.findings.mismatches
    assert fit.findings.n_agreeing == fit.findings.n_folds
    wrong, right = "cell(p) & mq(-1, q) given cell(p)", "dp(p) & flag given mq(-1, q)"
    assert any(wrong in pair and right in pair for pair in fit.findings.rivals)


@pytest.mark.slow
def test_rules_that_go_on_differently_are_named_in_complete_traces():
    """Random machines show the difference as well."""
    program = universal_turing_machine(3, 3, 9)
    fit = learn_rules(program.schema, said_to_be_complete(program))
    assert fit.outcome.name == "ambiguous"
    # A schema that knows of no machines cannot see that: the plainest rules are believed.
    bare = replace(program.schema, encoding=None)
    blind = [replace(trace, schema=bare) for trace in said_to_be_complete(program)]
    assert learn_rules(bare, blind).outcome.name == "learned"


def said_to_be_complete(program):
    return [replace(trace, cut=False) for trace in traces(program, 10, random_state=19)]


def test_no_traces_are_refused():
    with pytest.raises(InvalidInput, match="at least one"):
        learn_rules(dfa_traces(1)[0].schema, [])


# Spans


def equations_of(relations, found):
    """Every equation of traces over all relations, one by one, and what it must give."""
    rows, codes, values, wanted = [], [], [], []
    for trace in found:
        own = TraceRows.of(trace)
        features = features_of(own, relations.at(trace.schema))
        rows.append(features.equations + sum(map(len, wanted)))
        codes.append(features.codes)
        values.append(features.values)
        wanted.append(own.targets.ravel())
    known, columns = np.unique(np.concatenate(codes), return_inverse=True)
    matrix = np.zeros((sum(map(len, wanted)), len(known)))
    matrix[np.concatenate(rows), columns] = np.concatenate(values)
    return known, matrix, np.concatenate(wanted)


def statuses_of(span, found):
    return np.concatenate([span.at(trace.schema).inside(TraceRows.of(trace)) for trace in found])


def test_rows_inside_the_span_are_predicted_by_any_fit_and_few_traces_saturate():
    found, fresh = dfa_traces(40, sizes=(3, 2, 4)), dfa_traces(10, 7, sizes=(3, 2, 4))
    few, many = (RelationSpan(found[0].schema, found[:n]) for n in (3, 40))
    assert few.rank < many.rank < many.n_relations
    assert (statuses_of(few, fresh) == "outside").any()
    assert (statuses_of(many, fresh) == "inside").all()
    for span, n_traces in ((few, 3), (many, 40)):
        known, matrix, wanted = equations_of(span.relations, found[:n_traces])
        # Of some more random combinations of equations than their rank, rank and solutions are
        # those of all.
        mixed = np.random.default_rng(0).standard_normal((span.rank + 50, len(matrix)))
        weights, _, rank, _ = np.linalg.lstsq(mixed @ matrix, mixed @ wanted, rcond=1e-11)
        assert rank == span.rank
        np.testing.assert_allclose(matrix @ weights, wanted, atol=1e-9)
        for trace in fresh:
            codes, own, right = equations_of(span.relations, [trace])
            shared = np.isin(codes, known)
            outputs = own[:, shared] @ weights[np.searchsorted(known, codes[shared])]
            same = np.abs(outputs - right).reshape(trace.completion.shape).max(axis=1) < 1e-6
            assert same[statuses_of(span, [trace]) == "inside"].all()


def test_training_rows_are_inside_and_a_row_of_another_kind_is_outside():
    found = dfa_traces(10)
    span = RelationSpan(found[0].schema, found)
    assert (statuses_of(span, found) == "inside").all()
    rows, schema = TraceRows.of(found[0]), found[0].schema
    strange = schema.encode([schema.token(px=(1, 0), cpos=0, state=1)]).astype(float)
    row = TraceRows(rows.grams[:1], strange, rows.targets[:1])
    assert span.at(schema).inside(row).tolist() == ["outside"]


# Minutes


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_the_turing_machine_from_forty_traces(seed):
    small = universal_turing_machine(3, 3, 9)
    fit = learn_rules(small.schema, traces(small, n_traces=40, random_state=seed))
    assert fit.outcome.name == "learned", str(fit.outcome)
    assert len(fit.terms) <= 40
    assert n_exact(fit, universal_turing_machine(4, 3, 16), 100) == 100
    assert runs_busy_beaver(fit, 4, 32, 200)
    assert runs_busy_beaver(fit, 5, 128, 3000)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_turing_machine_from_labels_of_which_a_tenth_is_wrong(seed):
    small = universal_turing_machine(3, 3, 9)
    found = traces(small, n_traces=40, random_state=seed)
    fit = learn_rules(small.schema, labelled(found, with_flips(found, 0.1, seed)))
    assert fit.outcome.name != "learned"
    assert n_exact(fit, universal_turing_machine(4, 3, 16), 50) == 50


@pytest.mark.slow
@pytest.mark.parametrize("n_traces", [4, 6, 8, 10])
def test_no_false_claim_from_very_few_traces(n_traces):
    small, large = universal_turing_machine(3, 2, 9), universal_turing_machine(4, 3, 16)
    for seed in range(8):
        fit = learn_rules(small.schema, traces(small, n_traces=n_traces, random_state=seed))
        assert fit.outcome.name != "learned" or n_exact(fit, large, 50) == 50
