"""Softmax heads replaced by linear attention in closed form, and how much that loses."""
