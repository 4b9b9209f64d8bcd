"""Parts of the experiment on in-context regression: the task, what is said of it, the picture."""
