"""The page of a fit: outcome, certificate, heads, predictions, bounds."""

from __future__ import annotations

from functools import partial

import numpy as np

from polyattn.auditing.audit import certify_rows
from polyattn.certify import Certificate, certify
from polyattn.certify.outcomes import UNDECIDED
from polyattn.fitting.result import FitResult
from polyattn.heads import factor
from polyattn.heads.data_scale import SampleScale
from polyattn.heads.target import Target
from polyattn.model import LinearAttention
from polyattn.quoting import counted, shortened
from polyattn.report.certificates import certificate_if_possible, certificate_sections
from polyattn.report.classes import classes_sections
from polyattn.report.figures import OTHER, OURS, PlotAxes, log_ticks
from polyattn.report.heads import MOST_UNFOLDED, heads_section, unfolded_side
from polyattn.report.label_sets import label_sets_sections
from polyattn.report.names import SideNames
from polyattn.report.page import Section, described, plot, statement
from polyattn.report.page_data import PageData, norms
from polyattn.report.predictions import bounds_section, predictions_section
from polyattn.solve.decay import DecayPath
from polyattn.solve.ridge import RidgePath

# What a certificate, and so a bound, can be about.
TRAINING, GIVEN = "the training data", "the data given to this page"

# What a certificate does not say of a fit by log-loss.
OF_LOG_LOSS = (
    "It speaks of the features and of squared error, and this layer was fitted by log-loss. "
    "Without a ridge that has no minimiser where the data are separable, be it in part, and at "
    "most one where the features have full rank, but for what is added to all outputs alike."
)

# Up to this many coefficients a search for few heads takes a second, whatever it finds.
QUICK_COEFFICIENTS = 1 << 13

# So many classes are named in a sentence.
MOST_LISTED = 20

# Risks below this share of the outputs are rounding.
ROUNDING = 1e-12


def fit_page(
    result: FitResult,
    data: PageData | None,
    names: SideNames | None = None,
    certificate: Certificate | None = None,
) -> list[Section]:
    """All sections; ``certificate`` if there is one already.

    Where ``names`` has classes, targets are class numbers.
    """
    names = names or SideNames()
    about, of = "", TRAINING
    if certificate is None:
        certificate, about, of = certificate_of(result, data)
    squared = result.loss == "squared"
    if certificate is not None and not squared:
        about = f"{about} {OF_LOG_LOSS}".strip()
    sections = [found_section(result, names)]
    if names.classes and data is not None and data.targets is not None:
        sections += of_classes(result, data, names)
    if result.decay_path is not None:
        sections.append(_decay(result.decay_path))
    if result.ridge_path is not None:
        sections.append(_ridge(result.ridge, result.ridge_path))
    if certificate is not None:
        sections += certificate_sections(certificate, about, names)
    sections.append(_heads(result, data, names))
    if not names.classes and data is not None and data.targets is not None:
        sections.append(predictions_section(result.predict, data))
    if squared and certificate is not None and data is not None:
        sections.append(_bounds(result, certificate, data, of))
    return sections + _not_shown(squared, data, [about] if certificate is None else [])


def found_section(result: FitResult, names: SideNames) -> Section:
    """What was found, and of a classifier the classes by name."""
    lines = []
    if names.classes:
        listed = ", ".join(shortened(each, 60) for each in names.classes[:MOST_LISTED])
        more = len(names.classes) - MOST_LISTED
        listed += f" and {more:,} more" if more > 0 else ""
        noun = "label" if names.several else "class"
        lines = [f"{counted(len(names.classes), noun)}: {listed}."]
    return described("What was found", result, ("n_heads", "heads"), lines=lines)


def of_classes(result: FitResult, data: PageData, names: SideNames) -> list[Section]:
    """Classes beside true ones: one for each sequence or token, or any number of them."""
    return (label_sets_sections if names.several else classes_sections)(result, data, names)


def _not_shown(squared: bool, data: PageData | None, missing: list[str]) -> list[Section]:
    """What the page lacks, and what would show it; ``missing`` is what lacks already."""
    if squared and data is None:
        missing.append("Bounds for each input: the page needs sequences X.")
    if data is None or data.targets is None:
        missing.append("Predictions beside true outputs: the page needs X and their targets Y.")
    how = "result.report(path, X, Y), or polyattn report MODEL DATA, shows all of it."
    if not squared:
        how = "There are no bounds for each input: they are about squared error, not log-loss."
    if not missing and squared:
        return []
    return [statement("What is not shown", lines=missing, notes=[how])]


def certificate_of(result: FitResult, data: PageData | None) -> tuple[Certificate | None, str, str]:
    """The certificate, a sentence about its data or why there is none, and which data they are.

    From the sums behind the fit where these are enough or the data given are others, otherwise
    from the data given.
    """
    sums = result.statistics
    full = result.rank == result.n_features
    if sums is not None:
        others = data is None or len(data.batch) != sums.n_sequences or data.n_rows != sums.n_rows
        if others or full:
            found, why_not = certificate_if_possible(lambda: certify(statistics=sums))
            if others or (found is not None and found.verdict != UNDECIDED):
                about = f"The certificate is about {TRAINING}, by their sums."
                return found, why_not or about, TRAINING
    if data is None:
        return None, (
            "Whether the data determine the layer: this fit kept no sums, so the page needs the "
            "training sequences X."
        ), TRAINING  # fmt: skip
    found, why_not = certificate_if_possible(lambda: certify_rows(data.rows()))
    about = f"The certificate is about {GIVEN}, which may or may not be those of the training."
    if not full and result.rank is not None:
        about += f" In training the rank was {result.rank:,} of {result.n_features:,}."
    return found, why_not or about, GIVEN


def heads_of(result: FitResult) -> tuple[LinearAttention | None, str]:
    """The layer and how it was found; what takes long is left to ``result.layer``.

    Where the coefficients pass for those of few heads, these are found quickly; otherwise they
    are factored, unless they are too many for that as well.
    """
    known = result.found_heads is not None
    n_outputs, n_queries = len(result.coef), len(result.layout.query)
    if not known and unfolded_side(result.layout, n_outputs) > MOST_UNFOLDED:
        return None, (
            "The heads were not looked for: with so many coefficients that can take minutes. Call "
            "result.layer, which does it, and write the page again."
        )
    quick = known or result.coef.size <= QUICK_COEFFICIENTS
    if not quick:
        target = Target.on(result.coef, result.data_scale, layout=result.layout)
        rng = np.random.default_rng(result.random_state)
        least = target.least_heads(result.head_tolerance, rng)
        quick = least < min(n_outputs, n_queries)
    if quick:
        return result.layer, result.heads.sentence
    found = factor(result.coef, result.data_scale, result.layout)
    why = (
        "Fewer were not looked for, since the coefficients do not look like those of few heads "
        "and the search would take long: call result.layer, which makes it, and write the page "
        "again."
    )
    return result.layer_of(found), f"{found.sentence} {why}"


def _heads(result: FitResult, data: PageData | None, names: SideNames) -> Section:
    layer, sentence = heads_of(result)
    if layer is None:
        return statement("Heads", sentence)
    scale = result.data_scale
    if scale is None and data is not None:
        scale = SampleScale.of(data.rows())
    return heads_section(layer, sentence, scale=scale, names=names)


def draw_decay(path: DecayPath, axes: PlotAxes) -> None:
    """The estimated error over the decays that were tried."""
    axes.plot(path.decays, path.errors, ".-", color=OURS)
    axes.axvline(path.best, color=OTHER, linestyle="--", label=f"{path.best:.4g}")
    axes.legend(loc="best")
    axes.set(xlabel="decay", ylabel="estimated error")
    if np.any(path.errors > 0):
        axes.set_yscale("log")
        log_ticks(axes.yaxis)


def draw_ridge(ridge: float, path: RidgePath, axes: PlotAxes) -> None:
    """The estimated error over the ridges that were tried."""
    # Targets that are all zero leave no error, which has no logarithm.
    logarithmic = bool(np.any(path.errors > 0))
    axes.set(xscale="log", yscale="log" if logarithmic else "linear")
    axes.plot(path.ridges, path.errors, color=OURS)
    if ridge > 0:
        axes.axvline(ridge, color=OTHER, linestyle="--", label=f"{ridge:.3g}")
        axes.legend(loc="best")
    axes.set(xlabel="ridge", ylabel="estimated error")
    log_ticks(axes.xaxis)
    if logarithmic:
        log_ticks(axes.yaxis)


def _decay(path: DecayPath) -> Section:
    bar = "" if path.error_bar is None else f" ± {path.error_bar:.2g}"
    caption = "The error of predicting sequences that are left out, for every decay tried."
    claim = f"The decay {path.best:.4g}{bar} was chosen by the data."
    picture = plot(partial(draw_decay, path), "Error for each decay", caption, 2.8)
    return statement("The decay", claim, pictures=[picture])


def _ridge(ridge: float, path: RidgePath) -> Section:
    caption = f"The error that {path.kind!r} estimates for new sequences, for every ridge tried."
    claim = f"The ridge {ridge:.3g} was chosen by the data."
    picture = plot(partial(draw_ridge, ridge, path), "Error for each ridge", caption, 2.8)
    return statement("The ridge", claim, pictures=[picture])


def _bounds(result: FitResult, certificate: Certificate, data: PageData, of: str) -> Section:
    """For layers as good as the one found; if none is known to be better, for a bit worse ones.

    ``of``: the data that the certificate is about.  By how much the layer's risk exceeds the least
    is known of the training data alone, and without a ridge: with one, the gap is to the optimum
    that the ridge has shrunk.
    """
    known = of == TRAINING and result.ridge == 0.0
    excess = max(result.gap, 0.0)
    limited = excess > ROUNDING * result.risk
    if limited and known:
        meaning = (
            "So far can two layers be apart that fit the training data as well as the one found: "
            f"its risk exceeds the least by {excess:.3g}."
        )
        return bounds_section(certificate, data, excess, meaning, result.predict)
    some, _ = data.sample(1000)
    with np.errstate(over="ignore"):
        power = float(np.mean(norms(some.outputs(result.predict)) ** 2))
    if limited:
        share = "what the limit on the number of heads costs in training"
    elif result.risk > ROUNDING * power:
        excess, share = 0.01 * result.risk, "1 % of the risk of the layer found"
    else:
        excess, share = 1e-6 * power, "a millionth of the mean squared output"
    best = "The layer found has the least risk. " if known else ""
    meaning = (
        f"{best}So far can two layers be apart whose risk on {of} exceeds the least by "
        f"{excess:.3g} ({share})."
    )
    return bounds_section(certificate, data, excess, meaning, result.predict)
