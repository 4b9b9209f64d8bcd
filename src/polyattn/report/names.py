"""What coordinates and outputs are called on pages and plots: names that were given, or numbers.

Numbers count from 0, as indices of arrays and the messages about them do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from polyattn.errors import InvalidInput, InvalidType
from polyattn.form.columns import Columns
from polyattn.model import LinearAttention
from polyattn.model.layer import AttentionLayer
from polyattn.quoting import counted, printable, shown

# The coordinate that is always 1.
CONSTANT = "const"


@dataclass(frozen=True)
class SideNames:
    """Names of coordinates, outputs and classes; empty where numbers are shown instead.

    Classes are named where outputs are scores of them: one for each, or one for the second of two.
    several : whether they are labels of which a sequence can have any number
    """

    coordinates: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    several: bool = False

    @classmethod
    def of(
        cls,
        coordinate_names: Sequence[str] | None,
        output_names: Sequence[str] | None,
        n_dims: int | None,
        n_outputs: int | None,
    ) -> SideNames:
        """Names that were given, checked against the sizes; None: there is nothing to name."""
        return cls(
            _checked("coordinate_names", coordinate_names, "coordinate", n_dims),
            _checked("output_names", output_names, "output", n_outputs),
        )

    def with_classes(self, labels: Sequence[str], several: bool) -> SideNames:
        """The same for a classifier; names of outputs that were given are those of its classes."""
        return SideNames(self.coordinates, (), self.outputs or tuple(labels), several)

    def of_coordinates(self, n_dims: int) -> tuple[str, ...]:
        """A name for each coordinate of a token."""
        return self.coordinates or numbered(n_dims)

    def of_outputs(self, n_outputs: int) -> tuple[str, ...]:
        """A name for each output; that of two classes is for the second."""
        if n_outputs == 1 and len(self.classes) == 2 and not self.several:
            return self.classes[1:]
        return self.outputs or self.classes or numbered(n_outputs)


@dataclass(frozen=True)
class Side:
    """What stands along a side of a matrix: "key coordinate", and a name for each entry."""

    label: str
    names: tuple[str, ...]


def sides_of(layer: AttentionLayer, names: SideNames) -> dict[str, Side]:
    """The sides of the matrices of a layer by what they are: query, key, value and output."""
    noun = "class" if names.classes else "output"
    found = {"output": Side(noun, names.of_outputs(layer.n_outputs))}
    if isinstance(layer, LinearAttention):
        layout = layer.layout
        own = _column_names(layout.columns, names.of_coordinates(layout.n_dims))
        attended = own
        if layout.n_context_dims is not None:
            attended = _column_names(layout.pair_columns, numbered(layout.n_context_dims))
        of_roles = {
            "query": [own[at] for at in layout.query],
            "key": [attended[at] for at in layout.pairs.key],
            "value": [attended[at] for at in layout.pairs.value],
        }
    else:
        own = [*names.of_coordinates(layer.n_dims), *([CONSTANT] if layer.bias else [])]
        of_roles = dict.fromkeys(("query", "key", "value"), own)
    return found | {
        role: Side(f"{role} coordinate", tuple(entries)) for role, entries in of_roles.items()
    }


def _column_names(columns: Columns, coordinates: Sequence[str]) -> list[str]:
    """A name for each column: coordinates that are seen, what maps make, the constant."""
    seen = range(columns.n_dims) if columns.coordinates is None else columns.coordinates
    # Without any map of its own a layer may see no coordinate of the tokens as it is.
    named = [coordinates[at] for at in seen]
    for _, _, width in columns.maps:
        named += [f"map {at}" for at in range(width)]
    return [*named, CONSTANT] if columns.constant else named


def numbered(count: int) -> tuple[str, ...]:
    """Numbers from 0, as names."""
    return tuple(map(str, range(count)))


def _checked(
    argument: str, given: Sequence[str] | None, noun: str, count: int | None
) -> tuple[str, ...]:
    if given is None:
        return ()
    if count is None:
        raise InvalidInput(f"{argument} names nothing that is shown here; leave it out.")
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise InvalidType(
            f"{argument} must be a list of {counted(count, 'name')}, one for each {noun}; got "
            f"{shown(given)}."
        )
    names = list(given)
    wrong = next((each for each in names if not isinstance(each, str)), None)
    if wrong is not None:
        raise InvalidType(f"{argument} must hold texts; got {shown(wrong)} among them.")
    if len(names) != count:
        raise InvalidInput(
            f"{argument} must hold {counted(count, 'name')}, one for each {noun}; got {len(names)}."
        )
    return tuple(printable(each) for each in names)
