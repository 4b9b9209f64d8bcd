"""The heads of rxnmapper, a model for chemical reactions, on reactions of a small grammar.

    pip install rxnmapper torch
    python examples/real_layers/reaction_heads.py --out pages

The model applies one attention layer twelve times.  Reads it, says how linear its heads are each
time, replaces one of the twelve by linear attention, and finds the heads again from answers alone.
docs/real_layers.md shows what comes out.
"""

from models import RXNMAPPER
from reactions import token_ids
from study import main

if __name__ == "__main__":
    main(RXNMAPPER, token_ids, __doc__)
