"""Learning a layer from traces, coefficient by coefficient, and the span of what was seen."""

from polyattn.programs.learning.untied.exact_span import ExactSpan
from polyattn.programs.learning.untied.learn_untied import learn_untied
from polyattn.programs.learning.untied.leave_out import innovative
from polyattn.programs.learning.untied.program import UntiedProgram
from polyattn.programs.learning.untied.span import Span

__all__ = ["ExactSpan", "Span", "UntiedProgram", "innovative", "learn_untied"]
