"""Encoders from weights are those of transformers; texts and reactions become tokens."""

import importlib
import json
import re
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

FOLDER = Path(__file__).resolve().parent.parent / "examples" / "real_layers"
NAMES = ("encoder", "models", "reactions", "sentences", "study")
SIZES = {
    "hidden_size": 12, "num_attention_heads": 3, "num_hidden_layers": 2, "intermediate_size": 20,
    "vocab_size": 30, "max_position_embeddings": 16, "hidden_act": "gelu",
    "attn_implementation": "eager",
}  # fmt: skip


@pytest.fixture(scope="module")
def parts():
    """The modules of the example, by name."""
    before = {name: sys.modules.pop(name, None) for name in NAMES}
    sys.path.insert(0, str(FOLDER))
    try:
        yield {name: importlib.import_module(name) for name in NAMES}
    finally:
        sys.path.remove(str(FOLDER))
        for name in NAMES:
            sys.modules.pop(name, None)
            if before[name] is not None:
                sys.modules[name] = before[name]


def module_of(kind, **settings):
    """An encoder of transformers in float64."""
    Config, Module = {
        "bert": (transformers.BertConfig, transformers.BertModel),
        "albert": (transformers.AlbertConfig, transformers.AlbertModel),
    }[kind]
    return Module(Config(**settings), add_pooling_layer=False).double().eval()


def small(kind, parts):
    """A random small module, all of whose weights count, and our encoder with its weights."""
    torch.manual_seed(0)
    beside = {"embedding_size": 8} if kind == "albert" else {}
    module = module_of(kind, **SIZES, **beside)
    with torch.no_grad():
        for each in module.parameters():
            each.copy_(0.5 * torch.randn_like(each))
    weights = {name: each.numpy() for name, each in module.state_dict().items()}
    return module, parts["encoder"].Encoder(weights, kind, 2, 3)


def attention_modules(module):
    """What computes the attention of each layer before the residual, in transformers."""
    if module.config.model_type == "bert":
        return [layer.attention.output.dense for layer in module.encoder.layer]
    return [module.encoder.albert_layer_groups[0].albert_layers[0].attention.dense]


def worst_difference(module, encoder, ids):
    """Over inputs and attention of all layers, and the output, relative to the size of each."""
    seen = []
    hooks = [
        each.register_forward_hook(lambda *call: seen.append(call[-1].numpy()))
        for each in attention_modules(module)
    ]
    with torch.no_grad():
        wanted = module(torch.tensor(ids), output_hidden_states=True)
    for hook in hooks:
        hook.remove()
    steps = encoder.steps(list(ids))
    assert len(seen) == len(steps) == encoder.n_layers
    last = encoder.finish(encoder.n_layers - 1, steps[-1].tokens, steps[-1].attended)
    found = [*(each.tokens for each in steps), last, *(each.attended for each in steps)]
    known = [*(each.numpy() for each in wanted.hidden_states), *seen]
    return max(
        np.abs(ours - theirs).max() / np.abs(theirs).max()
        for ours, theirs in zip(found, known, strict=True)
    )


class TestEncoder:
    @pytest.mark.parametrize("kind", ["bert", "albert"])
    def test_it_is_that_of_transformers(self, parts, kind):
        module, encoder = small(kind, parts)
        ids = np.random.default_rng(0).integers(30, size=(3, 16))
        assert worst_difference(module, encoder, ids) < 1e-12

    @pytest.mark.parametrize("kind", ["bert", "albert"])
    def test_other_weights_are_seen(self, parts, kind):
        """Negative control: each weight that the output of the last layer depends on."""
        _, encoder = small(kind, parts)
        ids = [np.arange(9)]

        def output(weights):
            other = parts["encoder"].Encoder(weights, kind, 2, 3)
            last = other.steps(ids)[-1]
            return other.finish(1, last.tokens, last.attended)

        usual = output(encoder.weights)
        for name, array in encoder.weights.items():
            if not name.endswith(("key.bias", "position_ids", "token_type_ids")):
                change = 0.1 * np.cos(np.arange(array.size)).reshape(array.shape)
                changed = output({**encoder.weights, name: array + change})
                assert np.abs(changed - usual).max() > 1e-6, name

    def test_lengths_may_differ(self, parts):
        _, encoder = small("albert", parts)
        rng = np.random.default_rng(1)
        ids = [rng.integers(30, size=length) for length in (5, 1, 16, 5)]
        together = encoder.steps(ids)
        for number, each in enumerate(ids):
            for step, alone in zip(together, encoder.steps([each]), strict=True):
                np.testing.assert_allclose(step.tokens[number], alone.tokens[0], atol=1e-12)
                np.testing.assert_allclose(step.attended[number], alone.attended[0], atol=1e-12)

    def test_the_first_layers_alone(self, parts):
        _, encoder = small("bert", parts)
        ids = [np.arange(4), np.arange(4, 8)]
        (first,) = encoder.steps(ids, n_layers=1)
        np.testing.assert_array_equal(first.attended, encoder.steps(ids)[0].attended)


class TestModels:
    def test_a_missing_package_has_a_reason(self, parts):
        model = parts["models"].Model("no-such-one", "no_such_one", "", "a.bin", "vocab.txt")
        assert model.folder is None
        assert model.missing == "the package no-such-one is not installed"
        with pytest.raises(FileNotFoundError, match="no-such-one"):
            model.encoder()

    @pytest.mark.parametrize("kind", ["bert", "albert"])
    def test_files_are_read(self, parts, kind, tmp_path, monkeypatch):
        """A package made here, in the two formats of the real ones."""
        module, encoder = small(kind, parts)
        name = f"package_of_{kind}"
        folder = tmp_path / name / "files"
        folder.mkdir(parents=True)
        (tmp_path / name / "__init__.py").write_text("raise ImportError('it is not imported')")
        (folder / "config.json").write_text(json.dumps(module.config.to_dict()))
        state = {f"albert.{name}": each for name, each in module.state_dict().items()}
        if kind == "albert":
            torch.save(state, folder / "weights.bin")
        else:
            from safetensors.torch import save_file

            save_file(dict(module.state_dict()), folder / "weights.safetensors")
        monkeypatch.syspath_prepend(str(tmp_path))
        written = "weights.bin" if kind == "albert" else "weights.safetensors"
        found = parts["models"].Model(name, name, "files", written, "vocab.txt").encoder()
        ids = [np.arange(7)]
        assert (found.kind, found.n_layers, found.n_heads) == (kind, 2, 3)
        np.testing.assert_array_equal(found.steps(ids)[1].attended, encoder.steps(ids)[1].attended)

    @pytest.mark.parametrize("name", ["MINILM", "RXNMAPPER"])
    def test_the_real_ones(self, parts, name):
        """Our forward pass with the weights of the package is that of transformers."""
        model = getattr(parts["models"], name)
        if model.missing:
            pytest.skip(model.missing)
        config = json.loads(model.path("config.json").read_text())
        kind = config.pop("model_type")
        module = module_of(kind, **config | {"attn_implementation": "eager"})
        state = {name: torch.tensor(each) for name, each in model.weights().items()}
        assert not module.load_state_dict(state, strict=False).missing_keys
        if name == "MINILM":
            ids = parts["sentences"].token_ids(model.path(model.vocabulary), 2)
        else:
            ids = parts["reactions"].token_ids(model.path(model.vocabulary), 1)
        assert worst_difference(module, model.encoder(), np.stack(ids)) < 1e-10


class TestReactions:
    def test_they_are_smiles_of_balanced_brackets_and_rings(self, parts):
        made = parts["reactions"].reactions(300)
        assert len(set(made)) == 300
        for each in made:
            reactants, product = each.split(">>")
            for molecule in [*reactants.split("."), product]:
                found = Counter(parts["reactions"].tokens(molecule))
                assert found["("] == found[")"], each
                assert all(found[str(ring)] % 2 == 0 for ring in range(10)), each

    def test_carbon_of_the_product_comes_from_the_reactants(self, parts):
        def carbons(smiles):
            return len(re.findall(r"C(?!l)|c", smiles))

        for each in parts["reactions"].reactions(200):
            reactants, product = each.split(">>")
            assert carbons(product) <= carbons(reactants), each

    def test_they_are_the_same_every_time_and_of_all_rules(self, parts):
        reactions = parts["reactions"]
        assert reactions.reactions(40, seed=3) == reactions.reactions(60, seed=3)[:40]
        assert reactions.reactions(40, seed=4) != reactions.reactions(40, seed=3)

    def test_tokens(self, parts):
        tokens = parts["reactions"].tokens
        assert tokens("Brc1cc[nH]c1>>[Na+].Cl") == [
            "Br", "c", "1", "c", "c", "[nH]", "c", "1", ">>", "[Na+]", ".", "Cl",
        ]  # fmt: skip
        with pytest.raises(ValueError, match="is SMILES"):
            tokens("C&C")

    def test_ids(self, parts, tmp_path):
        words = {
            word
            for each in parts["reactions"].reactions(50)
            for word in parts["reactions"].tokens(each)
        }
        (tmp_path / "vocab.txt").write_text("\n".join(["[CLS]", "[SEP]", *sorted(words)]))
        ids = parts["reactions"].token_ids(tmp_path / "vocab.txt", 50)
        assert {each[0] for each in ids} == {0}
        assert {each[-1] for each in ids} == {1}
        assert len({len(each) for each in ids}) > 10


class TestSentences:
    def test_docstrings_are_those_of_the_library(self, parts):
        import bisect

        found = parts["sentences"].docstrings(("bisect", "heapq", "no_such_module"))
        assert any(bisect.insort_left.__doc__[:40] in each for each in found)
        assert len(set(found)) == len(found) > 15

    def test_all_sequences_have_one_length(self, parts, tmp_path):
        from tokenizers import Tokenizer, models, pre_tokenizers

        words = Tokenizer(models.WordLevel({"the": 0, "[UNK]": 1}, unk_token="[UNK]"))  # noqa: S106
        words.pre_tokenizer = pre_tokenizers.Whitespace()
        words.save(str(tmp_path / "words.json"))
        few = ("calendar", "heapq", "textwrap")
        ids = parts["sentences"].token_ids(tmp_path / "words.json", 5, n_tokens=40, modules=few)
        assert {each.shape for each in ids} == {(40,)}
        assert {0, 1} == set(np.concatenate(ids))
        with pytest.raises(ValueError, match="fewer than 9999"):
            parts["sentences"].token_ids(tmp_path / "words.json", 9999, n_tokens=40, modules=few)


class TestStudy:
    @pytest.mark.parametrize("kind", ["bert", "albert"])
    def test_all_parts_of_it(self, parts, kind, tmp_path, capsys):
        """On a small encoder: what is printed, and the pages."""
        _, encoder = small(kind, parts)
        rng = np.random.default_rng(2)
        lengths = [8] * 40 if kind == "bert" else [5, 8] * 20
        ids = [rng.integers(30, size=length) for length in lengths]
        parts["study"].run(encoder, encoder.weights, ids, ids[:4], 1, tmp_path, n_features=6)
        printed = capsys.readouterr().out
        assert "2 layers, Softmax attention, 3 heads, 12 coordinates" in printed
        error = float(re.search(r"differ from the encoder by (\S+)\.\n", printed)[1])
        assert error < 1e-12
        found = re.search(r"Beside the weights: attn (\S+), value (\S+)\.\n", printed)
        assert max(map(float, found.groups())) < 1e-6
        pages = {each.name for each in tmp_path.glob("*.html")}
        assert pages == {"heads.html", "linearised.html", "queries.html"}

    def test_replacing_a_layer(self, parts):
        _, encoder = small("bert", parts)
        ids = [np.arange(6), np.arange(7)]
        study = parts["study"].Study.of(encoder, encoder.weights, ids)
        same = study.embedding_change(ids, {0: study.layers[0], 1: study.layers[1]})
        np.testing.assert_allclose(same, 0.0, atol=1e-12)
        other = study.embedding_change(ids, {1: lambda X: 2.0 * study.layers[1](X)})
        assert np.all(other > 1e-6)

    def test_a_missing_package_is_said(self, parts, monkeypatch, capsys):
        model = parts["models"].Model("no-such-one", "no_such_one", "", "a.bin", "vocab.txt")
        monkeypatch.setattr(sys, "argv", ["study"])
        parts["study"].main(model, pytest.fail, "What it does.")
        assert "the package no-such-one is not installed" in capsys.readouterr().out
