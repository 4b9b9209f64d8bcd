"""polyattn: attention layers learned with proofs.

>>> import polyattn as pa
>>> task = pa.data.planted(512, 20, 3, random_state=0)
>>> result = pa.fit(task.X, task.Y, mode="causal")
>>> pa.same_function(result.layer, task.layer)
True
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from polyattn import data, heads, programs, softmax, solve
from polyattn._version import __version__
from polyattn.auditing import Audit, HeadAudit, audit
from polyattn.certify import Certificate, certify, domains
from polyattn.certify.check import verify
from polyattn.certify.sample_size import sample_size
from polyattn.fitting.curve_result import LearningCurve
from polyattn.fitting.fit import fit
from polyattn.fitting.forecasting.forecast import forecast
from polyattn.fitting.forecasting.result import Forecast
from polyattn.fitting.learning_curve import learning_curve
from polyattn.fitting.one_hot.result import OneHotFit
from polyattn.fitting.result import FitResult
from polyattn.form import Form, maps
from polyattn.linearising.linearise import linearise
from polyattn.linearising.result import Linearised
from polyattn.model import (
    HeadMatch,
    LinearAttention,
    LinearisedAttention,
    SoftmaxAttention,
    canonical,
    coefficient_distance,
    match_heads,
    same_function,
)
from polyattn.outcome import Outcome
from polyattn.sequences import SequenceBatch
from polyattn.softmax import LearnedSoftmax, QueryResult, learn_from_queries, learn_softmax
from polyattn.sources import Source
from polyattn.sources.from_long import LongData, from_long
from polyattn.sources.scan import scan
from polyattn.stats import Moments, TriangularFactor
from polyattn.storage import load, save

if TYPE_CHECKING:
    from polyattn import interop
    from polyattn.estimators import (
        LinearAttentionClassifier,
        LinearAttentionRegressor,
        SequenceImputer,
        SequenceScaler,
        SoftmaxAttentionRegressor,
    )

# Loaded on first use: scikit-learn and torch are slow to import.
_LAZY = {
    "LinearAttentionRegressor": "polyattn.estimators",
    "LinearAttentionClassifier": "polyattn.estimators",
    "SequenceImputer": "polyattn.estimators",
    "SequenceScaler": "polyattn.estimators",
    "SoftmaxAttentionRegressor": "polyattn.estimators",
    "interop": "polyattn.interop",
}

__all__ = [
    "Audit",
    "Certificate",
    "FitResult",
    "Forecast",
    "Form",
    "HeadAudit",
    "HeadMatch",
    "LearnedSoftmax",
    "LearningCurve",
    "LinearAttention",
    "LinearAttentionClassifier",
    "LinearAttentionRegressor",
    "Linearised",
    "LinearisedAttention",
    "LongData",
    "Moments",
    "OneHotFit",
    "Outcome",
    "QueryResult",
    "SequenceBatch",
    "SequenceImputer",
    "SequenceScaler",
    "SoftmaxAttention",
    "SoftmaxAttentionRegressor",
    "Source",
    "TriangularFactor",
    "__version__",
    "audit",
    "canonical",
    "certify",
    "coefficient_distance",
    "data",
    "domains",
    "fit",
    "forecast",
    "from_long",
    "heads",
    "interop",
    "learn_from_queries",
    "learn_softmax",
    "learning_curve",
    "linearise",
    "load",
    "maps",
    "match_heads",
    "programs",
    "same_function",
    "sample_size",
    "save",
    "scan",
    "softmax",
    "solve",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'polyattn' has no attribute {name!r}")
    module = import_module(_LAZY[name])
    return module if name == "interop" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
