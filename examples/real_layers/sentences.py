"""Texts that every Python has: docstrings of the standard library, as tokens of MiniLM."""

from __future__ import annotations

import ast
import sys
import sysconfig
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

N_TOKENS = 64
# Packages with long texts; which of them are read does not depend on the machine.
MODULES = (
    "argparse", "ast", "bisect", "calendar", "codecs", "collections", "configparser", "contextlib",
    "copy", "csv", "ctypes", "dataclasses", "datetime", "decimal", "difflib", "dis", "email",
    "enum", "fractions", "ftplib", "functools", "gettext", "glob", "heapq", "html", "http",
    "imaplib", "importlib", "inspect", "ipaddress", "json", "locale", "logging", "mailbox",
    "multiprocessing", "optparse", "os", "pathlib", "pdb", "pickle", "platform", "pprint",
    "random", "shutil", "smtplib", "socket", "statistics", "string", "subprocess", "tarfile",
    "tempfile", "textwrap", "threading", "timeit", "tokenize", "traceback", "typing", "unittest",
    "urllib", "uuid", "weakref", "xml", "zipfile",
)  # fmt: skip


def docstrings(modules: tuple[str, ...] = MODULES) -> list[str]:
    """Docstrings of the modules and of all that is defined in them, in the order of the files."""
    library = Path(sysconfig.get_paths()["stdlib"])
    found = []
    for name in sorted(set(modules) & set(sys.stdlib_module_names)):
        single = library / f"{name}.py"
        for path in [single] if single.exists() else sorted((library / name).rglob("*.py")):
            found += _docstrings_of(ast.parse(path.read_bytes()))
    return list(dict.fromkeys(found))


def token_ids(
    tokenizer: Path,
    n_texts: int,
    seed: int = 0,
    n_tokens: int = N_TOKENS,
    modules: tuple[str, ...] = MODULES,
) -> list[NDArray[np.intp]]:
    """Ids of ``n_texts`` docstrings, drawn at random, each cut to ``n_tokens``: CLS, words, SEP.

    Docstrings that are shorter are left out, so that nothing is padded.
    """
    encode = Tokenizer.from_file(str(tokenizer))
    encode.no_padding()
    encode.enable_truncation(n_tokens)
    texts = [text for text in docstrings(modules) if len(text) > 3 * n_tokens]
    ids = (np.array(encode.encode(texts[i]).ids) for i in _order(len(texts), seed))
    chosen = [each for each in ids if len(each) == n_tokens]
    if len(chosen) < n_texts:
        raise ValueError(f"there are {len(chosen)} such docstrings, fewer than {n_texts}")
    return chosen[:n_texts]


def _order(n: int, seed: int) -> NDArray[np.intp]:
    return np.random.default_rng(seed).permutation(n)


def _docstrings_of(module: ast.Module) -> list[str]:
    holders = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(module) if isinstance(node, holders)]
    return [text for node in nodes if (text := ast.get_docstring(node))]
