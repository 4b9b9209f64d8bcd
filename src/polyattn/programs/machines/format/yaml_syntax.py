"""YAML as people mean it: words are words, and no key stands twice.

Of words without quotes only true, false, null and plain numbers are anything but text: states
called ``on`` and ``off`` are these, not truth values, and a letter ``01`` is not the number 1.
"""

from __future__ import annotations

import re
from typing import Any

from polyattn.errors import InvalidInput, missing_extra

try:
    import yaml  # type: ignore[import-untyped]
except ImportError:
    raise missing_extra("pyyaml", "yaml") from None

_TAG = "tag:yaml.org,2002:"
_WORDS = {
    "bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "int": (r"-?(0|[1-9][0-9]*)", "-0123456789"),
    "float": (r"-?[0-9]+\.[0-9]*([eE][-+]?[0-9]+)?", "-0123456789"),
}  # fmt: skip


class Loader(yaml.SafeLoader):  # type: ignore[misc]
    """A safe loader that refuses keys that stand twice."""

    yaml_implicit_resolvers: dict[str, list[Any]] = {}  # noqa: RUF012 - filled below

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """A mapping, after a look at its keys."""
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            try:
                twice = key in seen
                seen.add(key)
            except TypeError:  # the loader itself says that such a key cannot be
                break
            if twice:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} stands twice", key_node.start_mark
                )
        return super().construct_mapping(node, deep=deep)


for _name, (_pattern, _first) in _WORDS.items():
    Loader.add_implicit_resolver(_TAG + _name, re.compile(rf"^(?:{_pattern})$"), list(_first))


def parse_yaml(text: str) -> Any:
    """What a text holds, in plain types."""
    try:
        return Loader(text).get_single_data()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        told = " ".join(part for part in (error.context, error.problem) if part)
        raise InvalidInput(f"{where}it is no YAML that can be read ({told}).") from None
    except (yaml.YAMLError, ValueError) as error:
        told = " ".join(str(error).split())
        raise InvalidInput(f"it is no YAML that can be read ({told}).") from None


def write_yaml(content: dict[str, Any]) -> str:
    """Plain data as YAML, the innermost tables on one line each."""
    return str(
        yaml.safe_dump(content, sort_keys=False, allow_unicode=True, default_flow_style=None)
    )
