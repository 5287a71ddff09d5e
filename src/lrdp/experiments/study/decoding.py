"""From a TOML's tables to frozen values, with one sentence for whatever does not fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from lrdp.errors import InvalidInput

Decoded = TypeVar("Decoded")


def decoded(kind: type[Decoded], table: Mapping[str, Any], where: str) -> Decoded:
    """A dataclass of plain values, tuples, tables by name, and other such dataclasses.

    Raises:
        InvalidInput: naming ``where`` and the key, for one that is unknown, missing or of another type.
    """
    known = {each.name: each for each in fields(cast(Any, kind))}
    if unknown := sorted(set(table) - set(known)):
        raise InvalidInput(f"{where} has {unknown[0]!r}, which is none of {', '.join(known)}: nothing was run.")
    if missing := [name for name, each in known.items() if name not in table and _needed(each)]:
        raise InvalidInput(f"{where} lacks {missing[0]!r}: nothing was run.")
    hints = get_type_hints(kind)
    return kind(**{name: _value(hints[name], value, f"{where}.{name}") for name, value in table.items()})


def _needed(each: Field[Any]) -> bool:
    return each.default is MISSING and each.default_factory is MISSING


def _value(hint: Any, value: Any, where: str) -> Any:
    origin, inside = get_origin(hint), get_args(hint)
    if is_dataclass(hint):
        return decoded(cast(type[Any], hint), _of(dict, value, where), where)
    if origin is tuple:
        return tuple(_value(inside[0], each, f"{where}[{place}]") for place, each in enumerate(_of(list, value, where)))
    if origin is not None and issubclass(origin, Mapping):
        return {name: _value(inside[1], each, f"{where}.{name}") for name, each in _of(dict, value, where).items()}
    if hint is float and type(value) is int:
        return float(value)
    return _of(hint, value, where)


def _of(kind: Any, value: Any, where: str) -> Any:
    if kind is not Any and type(value) is not kind:
        names = {dict: "a table", list: "a list", str: "text", int: "a whole number", float: "a number", bool: "a bool"}
        raise InvalidInput(f"{where} must be {names.get(kind, kind)}, got {value!r}: nothing was run.")
    return value
