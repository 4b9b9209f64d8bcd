"""What every step computes with: arrays, powers of two, BLAS, threads, random numbers."""
