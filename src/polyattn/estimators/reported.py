"""Pages and plots of estimators; ``polyattn.report`` lies above them and is found by name."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from polyattn.display import Plotted


class ReportedEstimator(Plotted):
    """An estimator with a page of its own; notebooks show it as scikit-learn shows estimators."""

    def report(
        self,
        path: str | os.PathLike[str],
        X: Any = None,
        y: Any = None,
        *,
        sample_weight: Any = None,
        context: Any = None,
        coordinate_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
    ) -> None:
        """Write one self-contained HTML page about what was fitted.

        Parameters
        ----------
        path : where to write the page; it asks for nothing from anywhere
        X, y : sequences and their targets or labels, as for ``fit`` and best not the same ones
            With labels the page shows accuracy beside that of the most frequent class, which
            class is taken for which, and recall and precision of each.
        sample_weight : array (N,), one weight per sequence
        context : what the sequences of X attend to, one for each of them, where these are others
        coordinate_names, output_names : texts, one for each coordinate of a token and each output
            What they are called on the page; otherwise they are numbered from 0.  The outputs of
            a classifier are called as its classes.
        """
        import_module("polyattn.report").write_report(
            self, path, X, y, sample_weight=sample_weight, context=context,
            coordinate_names=coordinate_names, output_names=output_names,
        )  # fmt: skip
