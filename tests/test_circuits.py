"""circuits: scores against the literal transcription, and planted circuits."""

import numpy as np
import pytest

import polyattn as pa
from polyattn.errors import FileFormatError, InvalidInput, InvalidType
from polyattn.interop import circuits
from polyattn.interop.circuits.scores import Spectra
from polyattn.reference import circuits as literal
from polyattn.report import make_page
from report_pages import body, titles
from rotary_cases import random_rotary

RNG = np.random.default_rng(0)


def random_layers(n_layers=3, n_heads=2, d=6, rank=3, bias=False, seed=0):
    rng = np.random.default_rng(seed)
    width = d + bias

    def product(n_columns):
        left, right = (n_heads, width, rank), (n_heads, rank, n_columns)
        return rng.standard_normal(left) @ rng.standard_normal(right)

    return [
        pa.SoftmaxAttention(product(width), product(d), "causal", bias) for _ in range(n_layers)
    ]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rank", [1, 3, 6])
def test_scores_are_those_that_are_printed(bias, rank):
    layers = random_layers(rank=rank, bias=bias)
    found = circuits(layers)
    d = 6
    heads = [(i, A[:d, :d], V[:d].T) for i, each in enumerate(layers)
             for A, V in zip(each.attn, each.value, strict=True)]  # fmt: skip
    for h, (number, W_QK, W_OV) in enumerate(heads):
        assert (found.layers[h], found.heads[h]) == (number, h % 2)
        np.testing.assert_array_equal(found.qk[h], W_QK)
        np.testing.assert_array_equal(found.ov[h], W_OV.T)
        for sigma, W in ((found.qk_singular[h], W_QK), (found.ov_singular[h], W_OV)):
            wanted = np.linalg.svd(W, compute_uv=False)
            np.testing.assert_allclose(sigma, wanted, rtol=0, atol=1e-13 * wanted[0])
        assert found.copying[h] == pytest.approx(literal.eigenvalue_score(W_OV), abs=1e-11)
        assert found.positivity[h] == pytest.approx(literal.eigenvalue_score(W_QK), abs=1e-11)
        assert found.qk_effective_rank[h] == pytest.approx(literal.effective_rank(W_QK), rel=1e-11)
        assert found.ov_effective_rank[h] == pytest.approx(literal.effective_rank(W_OV), rel=1e-11)
        for g, (earlier, _, W_early) in enumerate(heads):
            wanted = np.zeros(3)
            if earlier < number:
                wanted = [
                    literal.q_composition(W_QK, W_early), literal.k_composition(W_QK, W_early),
                    literal.v_composition(W_OV, W_early),
                ]  # fmt: skip
            np.testing.assert_allclose(found.composition[:, h, g], wanted, rtol=0, atol=1e-13)


@pytest.mark.parametrize("rank", [2, 20, 28, 40, 64])
def test_low_ranks_are_found_without_all_columns(rank):
    """Ranks that the first, the second and no number of random columns hold."""
    (layer,) = random_layers(1, 2, d=72, rank=rank)
    units = np.geomspace(1.0, 1e-7, 72)
    for attn in (layer.attn, layer.attn * units, layer.attn * units[:, None]):
        found = Spectra.of(attn)
        sigma = np.linalg.svd(attn, compute_uv=False)
        np.testing.assert_allclose(found.sigma, sigma, rtol=0, atol=1e-13 * sigma.max())
        norms = np.linalg.norm(attn, axis=(1, 2))[:, None, None]
        both = found.rows @ np.linalg.pinv(found.rows, rcond=1e-13) @ attn
        np.testing.assert_allclose(both, attn, rtol=0, atol=1e-12 * norms.max())
        for h in range(2):
            wanted = literal.eigenvalue_score(attn[h])
            score = found.eigen[h, 0] / found.eigen[h, 1]
            assert score == pytest.approx(wanted, abs=1e-6)


# ---------------------------------------------------------------- planted circuits

HALF = np.diag([1.0, 1.0, 0.0, 0.0])  # the coordinates 0 and 1
MOVE = np.eye(4)[[2, 3, 0, 1]]  # 0 and 1 to 2 and 3
TURN = np.kron(np.eye(2), [[0.0, -1.0], [1.0, 0.0]])


@pytest.mark.parametrize(
    ("value", "score"),
    [
        (np.eye(4), 1.0),
        (-np.eye(4), -1.0),
        (HALF, 1.0),
        (TURN, 0.0),  # eigenvalues i and -i
        (np.diag([1.0, 1.0, 1.0, -1.0]), 0.5),
        (HALF @ MOVE, np.nan),  # written where nothing is read: nilpotent
        (np.zeros((4, 4)), np.nan),
        (np.diag(np.ones(3), 1), np.nan),
    ],
)
def test_copying_heads(value, score):
    found = circuits(pa.SoftmaxAttention(value, value))
    np.testing.assert_allclose(found.copying, [score], atol=1e-12)
    np.testing.assert_allclose(found.positivity, [score], atol=1e-12)
    assert found.table()[0]["copying"] == (None if np.isnan(score) else pytest.approx(score))


def test_a_previous_head_that_later_keys_read():
    """An induction circuit: keys of the second layer read what the first layer wrote."""
    first = pa.SoftmaxAttention(np.eye(4), HALF @ MOVE)  # writes to 2 and 3
    second = pa.SoftmaxAttention(HALF @ MOVE, HALF)  # queries of 0 and 1, keys of 2 and 3
    found = circuits([first, second])
    Q, K, V = found.composition[:, 1, 0]
    assert pytest.approx((0.0, 0.0), abs=1e-15) == (Q, V)
    assert pytest.approx(1 / np.sqrt(2)) == K  # two equal directions
    (best,) = found.strongest(1)
    assert (best["kind"], best["later"], best["earlier"]) == ("K", "1.0", "0.0")
    assert "K of head 1.0 with head 0.0: 0.71, where matrices turned at random have 0.5" in (
        found.sentence
    )
    one = pa.SoftmaxAttention(np.outer(*np.eye(4)[:2]), np.outer(*np.eye(4)[:2]))
    same = circuits([one, one]).composition[:, 1, 0]
    np.testing.assert_allclose(same, [0.0, 1.0, 0.0], atol=1e-15)


def test_the_baseline_is_that_of_random_turns():
    late, early = random_layers(2, 1, d=6, rank=2)
    squares = []
    for _ in range(4000):
        turn, upper = np.linalg.qr(RNG.standard_normal((6, 6)))
        turn *= np.sign(np.diag(upper))
        squares.append(literal.k_composition(late.attn[0], turn @ early.value[0].T) ** 2)
    found = circuits([early, late])
    spread = np.std(squares) / np.sqrt(len(squares))
    assert np.mean(squares) == pytest.approx(found.baseline**2, abs=4 * spread)
    assert found.baseline == pytest.approx(1 / np.sqrt(6))


# ---------------------------------------------------------------- invariances and edges


@pytest.mark.parametrize("size", [1e-6, 1e5, 1e-200, 1e150])
def test_sizes_do_not_matter(size):
    layers = random_layers()
    scaled = [pa.SoftmaxAttention(size * e.attn, e.value / size, "causal") for e in layers]
    one, other = circuits(layers), circuits(scaled)
    for name in ("copying", "positivity", "composition", "qk_effective_rank", "ov_effective_rank"):
        np.testing.assert_allclose(getattr(other, name), getattr(one, name), atol=1e-12)
    np.testing.assert_allclose(other.qk_singular, size * one.qk_singular, rtol=1e-8,
                               atol=1e-13 * size)  # fmt: skip


def test_the_order_of_heads_is_that_of_the_scores():
    layers = random_layers(2, 3)
    turned = [pa.SoftmaxAttention(e.attn[::-1], e.value[::-1], "causal") for e in layers]
    one, other = circuits(layers), circuits(turned)
    order = [2, 1, 0, 5, 4, 3]
    np.testing.assert_allclose(other.copying, one.copying[order], atol=1e-13)
    np.testing.assert_allclose(other.composition, one.composition[:, order][..., order], atol=1e-13)


def test_layers_of_different_numbers_of_heads_and_ranks():
    layers = [*random_layers(1, 1, rank=1), *random_layers(1, 3, rank=6), *random_layers(1, 2)]
    found = circuits(layers)
    assert found.layers.tolist() == [0, 1, 1, 1, 2, 2]
    assert found.heads.tolist() == [0, 0, 1, 2, 0, 1]
    assert found.n_layers == 3
    assert np.count_nonzero(found.composition) == 3 * (3 * 1 + 2 * 4)


def test_rotary_positions_are_left_out():
    layer = random_rotary(n_outputs=3)
    found = circuits(layer)
    np.testing.assert_array_equal(found.qk, layer.attn)
    assert found.rotary
    assert "offset zero" in str(found)
    assert not circuits(random_layers(1)).rotary


def test_the_smallest_layers():
    one = circuits(pa.SoftmaxAttention([[2.0]], [[-3.0]]))
    assert (one.copying[0], one.positivity[0], one.baseline) == (-1.0, 1.0, 1.0)
    wide = circuits(pa.SoftmaxAttention(np.eye(3), np.ones((3, 2))))
    assert np.isnan(wide.copying).all()
    assert "No head has a copying score" in str(wide)
    biased = circuits(pa.SoftmaxAttention(np.eye(3), np.ones((3, 2)), bias=True))
    assert (biased.n_dims, biased.bias) == (2, True)
    assert "constant coordinate" in str(biased)


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        (3, InvalidType, "layers must be"),
        ([], InvalidInput, "at least one layer"),
        ([random_layers(1)[0], "x"], InvalidType, "layers must be"),
        (pa.data.random_layer(3), InvalidType, "SoftmaxAttention"),
        ([*random_layers(1, d=4), *random_layers(1, d=6)], InvalidInput, "4 -> 4, 6 -> 6"),
        (2 * [pa.SoftmaxAttention(np.eye(3), np.ones((3, 2)))], InvalidInput, "3 -> 2"),
    ],
)
def test_what_has_no_circuits(given, kind, words):
    with pytest.raises(kind, match=words):
        circuits(given)


# ---------------------------------------------------------------- files and pages


def test_files_of_other_heads_are_refused(tmp_path):
    found = circuits(random_layers())
    record = found.to_record()
    for name, changed in (
        ("qk_eigen", record.arrays["qk_eigen"][:3]),
        ("layers", record.arrays["layers"][::-1].copy()),
        ("composition", record.arrays["composition"][:, :2, :2].copy()),
    ):
        forged = type(record)(record.kind, record.arrays | {name: changed}, record.metadata)
        with pytest.raises(FileFormatError, match=name):
            type(found).from_record(forged)
    found.report(tmp_path / "page.html")
    pa.save(found, tmp_path / "circuits.safetensors")
    again = pa.load(tmp_path / "circuits.safetensors")
    for name, each in found.arrays().items():
        np.testing.assert_array_equal(getattr(again, name), each)


def test_a_page_of_several_layers():
    page = make_page(circuits(random_layers(bias=True)))
    assert titles(page) == [
        "What the heads do", "Heads", "Which heads read what others wrote", "Matrices",
    ]  # fmt: skip
    found = circuits(random_layers(bias=True))
    html = body(page, "Heads")
    assert html.count("<tr>") == 1 + found.n_heads
    for name, score in zip(found.names, found.copying, strict=True):
        assert f"<td>{name}</td><td>{score:.3g}</td>" in html.replace("<span>", "")
    composed = body(page, "Which heads read what others wrote")
    assert all(f"{kind}-composition" in composed for kind in "QKV")
    assert f"{found.strongest(1)[0]['score']:.3g}" in composed
    assert "constant coordinate" in body(page, "Matrices")
    assert titles(make_page(circuits(random_layers(1)))) == [
        "What the heads do", "Heads", "Matrices",
    ]  # fmt: skip
    with pytest.raises(InvalidInput, match="X says nothing about a Circuits"):
        make_page(found, np.ones((1, 2, 6)))


def test_wide_layers_have_no_maps():
    wide = circuits(pa.SoftmaxAttention(np.eye(520), np.eye(520)))
    assert titles(make_page(wide)) == ["What the heads do", "Heads"]
    assert wide.plot().axes


def test_plots():
    several = circuits(random_layers())
    names = [axes.get_title(loc="left") for axes in several.plot().axes]
    assert names[:3] == ["Q-composition", "K-composition", "V-composition"]
    names = [axes.get_title(loc="left") for axes in circuits(random_layers(1)).plot().axes]
    assert {"head 0.0: attn", "head 0.1: value"} <= set(names)
