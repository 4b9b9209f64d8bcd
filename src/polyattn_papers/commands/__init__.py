"""The verbs of the command line that run experiments: ``reproduce``, ``bench`` and ``demo``.

``polyattn.cli`` adds them to its own; options, tables and progress are those of all verbs.
"""

from polyattn_papers.commands.bench import bench
from polyattn_papers.commands.demo import demo
from polyattn_papers.commands.reproduce import reproduce

__all__ = ["bench", "demo", "reproduce"]
