"""The experiments around Chen & Li, *Provably learning a multi-head attention layer* [chen2024]."""
