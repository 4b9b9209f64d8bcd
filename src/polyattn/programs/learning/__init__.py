"""Learning programs from traces: as rules, or coefficient by coefficient."""

from polyattn.programs.learning.cautious import Abstained
from polyattn.programs.learning.coefficients import LearnedCoefficients
from polyattn.programs.learning.learn import learn
from polyattn.programs.learning.learned import Learned
from polyattn.programs.learning.rules.learned import LearnedRules

__all__ = ["Abstained", "Learned", "LearnedCoefficients", "LearnedRules", "learn"]
