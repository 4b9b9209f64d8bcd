"""The page of a fit: outcome, certificate, heads, predictions, bounds."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyattn.certify import Certificate
from polyattn.certify.finding import UNDECIDED
from polyattn.heads import factor
from polyattn.heads.bounds import least_heads
from polyattn.heads.compression import Target
from polyattn.model import LinearAttention
from polyattn.report.bounds import bounds_section
from polyattn.report.certificates import certificate_if_possible, certificate_sections
from polyattn.report.figures import OTHER, OURS, drawing, log_ticks, new_figure
from polyattn.report.given import GivenData, rows_of
from polyattn.report.heads import MOST_UNFOLDED, heads_section
from polyattn.report.page import Section
from polyattn.report.predictions import predictions_section
from polyattn.report.statement import count, plot, statement
from polyattn.result import FitResult

# Outcomes that say less than "this is the one layer".
DOUBTS = ("minimum_norm", "iterative")

# Up to this many coefficients a search for few heads takes a second, whatever it finds.
QUICK_COEFFICIENTS = 1 << 13

# Risks below this share of the outputs are rounding.
ROUNDING = 1e-12


def fit_page(
    result: FitResult, data: GivenData | None, certificate: Certificate | None = None
) -> list[Section]:
    """All sections; ``certificate`` if there is one already."""
    about = ""
    if certificate is None:
        certificate, about = certificate_of(result, data)
    sections = [_outcome(result)]
    if result.ridge_path is not None:
        sections.append(_ridge(result))
    if certificate is not None:
        sections += certificate_sections(certificate, about)
    sections.append(_heads(result))
    if data is not None and data.targets is not None:
        sections.append(predictions_section(result.predict, data))
    if certificate is not None and data is not None:
        sections.append(_bounds(result, certificate, data))
    missing = _missing("" if certificate is not None else about, data)
    return [*sections, missing] if missing else sections


def certificate_of(result: FitResult, data: GivenData | None) -> tuple[Certificate | None, str]:
    """The certificate of the training data, and a sentence about these, or why there is none.

    From the sums behind the fit where these are enough, otherwise from the data given.
    """
    sums = result.statistics
    full = result.rank == result.n_features
    if sums is not None and (data is None or full):
        found, why_not = certificate_if_possible(statistics=sums)
        if data is None or (found is not None and found.verdict != UNDECIDED):
            return found, why_not or "The certificate is about the training data, by their sums."
    if data is None:
        return None, (
            "Whether the data determine the layer: this fit kept no sums, so the page needs the "
            "training sequences X."
        )
    found, why_not = certificate_if_possible(data.batch, mode=result.mode, bias=result.bias)
    return found, why_not or "The certificate is about the data that were given to this page."


def heads_of(result: FitResult) -> tuple[LinearAttention | None, str]:
    """The layer and how it was found; what takes long is left to ``result.layer``.

    Where the coefficients pass for those of few heads, these are found quickly; otherwise they
    are factored, unless they are too many for that as well.
    """
    known = result.known_heads is not None or "heads" in vars(result)
    n_outputs, _, width = result.coef.shape
    if not known and width * min(width, n_outputs) > MOST_UNFOLDED:
        return None, (
            "The heads were not looked for: with so many coefficients that can take minutes. Call "
            "result.layer, which does it, and write the page again."
        )
    if known or _is_quick(result):
        return result.layer, result.heads.sentence
    found = factor(result.coef)
    why = (
        "Fewer were not looked for, since the coefficients do not look like those of few heads "
        "and the search would take long: call result.layer, which makes it, and write the page "
        "again."
    )
    layer = LinearAttention(found.attn, found.value, result.mode, result.bias)
    return layer, f"{found.sentence} {why}"


def _is_quick(result: FitResult) -> bool:
    if result.coef.size <= QUICK_COEFFICIENTS:
        return True
    target = Target.of(result.coef)
    rng = np.random.default_rng(result.random_state)
    n_outputs, _, width = result.coef.shape
    return target.is_zero or least_heads(target.tensor, result.head_tolerance, rng) < min(
        n_outputs, width
    )


def _heads(result: FitResult) -> Section:
    layer, sentence = heads_of(result)
    return statement("Heads", sentence) if layer is None else heads_section(layer, sentence)


def _outcome(result: FitResult) -> Section:
    rank = "not examined" if result.rank is None else f"{result.rank:,} of {result.n_features:,}"
    facts: dict[str, Any] = {
        "tokens and outputs": f"{count(result.n_dims, 'coordinate')} to "
        f"{count(len(result.coef), 'output')}, mode {result.mode}"
        + (", with a constant" if result.bias else ""),
        "risk on the training data, mean ||y − F(X)||²": result.risk,
    }
    if result.gap > 0:
        facts["least risk with any number of heads"] = result.optimal_risk
    facts |= {
        "coefficients that the data determine": rank,
        "condition number": result.condition,
        "ridge": result.ridge,
        "solver": result.solver,
    }
    doubt = result.outcome.name in DOUBTS
    return statement("What was found", str(result.outcome), doubt=doubt, facts=facts)


def _ridge(result: FitResult) -> Section:
    path = result.ridge_path
    assert path is not None  # noqa: S101 - the caller has looked
    figure = new_figure(4.7, 2.8)
    with drawing():
        axes = figure.add_subplot()
        axes.set(xscale="log", yscale="log")
        axes.plot(path.ridges, path.errors, color=OURS)
        if result.ridge > 0:
            axes.axvline(result.ridge, color=OTHER, linestyle="--", label=f"{result.ridge:.3g}")
            axes.legend(loc="best")
        axes.set(xlabel="ridge", ylabel="estimated error")
        log_ticks(axes.xaxis)
        log_ticks(axes.yaxis)
    caption = f"The error that {path.kind!r} estimates for new sequences, for every ridge tried."
    claim = f"The ridge {result.ridge:.3g} was chosen by the data."
    return statement("The ridge", claim, pictures=[plot(figure, "Error for each ridge", caption)])


def _bounds(result: FitResult, certificate: Certificate, data: GivenData) -> Section:
    """For layers as good as the one found; if none is known to be better, for a bit worse ones."""
    excess = max(result.gap, 0.0)
    if excess > ROUNDING * result.risk:
        meaning = (
            "So far can two layers be apart that fit the training data as well as the one found: "
            f"its risk exceeds the least by {excess:.3g}."
        )
        return bounds_section(certificate, data, excess, meaning, result.predict)
    some, _ = data.sample(1000)
    power = float(np.mean(np.sum(rows_of(result.predict, some.batch) ** 2, axis=1)))
    if result.risk > ROUNDING * power:
        excess, share = 0.01 * result.risk, "1 % of the risk of the layer found"
    else:
        excess, share = 1e-6 * power, "a millionth of the mean squared output"
    best = "" if result.ridge > 0 else "The layer found has the least risk. "
    meaning = (
        f"{best}So far can two layers be apart whose risk on the training data exceeds the least "
        f"by {excess:.3g} ({share})."
    )
    return bounds_section(certificate, data, excess, meaning, result.predict)


def _missing(no_certificate: str, data: GivenData | None) -> Section | None:
    lines = [no_certificate] if no_certificate else []
    if data is None:
        lines.append("Bounds for each input: the page needs sequences X.")
    if data is None or data.targets is None:
        lines.append("Predictions beside true outputs: the page needs X and their targets Y.")
    if not lines:
        return None
    how = "result.report(path, X, Y), or polyattn report MODEL DATA, shows all of it."
    return statement("What is not shown", lines=lines, notes=[how])
