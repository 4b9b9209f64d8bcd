"""Learning programs from traces: coefficient by coefficient, or by relation."""
