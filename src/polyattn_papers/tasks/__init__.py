"""Tasks that several experiments, commands and benchmarks set to their learners."""
