"""Learning programs from traces: coefficient by coefficient, or by relation."""

from polyattn.programs.learning.abstaining import Abstained
from polyattn.programs.learning.learn import learn
from polyattn.programs.learning.learned import Learned

__all__ = ["Abstained", "Learned", "learn"]
