"""Learning programs from traces: as rules, or coefficient by coefficient."""

from polyattn.programs.learning.coefficients import LearnedCoefficients
from polyattn.programs.learning.learn import learn
from polyattn.programs.learning.learned import Abstained, Learned
from polyattn.programs.learning.rules.learned_rules import LearnedRules

__all__ = ["Abstained", "Learned", "LearnedCoefficients", "LearnedRules", "learn"]
