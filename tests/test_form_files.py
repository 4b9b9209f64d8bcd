"""Forms in files: all survive, and what no form wrote is refused."""

import json

import pytest

from form_cases import CASES, named, square
from polyattn.errors import FileFormatError, InvalidInput
from polyattn.form import Form, Layout
from polyattn.form.stored import stored_layout

FORMS = {case.name: case.form for case in CASES if case.kind == "equal"}


@pytest.mark.parametrize("name", [name for name in FORMS if name != "own-function"])
def test_a_form_survives_a_file(name):
    form = FORMS[name]
    content = json.loads(json.dumps(form.to_dict(), allow_nan=False))
    assert Form.from_dict(content) == form
    assert Form.from_dict(Form.from_dict(content).to_dict()) == form


def test_a_decay_to_be_chosen_survives_a_file():
    assert Form.from_dict({"decay": "loo"}) == Form(decay="loo")


def test_a_function_of_the_users_own_cannot_be_stored():
    with pytest.raises(InvalidInput, match="key is a function of your own"):
        Form(key=square).to_dict()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "form must be an object"),
        ([], "form must be an object"),
        ({"modes": "last"}, "form holds an unknown field 'modes'"),
        ({"mode": "both"}, "form: mode must be one of"),
        ({"mode": ["last"]}, "form: mode must be one of"),
        ({"mean": 1}, "form: mean must be True or False"),
        ({"window": 1.5}, "form: window must be an integer"),
        ({"decay": 2}, "form: decay must be a number"),
        ({"decay": {"a": 1}}, "form: decay must be a number"),
        ({"mode": "full", "window": 2}, "form: window counts back"),
        ({"query": "0:2"}, "form.query must be an object"),
        ({"query": 3}, "form.query must be an object"),
        ({"query": []}, "form.query must be a list of at least 1 entry"),
        ({"query": [0.5]}, "form.query[0] must be an integer"),
        ({"query": [True]}, "form.query[0] must be an integer"),
        ({"query": [0, 0]}, "form: query names a coordinate twice"),
        ({"query": {}}, "form.query must be a matrix, a slice or a map"),
        ({"query": {"lambda": "x"}}, "unknown field 'lambda'"),
        ({"query": {"slice": [0, 1]}}, "form.query.slice must be a list of"),
        ({"query": {"slice": [0, 1, 0]}}, "step is not 0"),
        ({"query": {"slice": [0, "a", None]}}, "form.query.slice[1] must be an integer"),
        ({"query": {"matrix": [[]]}}, "form.query.matrix[0] must be a list"),
        ({"query": {"matrix": [[1], [1, 2]]}}, "not a rectangular array"),
        ({"query": {"matrix": [[float("nan")]]}}, "a finite number"),
        ({"query": {"matrix": [["1"]]}}, "a finite number"),
        ({"query": {"matrix": [[1]], "map": {}}}, "must be a matrix, a slice or a map"),
        ({"query": {"map": {"name": "os.system"}}}, "form.query.map.name must be one of"),
        ({"query": {"map": {}}}, "form.query.map.name must be one of"),
        ({"query": {"map": []}}, "form.query.map must be an object"),
        ({"query": {"map": {"name": "elu1", "x": 1}}}, "unknown field 'x'"),
        ({"query": {"map": {"name": "polynomial"}}}, "lacks the field 'degree'"),
    ],
    ids=named,
)
def test_a_hostile_file_is_refused(content, words):
    with pytest.raises(FileFormatError) as refusal:
        Form.from_dict(content)
    assert words in str(refusal.value)


WAVES = {"name": "random_fourier", "n_features": 10**6, "scale": 1.0, "random_state": 0}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"form": {"mode": "causal"}}, "metadata.form.mode must be that beside it, last"),
        ({"form": {"bias": True}}, "metadata.form.bias must be that beside it, False"),
        ({"form": {"window": 0}}, "metadata.form describes no form: form: window must be"),
        ({"form": {"key": [3]}}, "metadata.form describes no form: key must name coordinates"),
        ({"form": {"lags": 2}, "n_context_dims": 3}, "describes no form: lags speaks of the place"),
        ({"n_dims": 10**9}, "metadata.n_dims must be an integer >= 1 and <= 1000000"),
        ({"n_dims": 10**6, "form": {"key": {"map": WAVES}}}, "1,000,000,000,000 frequencies"),
    ],
    ids=named,
)
def test_a_saved_form_that_does_not_fit_is_refused(changed, words):
    metadata = {"mode": "last", "bias": False, "n_dims": 3}
    assert stored_layout(metadata) == Layout.plain(3)
    with pytest.raises(FileFormatError) as refusal:
        stored_layout(metadata | changed)
    assert words in str(refusal.value)
