"""The file of a fit: what it holds, and the checks of what a file may hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from polyattn.files import fields
from polyattn.files.fields import array, entries, nullable, number, one_of, require, text
from polyattn.files.records import Record
from polyattn.fitting.outcomes import FIT_OUTCOMES
from polyattn.form.layout import Layout
from polyattn.form.stored import FORM_FIELDS, form_fields, stored_layout
from polyattn.heads import Compression
from polyattn.heads.data_scale import SampleScale
from polyattn.sequences import MODES
from polyattn.solve.decay import DecayPath
from polyattn.solve.log_loss import LOSSES, PER_OUTPUT
from polyattn.solve.ridge import RULES, RidgePath
from polyattn.stats import Moments, TriangularFactor

if TYPE_CHECKING:
    from polyattn.fitting.result import FitResult

# Attributes that are stored as they are.
PLAIN = {
    "mode": one_of(MODES), "bias": fields.flag, "n_dims": fields.integer(1), "risk": number(),
    "optimal_risk": number(), "ridge": number(0), "rank": nullable(fields.integer(0)),
    "n_features": fields.integer(1), "condition": nullable(number(0)), "solver": text(100),
    "head_tolerance": number(0), "random_state": fields.integer(0, None),
}  # fmt: skip

# What a fit is held against; None, or left out, where that is unknown.
PROPORTION = {
    "baseline_risk": nullable(number(0)), "zero_risk": nullable(number(0)),
    "data_sizes": nullable(text(200)), "accuracy": nullable(number(0, 1)),
    "majority_share": nullable(number(0, 1)), "risk_rounding": nullable(number(0)),
}  # fmt: skip

# Those of them that the layout says.
OF_LAYOUT = ("mode", "bias", "n_dims", "n_features")

HEAD_ARRAYS = ("attn", "value", "skip", "intercept")

STATISTICS = {kind.kind: kind for kind in (Moments, TriangularFactor)}

FIELDS = entries(
    PLAIN | {"outcome": FIT_OUTCOMES.check},
    {
        # Heads that were known when the result was saved.
        "heads": entries(
            {"lost": number(0), "risk_gap": nullable(number()), "sentence": text()},
            {"output_error": nullable(number(0)), "head_scales": fields.listed(fields.integer(0))},
        ),
        "ridge_path": one_of(RULES),
        "statistics": entries({
            "kind": one_of(tuple(STATISTICS)), "metadata": fields.any_object,
        }),
        "decay_path": entries({"best": number(0, 1), "error_bar": nullable(number(0))}),
        **FORM_FIELDS,
        # Files of older releases lack them, and so do most fits by squared error.
        "loss": one_of((*LOSSES, PER_OUTPUT)), "objective_bound": nullable(number(0)),
        "head_rank": fields.integer(1),
        # Files of older releases lack them.
        **PROPORTION,
        # Of data with names alone.
        "coordinate_names": fields.listed(text(), 1),
    },
)  # fmt: skip


def fit_record(result: FitResult) -> Record:
    """The content as named arrays and plain metadata.

    Starts no search: without heads, what they will be judged by is stored.
    """
    heads, arrays = result.found_heads, result.arrays()
    metadata: dict[str, Any] = {name: getattr(result, name) for name in PLAIN}
    metadata["outcome"] = result.outcome.to_dict()
    metadata |= {name: getattr(result, name) for name in PROPORTION}
    metadata |= form_fields(result.layout)
    metadata |= _where_given(result)
    if result.loss != "squared":
        metadata["loss"] = result.loss
    if result.loss != "squared" or result.objective_bound is not None:
        metadata["objective_bound"] = result.objective_bound
    if heads is not None:
        metadata["heads"] = {
            "lost": heads.lost, "risk_gap": heads.risk_gap, "sentence": heads.sentence,
            "output_error": heads.output_error,
        }  # fmt: skip
        if heads.head_scales is not None:
            metadata["heads"]["head_scales"] = heads.head_scales.tolist()
    elif result.sample is not None:
        arrays |= {"sums": result.sample.sums, "queries": result.sample.queries}
    if result.ridge_path is not None:
        arrays |= {"ridges": result.ridge_path.ridges, "errors": result.ridge_path.errors}
        metadata["ridge_path"] = result.ridge_path.kind
    if result.decay_path is not None:
        tried = result.decay_path
        arrays |= {"decays": tried.decays, "decay_errors": tried.errors}
        metadata["decay_path"] = {"best": tried.best, "error_bar": tried.error_bar}
    if result.statistics is not None:
        inner = result.statistics.to_record()
        arrays |= {f"statistics.{name}": array for name, array in inner.arrays.items()}
        metadata["statistics"] = {"kind": inner.kind, "metadata": inner.metadata}
    return Record("fit_result", arrays, metadata)


def _where_given(result: FitResult) -> dict[str, Any]:
    """What most fits have not, and their files do not mention."""
    found: dict[str, Any] = {}
    if result.coordinate_names is not None:
        found["coordinate_names"] = list(result.coordinate_names)
    if result.head_rank is not None:
        found["head_rank"] = result.head_rank
    return found


def stored_fit(record: Record) -> dict[str, Any]:
    """The attributes of the fit in a record: the inverse of ``fit_record``."""
    arrays, metadata = record.arrays, record.metadata
    FIELDS(metadata, "metadata")
    prefix = "statistics."
    inner = {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
    # Files of older releases call the sums by another name.
    arrays = {"sums" if name == "pairs" else name: each for name, each in arrays.items()}
    own = {name: each for name, each in arrays.items() if not name.startswith(prefix)}
    layout = stored_layout(metadata)
    _check_arrays(own, metadata, layout)
    statistics = _statistics(inner, metadata)
    path, heads, sample = None, None, None
    if "ridge_path" in metadata:
        path = RidgePath(arrays["ridges"], arrays["errors"], metadata["ridge_path"])
    decays = None
    if "decay_path" in metadata:
        tried = (arrays["decays"], arrays["decay_errors"])
        decays = DecayPath(*tried, **metadata["decay_path"])
    if "heads" in metadata:
        known = {name: arrays.get(name) for name in HEAD_ARRAYS} | metadata["heads"]
        if "head_scales" in known:
            known["head_scales"] = np.array(known["head_scales"], dtype=np.intp)
        heads = Compression(**known)
    elif "sums" in arrays:
        sample = SampleScale(arrays["sums"], arrays["queries"], layout)
    arrays["coef"].setflags(write=False)
    held = {name: metadata.get(name) for name in PROPORTION}
    return (
        {name: metadata[name] for name in PLAIN if name not in OF_LAYOUT}
        | held
        | {
            "coef": arrays["coef"],
            "outcome": FIT_OUTCOMES.from_dict(metadata["outcome"]),
            "statistics": statistics,
            "ridge_path": path,
            "decay_path": decays,
            "known_heads": heads,
            "sample": sample,
            "layout": layout,
            "loss": metadata.get("loss", "squared"),
            "objective_bound": metadata.get("objective_bound"),
            "head_rank": metadata.get("head_rank"),
            "coordinate_names": _names(metadata),
        }
    )


def _names(metadata: dict[str, Any]) -> tuple[str, ...] | None:
    """What coordinates are called, one name for each, if the file says so."""
    names, n_dims = metadata.get("coordinate_names"), metadata["n_dims"]
    if names is None:
        return None
    require(len(names) == n_dims, "metadata.coordinate_names", f"{n_dims} names", len(names))
    return tuple(names)


def _check_arrays(arrays: dict[str, NDArray], metadata: dict[str, Any], layout: Layout) -> None:
    """Refuse arrays of a file that do not have the sizes that its metadata name."""
    p, rank, wanted = metadata["n_features"], metadata["rank"], layout.n_features
    m, r = layout.n_sums, layout.n_queries
    require(p == wanted, "metadata.n_features", f"{wanted}, as n_dims says", p)
    require(rank is None or rank <= p, "metadata.rank", f"at most {p}", rank)
    # Arrays share the lengths of the first of them, and none is empty.
    outputs, heads, rows = (
        max(1, arrays[name].shape[axis]) if name in arrays and arrays[name].ndim > axis else 1
        for name, axis in (("coef", 0), ("attn", 0), ("queries", 1))
    )
    checks = {"coef": array((outputs, m, r))}
    if "heads" in metadata:
        checks |= _head_checks(layout, heads, outputs)
    elif "sums" in arrays:
        checks |= {"sums": array((m, rows)), "queries": array((r, rows))}
    if "ridge_path" in metadata:
        checks["ridges"] = checks["errors"] = array((None,), least=0.0, finite=False)
    if "decay_path" in metadata:
        checks["decays"] = checks["decay_errors"] = array((None,), least=0.0)
    entries(checks)(arrays, "arrays")
    if "heads" in metadata:
        scales = metadata["heads"].get("head_scales", [0] * heads)
        fits = len(scales) == heads and max(scales) < layout.n_scales
        require(fits, "metadata.heads.head_scales", f"{heads} scales of the form", scales)
    for path, tried, name in (
        ("ridge_path", "ridges", "errors"), ("decay_path", "decays", "decay_errors"),
    ):  # fmt: skip
        if path in metadata:
            fits, count = len(arrays[name]) == len(arrays[tried]) > 0, len(arrays[name])
            require(fits, f"arrays.{name}", f"as many as {tried}, at least one", count)


def _head_checks(layout: Layout, n_heads: int, n_outputs: int) -> dict[str, fields.Check]:
    """The checks of the arrays of heads, linear terms included."""
    pairs, n_queries = layout.pairs, len(layout.query)
    checks = {
        "attn": array((n_heads, n_queries, pairs.n_keys)),
        "value": array((n_heads, pairs.n_values, n_outputs)),
    }
    if layout.form.skip:
        checks["skip"] = array((n_queries, n_outputs))
    if layout.form.intercept:
        checks["intercept"] = array((n_outputs,))
    return checks


def _statistics(
    arrays: dict[str, NDArray], metadata: dict[str, Any]
) -> Moments | TriangularFactor | None:
    """The statistics in the file of a fit, if there are any: those of the same layer."""
    if "statistics" not in metadata:
        require(not arrays, "arrays", "those of the fit alone", list(arrays))
        return None
    stored = metadata["statistics"]
    record = Record(stored["kind"], arrays, stored["metadata"])
    made = STATISTICS[record.kind].from_record(record)
    for name in ("n_dims", "mode", "bias"):
        own, wanted = getattr(made, name), metadata[name]
        require(own == wanted, f"metadata.statistics.{name}", f"that of the fit, {wanted}", own)
    fits = made.layout == stored_layout(metadata)
    require(fits, "metadata.statistics.form", "that of the fit", made.form)
    return made
