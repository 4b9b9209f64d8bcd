"""Parts of the experiment on associative memory: the closed form, what is said, the picture."""
