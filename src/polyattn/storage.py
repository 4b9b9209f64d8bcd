"""save and load: one call each for everything that can be kept in a file."""

from __future__ import annotations

import os
from typing import Any

from polyattn.auditing import Audit, HeadAudit
from polyattn.certify import Certificate
from polyattn.errors import FileFormatError, InvalidType
from polyattn.files.atomic import file_to_read, file_to_write
from polyattn.files.records import Record, read_record, rebuild, write_record
from polyattn.fitting.curve_result import LearningCurve
from polyattn.fitting.forecasting.result import Forecast
from polyattn.fitting.one_hot.result import OneHotFit
from polyattn.fitting.result import FitResult
from polyattn.linearising.result import Linearised
from polyattn.model import LinearAttention, LinearisedAttention, SoftmaxAttention
from polyattn.programs import Compiled, LearnedCoefficients, LearnedRules, ProgramCertificate
from polyattn.softmax import LearnedSoftmax, QueryResult
from polyattn.stats import Moments, TriangularFactor
from polyattn.stats.checkpoint import KIND as CHECKPOINT

# Everything that can be kept in a file, by the name that the file gives it.  A kind has
# ``to_record`` and ``from_record``; a certificate is a document instead, and stands beside them.
_LAYERS = (LinearAttention, SoftmaxAttention, LinearisedAttention)
_SUMS = (Moments, TriangularFactor)
_FITS = (FitResult, OneHotFit, LearningCurve, Forecast, Audit, HeadAudit)
_RESULTS = (*_FITS, LearnedSoftmax, QueryResult, Linearised)
_PROGRAMS = (Compiled, LearnedRules, LearnedCoefficients, ProgramCertificate)
KINDS: dict[str, Any] = {kind.kind: kind for kind in (*_LAYERS, *_SUMS, *_RESULTS, *_PROGRAMS)}

# Estimators and pipelines of them, whose module is loaded on first use: scikit-learn is slow.
ESTIMATOR_KINDS = ("estimator", "pipeline")


def save(obj: Any, path: str | os.PathLike[str]) -> None:
    """Write a model, a result, statistics, a program or a certificate to one file, atomically.

    A certificate is a JSON document, everything else safetensors; a path that ends in the name of
    another format, such as .pkl, is refused.  A fit takes its statistics
    along, so it can be continued after loading; saving looks for no heads.

    Of scikit-learn's kind: the fitted estimators and transformers of polyattn, and a ``Pipeline``
    whose steps they are, with parameters, labels, and sums that ``partial_fit`` goes on with.
    """
    file_to_write(path)
    if isinstance(obj, Certificate):
        obj.save(path)
        return
    write_record(record_of(obj), path)


def record_of(obj: Any) -> Record:
    """What the file of an object holds, for everything but a certificate."""
    if type(obj) in KINDS.values():
        return obj.to_record()
    if hasattr(obj, "get_params"):
        from polyattn.estimators.saved import model_record

        return model_record(obj)
    names = ", ".join(kind.__name__ for kind in (*KINDS.values(), Certificate))
    raise InvalidType(
        f"save takes one of {names}, a fitted estimator or a pipeline of them; got "
        f"{type(obj).__name__}."
    )


def load(path: str | os.PathLike[str]) -> Any:
    """Read what ``save`` wrote: the same kind of object, checked against its digest."""
    source = file_to_read(path)
    with source.open("rb") as file:
        start = file.read(8)
    # So begins a JSON object; safetensors begin with a number of 8 bytes.
    if start.lstrip().startswith(b"{") and b"\0" not in start:
        return Certificate.load(source)
    record = read_record(source)
    if record.kind == CHECKPOINT:
        raise FileFormatError(
            f"{str(source)!r} is the checkpoint of a sum over a source; the call that wrote it, "
            "update(source, checkpoint=...), goes on from there."
        )
    if record.kind in ESTIMATOR_KINDS:
        from polyattn.estimators.saved import SAVED

        return rebuild(SAVED[record.kind], record, source)
    if record.kind not in KINDS:
        raise FileFormatError(
            f"{str(source)!r} holds a {record.kind!r}, which this release does not know."
        )
    return rebuild(KINDS[record.kind], record, source)
