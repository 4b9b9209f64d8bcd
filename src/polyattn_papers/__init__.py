"""The experiments of the papers, run again by polyattn: one folder for each.

``reproduction`` runs them and writes tables and pages, ``yau2024`` and ``chen2024`` hold them.
``tasks`` are set to several learners, ``baselines`` are trained by gradients (they need torch),
``comparisons`` is what ``polyattn bench`` runs, ``commands`` are the verbs of the command line.
Experiments are imported by name when they are run.
"""
