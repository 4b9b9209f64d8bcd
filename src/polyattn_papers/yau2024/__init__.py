"""The experiments of Yau et al., *Learning Linear Attention in Polynomial Time* [yau2024]."""
