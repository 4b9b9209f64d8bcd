"""Learning a layer from traces, coefficient by coefficient, and the span of what was seen."""

from polyattn.programs.learning.coefficients.coefficient_span import CoefficientSpan, innovative
from polyattn.programs.learning.coefficients.exact_span import ExactSpan
from polyattn.programs.learning.coefficients.learn_coefficients import learn_coefficients
from polyattn.programs.learning.coefficients.learned_coefficients import LearnedCoefficients

__all__ = [
    "CoefficientSpan",
    "ExactSpan",
    "LearnedCoefficients",
    "innovative",
    "learn_coefficients",
]
