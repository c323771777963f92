"""Params as dataclasses: strict reading of a mapping into a typed, frozen value."""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from queen.errors import QueenError

T = TypeVar("T")


ONLY = "only"


class ParamsError(QueenError):
    """A param that is unknown, missing or of the wrong type."""


def only(name: str, value: str | bool) -> dict[str, Any]:
    """Metadata of a field that counts only where its neighbour `name` has this value."""
    return {ONLY: (name, value)}


def relevant(value: Any) -> Any:
    """Params as plain values, without what is said to be `aside` (part of no key and no record)
    or left unused by their own choices."""
    if dataclasses.is_dataclass(value):
        fields = [f for f in dataclasses.fields(value) if _counts(f, value)]
        return {f.name: relevant(getattr(value, f.name)) for f in fields}
    if isinstance(value, Mapping):
        return {key: relevant(item) for key, item in value.items()}
    return [relevant(item) for item in value] if isinstance(value, list | tuple) else value


def _counts(entry: dataclasses.Field[Any], value: Any) -> bool:
    name, wanted = entry.metadata.get(ONLY, ("", None))
    return not entry.metadata.get("aside") and (not name or getattr(value, name) == wanted)


def build(cls: type[T], raw: Mapping[str, Any], where: str) -> T:
    """Read a mapping into a dataclass, nested ones too.

    Args:
        cls: a dataclass; fields may be nested dataclasses, tuples, mappings, optionals, scalars.
        raw: the params.
        where: dotted name of the section, for errors.

    Raises:
        ParamsError: on an unknown key (with the nearest real one), a missing one, a wrong type.
    """
    hints = typing.get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for key in raw:
        if key not in fields:
            near = difflib.get_close_matches(key, fields, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ParamsError(
                f"unknown param {key!r}",
                where=where,
                remedy=f"{hint}known: {', '.join(sorted(fields))}",
            )
    values = {}
    for name, entry in fields.items():
        if name in raw:
            values[name] = _convert(hints[name], raw[name], f"{where}.{name}")
        elif entry.default is dataclasses.MISSING and entry.default_factory is dataclasses.MISSING:
            raise ParamsError(
                f"param {name!r} is missing", where=where, remedy="run `queen configure`"
            )
    return cls(**values)


def _convert(kind: Any, value: Any, where: str) -> Any:
    origin = typing.get_origin(kind)
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, Mapping):
            raise _wrong("a mapping", value, where)
        return build(typing.cast(type, kind), value, where)
    if origin in (typing.Union, types.UnionType):
        return _convert_union(kind, value, where)
    if origin is typing.Literal:
        if value not in typing.get_args(kind):
            raise _wrong(f"one of {', '.join(map(repr, typing.get_args(kind)))}", value, where)
        return value
    if origin in (tuple, Sequence):
        if not isinstance(value, list | tuple):
            raise _wrong("a list", value, where)
        inner = typing.get_args(kind)[0]
        return tuple(_convert(inner, item, f"{where}[{i}]") for i, item in enumerate(value))
    if origin in (dict, Mapping) or kind in (dict, Mapping):
        return _convert_mapping(kind, value, where)
    return _scalar(kind, value, where)


def _convert_union(kind: Any, value: Any, where: str) -> Any:
    options = typing.get_args(kind)
    if value is None and type(None) in options:
        return None
    rest = [option for option in options if option is not type(None)]
    if isinstance(value, Mapping) and all(dataclasses.is_dataclass(option) for option in rest):
        return _convert(max(rest, key=lambda option: _shared(option, value)), value, where)
    for option in rest[:-1]:
        try:
            return _convert(option, value, where)
        except ParamsError:
            continue
    return _convert(rest[-1], value, where)


def _shared(cls: Any, value: Mapping[str, Any]) -> int:
    """How many of a mapping's keys a dataclass has: which of several is meant, typos and all."""
    return len({f.name for f in dataclasses.fields(cls)} & set(value))


def _convert_mapping(kind: Any, value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong("a mapping", value, where)
    arguments = typing.get_args(kind)
    inner = arguments[1] if arguments else Any
    return {str(key): _convert(inner, item, f"{where}.{key}") for key, item in value.items()}


def _scalar(kind: Any, value: Any, where: str) -> Any:
    if kind is Any:
        return value
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if kind in (int, str, bool) and type(value) is kind:
        return value
    raise _wrong(getattr(kind, "__name__", str(kind)), value, where)


def _wrong(expected: str, value: Any, where: str) -> ParamsError:
    return ParamsError(
        f"expected {expected}, found {value!r} ({type(value).__name__})",
        where=where,
        remedy="correct it with `queen configure`",
    )
