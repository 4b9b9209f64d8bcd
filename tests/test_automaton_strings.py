"""Runs of automata in the paper's encoding: symbols in place, right histories, refusals."""

import numpy as np
import pytest

from polyattn import programs
from polyattn.errors import InvalidInput
from polyattn.programs import DFA
from polyattn_papers.tasks.automata import Machines, letters_of
from polyattn_papers.tasks.automaton_strings import StringEncoding

SIZES = [(1, 1, 1), (2, 2, 2), (4, 4, 4), (3, 5, 1), (2, 1, 6), (8, 4, 4), (4, 4, 8)]


def spelled(encoding, string):
    """States as digits, letters as a, b, ..."""
    names = [*map(str, range(encoding.n_states))]
    names += [chr(ord("a") + letter) for letter in range(encoding.n_letters)]
    return "".join([*names, "(", ")", "|"][symbol] for symbol in string)


def test_a_string_written_by_hand():
    encoding = StringEncoding(2, 2, 3)
    table, word = np.array([[[0, 1], [1, 0]]]), np.array([[1, 0, 1]])
    (string,) = encoding.encode(table, word)
    assert spelled(encoding, string) == "(0a0)(0b1)(1a1)(1b0)|bab|(0b1)(1a1)(1b0)"


@pytest.mark.parametrize("sizes", SIZES)
def test_counts_are_those_of_the_paper(sizes):
    n_states, n_letters, length = sizes
    encoding = StringEncoding(*sizes)
    strings = encoding.draw(5, np.random.default_rng(0))
    assert strings.shape == (5, encoding.n_tokens)
    assert encoding.n_tokens == 5 * n_states * n_letters + 1 + length + 1 + 5 * length
    assert 0 <= strings.min() <= strings.max() == encoding.n_symbols - 1
    bars = np.flatnonzero(strings[0] == encoding.n_symbols - 1)
    assert bars.tolist() == [5 * n_states * n_letters, 5 * n_states * n_letters + 1 + length]


@pytest.mark.parametrize("sizes", SIZES)
def test_histories_are_those_of_the_automata(sizes):
    encoding = StringEncoding(*sizes)
    for string in encoding.draw(20, np.random.default_rng(1)):
        dfa, word, states = encoding.decode(string)
        assert states == [0, *dfa.run(word)]
        table = np.asarray(dfa.transitions)[None]
        np.testing.assert_array_equal(encoding.encode(table, np.array([word]))[0], string)


def test_a_wrong_state_is_read_as_it_stands_and_other_symbols_are_refused():
    encoding = StringEncoding(3, 2, 2)
    string = encoding.draw(1, np.random.default_rng(2))[0]
    for place in range(encoding.n_tokens):
        step = place - (encoding.n_tokens - encoding.n_history)
        changed = string.copy()
        changed[place] = (string[place] + 1) % 3 if step >= 0 and step % 5 in (1, 3) else 99
        if step >= 0 and step % 5 in (1, 3):
            _, _, states = encoding.decode(changed)
            assert (states != encoding.decode(string)[2]) == (step % 5 == 3)
            continue
        with pytest.raises(InvalidInput):
            encoding.decode(changed)
    with pytest.raises(InvalidInput, match="symbols"):
        encoding.decode(string[:-1])


def test_drawing_repeats_itself_and_covers_all_states():
    encoding = StringEncoding(4, 3, 5)
    one, other = (encoding.draw(50, np.random.default_rng(3)) for _ in range(2))
    np.testing.assert_array_equal(one, other)
    assert set(one[:, -2]) == set(range(4))
    assert encoding.draw(0, np.random.default_rng(0)).shape == (0, encoding.n_tokens)


@pytest.mark.parametrize(
    ("tables", "words", "match"),
    [
        (np.zeros((2, 2, 2), int), np.zeros((3, 2), int), "shapes"),
        (np.zeros((2, 2, 3), int), np.zeros((2, 2), int), "shapes"),
        (np.full((2, 2, 2), 2), np.zeros((2, 2), int), "tables must hold integers from 0 to 1"),
        (np.zeros((2, 2, 2), int), np.full((2, 2), -1), "words must hold integers from 0 to 1"),
        (np.zeros((2, 2, 2)), np.zeros((2, 2), int), "tables must hold integers"),
    ],
)
def test_what_is_no_automaton_is_refused(tables, words, match):
    with pytest.raises(InvalidInput, match=match):
        StringEncoding(2, 2, 2).encode(tables, words)


@pytest.mark.parametrize("sizes", [(0, 2, 2), (2, 0, 2), (2, 2, 0), (2.0, 2, 2)])
def test_sizes_are_positive_integers(sizes):
    with pytest.raises(InvalidInput, match="integer of at least 1"):
        StringEncoding(*sizes)


def test_letters_of_our_traces_are_those_of_their_words():
    mixed = Machines((3, 2, 5), 0, mixed=True).first(20)
    for trace in mixed:  # two tokens are written for each letter, and one at the end
        assert 2 * letters_of(trace) + 1 == trace.n_rows
    assert len({letters_of(trace) for trace in mixed}) > 1
    assert {letters_of(trace) for trace in Machines((3, 2, 5), 0).first(5)} == {5}


def test_both_encodings_hold_the_same_run():
    """What the layer and the decoder learn from is one task: states before and after letters."""
    dfa, word = DFA([[1, 2], [2, 0], [0, 1]]), [1, 0, 0, 1]
    encoding = StringEncoding(3, 2, 4)
    (string,) = encoding.encode(np.asarray(dfa.transitions)[None], np.array([word]))
    ran = programs.compile(Machines((3, 2, 4), 0).program).run(dfa, word)
    assert encoding.decode(string)[2][1:] == list(ran)
