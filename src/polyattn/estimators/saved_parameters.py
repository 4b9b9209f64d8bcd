"""Parameters of estimators in files: as plain data, and checked both ways."""

from __future__ import annotations

from inspect import signature
from typing import Any

import numpy as np

from polyattn.errors import FileFormatError, InvalidInput, PolyattnError
from polyattn.estimators.imputer import STRATEGIES
from polyattn.files.fields import (
    Check,
    any_object,
    entries,
    flag,
    integer,
    listed,
    nullable,
    number,
    one_of,
    require,
    text,
)
from polyattn.form.form import Form
from polyattn.quoting import shown
from polyattn.sequences import MODES
from polyattn.sequences.flattening import LAYOUTS
from polyattn.solve.log_loss import LOSSES
from polyattn.solve.ridge import RULES
from polyattn.solve.solvers import SOLVERS


def either(*checks: Check, wanted: str) -> Check:
    """What any of these checks lets pass."""

    def checked(value: Any, where: str) -> None:
        for check in checks:
            try:
                check(value, where)
            except FileFormatError:
                continue
            return
        require(False, where, wanted, value)

    return checked


def _form(value: Any, where: str) -> None:
    entries({"form": any_object})(value, where)
    Form.from_dict(value["form"])


_LABEL = either(text(), flag, number(), wanted="a label")


def _weights(value: Any, where: str) -> None:
    """Pairs of a label and its weight."""
    entries({"weights": listed(listed(either(_LABEL, wanted="a label"), 2, 2))})(value, where)
    for at, (_, weight) in enumerate(value["weights"]):
        number(0)(weight, f"{where}.weights[{at}][1]")


# A word means the same in all estimators.
PARAMETERS: dict[str, Check] = {
    "add_indicator": flag,
    "bias": flag,
    "class_weight": nullable(
        either(one_of(("balanced",)), _weights, wanted="null, 'balanced' or weights of labels")
    ),
    "fill_value": number(),
    "form": nullable(_form),
    "head_rank": nullable(integer(1)),
    "layout": one_of(tuple(LAYOUTS)),
    "loss": one_of(LOSSES),
    "max_heads": nullable(integer(1)),
    "max_seconds": nullable(number(0)),
    "method": one_of(("auto", "moments", "sculpt")),
    "mode": one_of(MODES),
    "n_heads": nullable(
        either(one_of(("auto",)), integer(1), wanted="null, 'auto' or an integer >= 1")
    ),
    "noise": nullable(number(0)),
    "polish": flag,
    "random_state": nullable(integer(0, None)),
    "ridge": nullable(either(one_of(RULES), number(0), wanted="null, a rule or a number >= 0")),
    "ridge_grid": nullable(listed(number(0), 1)),
    "solver": one_of(("auto", "one_hot", *SOLVERS)),
    "strategy": one_of(STRATEGIES),
    "unit_norm": flag,
    "with_mean": flag,
    "with_std": flag,
}


def parameters_to_dict(estimator: Any) -> dict[str, Any]:
    """The parameters of an estimator as plain data; refused where a file cannot keep one."""
    content: dict[str, Any] = {}
    for name, value in estimator.get_params(deep=False).items():
        content[name] = _plain(value)
        try:
            PARAMETERS[name](content[name], name)
        except FileFormatError:
            advice = " set_params(random_state=0) gives it one." if name == "random_state" else ""
            raise InvalidInput(
                f"the parameter {name} of {type(estimator).__name__} cannot be kept in a file: "
                f"it is {shown(value)}.{advice}"
            ) from None
    return content


def parameters_from_dict(content: Any, kind: type, where: str) -> dict[str, Any]:
    """The inverse, for a class of estimators; those that a file lacks keep their defaults."""
    known = {name: PARAMETERS[name] for name in signature(kind).parameters}
    entries({}, known)(content, where)
    return {name: _restored(value) for name, value in content.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Form):
        try:
            return {"form": value.to_dict()}
        except PolyattnError as error:
            raise InvalidInput(f"the parameter form cannot be kept in a file: {error}") from None
    if isinstance(value, dict):
        return {"weights": [[_plain(key), _plain(each)] for key, each in value.items()]}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return list(value) if isinstance(value, tuple | range) else value


def _restored(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "form" in value:
        return Form.from_dict(value["form"])
    return dict(value["weights"])
