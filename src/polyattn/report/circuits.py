"""The page of circuits: figures of each head, how heads compose, and the matrices as maps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from markupsafe import Markup

from polyattn.display import figure
from polyattn.interop import Circuits
from polyattn.interop.circuits.result import KINDS
from polyattn.model import SoftmaxAttention
from polyattn.report.head_maps import MOST_HEADS, MapsOfLayer, maps_of_layer
from polyattn.report.heads import maps_in_groups
from polyattn.report.map_pictures import map_picture
from polyattn.report.maps import Map, cell_size
from polyattn.report.names import Side, SideNames
from polyattn.report.page import Section, described, fill, statement

# Rows of the table of heads, and of that of pairs.
MOST_ROWS, MOST_PAIRS = 200, 12

READS = {"Q": "queries", "K": "keys", "V": "values"}


def circuits_page(found: Circuits, *_: object) -> list[Section]:
    """What stands out, the figures of each head, compositions, and the matrices."""
    sections = [described("What the heads do", found), _heads(found)]
    if found.n_layers > 1:
        sections.append(_compositions(found))
    maps = matrices_of(found)
    if maps is not None:
        unknown = "not resolved"
        scores = [f"copying {figure(row['copying'], 2, unknown)}" for row in found.table()]
        pictures = [maps_in_groups(maps, scores)]
        notes = ["attn is the QK circuit, value the OV circuit.", *found.left_out]
        if found.n_heads > MOST_HEADS:
            notes.insert(0, f"Shown are the {MOST_HEADS} heads of largest OV circuits.")
        sections.append(statement("Matrices", pictures=pictures, notes=notes))
    return sections


def composition_maps(found: Circuits) -> list[Map]:
    """Q-, K- and V-composition, of heads that have earlier ones with heads that have later ones."""
    late = np.flatnonzero(found.layers > 0)
    early = np.flatnonzero(found.layers < found.n_layers - 1)
    sides = (
        Side("later head", tuple(found.names[h] for h in late)),
        Side("earlier head", tuple(found.names[h] for h in early)),
    )
    scores = found.composition[:, late][:, :, early]
    largest, cell = float(scores.max()), cell_size(scores.shape[1:])
    return [
        Map(f"{kind}-composition", each, largest, *sides, cell)
        for kind, each in zip(KINDS, scores, strict=True)
    ]


def matrices_of(found: Circuits, titled: bool = False) -> MapsOfLayer | None:
    """The matrices of the largest heads as maps; None where cells would not be seen.

    titled : whether panels say which head they show
    """
    maps = maps_of_layer(SoftmaxAttention(found.qk, found.ov), SideNames())
    if maps is None:
        return None
    named = []
    for each in maps.maps:
        name = found.names[each.number]
        before = f"head {name}: " if titled else ""
        parts = [replace(part, title=f"{before}{part.title}") for part in each.parts]
        named.append(replace(each, name=f"Head {name}", parts=parts))
    return replace(maps, maps=named)


def _heads(found: Circuits) -> Section:
    """One row for each head."""
    rows = [
        {
            "name": name,
            "qk": [figure(each, 2) for each in row["qk_singular"]],
            "ov": [figure(each, 2) for each in row["ov_singular"]],
            "qk_rank": row["qk_effective_rank"], "positivity": row["positivity"],
            "ov_rank": row["ov_effective_rank"], "copying": row["copying"],
        }
        for name, row in zip(found.names, found.table(), strict=True)
    ]  # fmt: skip
    left_out = max(0, len(rows) - MOST_ROWS)
    return Section("Heads", fill("circuit_heads", rows=rows[:MOST_ROWS], left_out=left_out))


def _compositions(found: Circuits) -> Section:
    """The scores of all pairs as maps, and the largest of them."""
    picture = map_picture(
        composition_maps(found),
        "Q-, K- and V-composition of later heads with earlier ones as maps of colours",
        f"Full colour is {figure(float(found.composition.max()), 3)}, nothing 0.",
    )
    pairs = {
        f"{READS[row['kind']]} of head {row['later']} read head {row['earlier']}": row["score"]
        for row in found.strongest(MOST_PAIRS)
    }
    note = (
        f"Matrices turned at random have {found.baseline:.3g} in the root mean square, 1/√d. "
        "Normalisation between layers is left out."
    )
    shown = [Markup('<div class="maps">{}</div>').format(picture)]
    return statement(
        "Which heads read what others wrote", pictures=shown, facts=pairs, notes=[note]
    )
