"""Params become dataclasses, or an error that names the param."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import pytest

from stages.settings import ParamsError, build, only, relevant


@dataclass(frozen=True)
class Inner:
    nodes: int
    share: float = 0.5


@dataclass(frozen=True)
class Outer:
    name: str
    inner: Inner
    kind: Literal["a", "b"] = "a"
    moves: tuple[str, ...] = ()
    sizes: dict[str, int] = field(default_factory=dict)
    path: str | None = None


def test_reads_nested_values_and_keeps_defaults() -> None:
    raw = {"name": "x", "inner": {"nodes": 3}, "moves": ["e2e4"], "sizes": {"dev": 2}}
    assert build(Outer, raw, "outer") == Outer("x", Inner(3), "a", ("e2e4",), {"dev": 2})


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        ({"name": "x", "inner": {"node": 3}}, "did you mean 'nodes'"),
        ({"name": "x"}, "'inner' is missing"),
        ({"name": 3, "inner": {"nodes": 1}}, "outer.name"),
        ({"name": "x", "inner": {"nodes": True}}, "outer.inner.nodes"),
        ({"name": "x", "inner": {"nodes": 1}, "kind": "c"}, "outer.kind"),
        ({"name": "x", "inner": 5}, "outer.inner"),
        ({"name": "x", "inner": {"nodes": 1}, "moves": "e2e4"}, "outer.moves"),
        ({"name": "x", "inner": {"nodes": 1}, "sizes": {"dev": "many"}}, "outer.sizes.dev"),
    ],
)
def test_a_wrong_param_is_named(raw: dict[str, object], told: str) -> None:
    with pytest.raises(ParamsError) as caught:
        build(Outer, raw, "outer")
    assert told in str(caught.value)


def test_whole_numbers_are_shares_too() -> None:
    assert build(Inner, {"nodes": 1, "share": 1}, "inner").share == 1.0


@dataclass(frozen=True)
class Priced:
    model: str = "m"
    price: float = field(default=2.0, metadata={"aside": True})


@dataclass(frozen=True)
class Choosing:
    kind: Literal["a", "b"] = "a"
    for_b: Priced = field(default_factory=Priced, metadata=only("kind", "b"))
    sizes: tuple[int, ...] = (1, 2)
    more: dict[str, Priced] = field(default_factory=dict)


def test_what_a_choice_leaves_unused_is_part_of_no_key() -> None:
    assert relevant(Choosing()) == {"kind": "a", "sizes": [1, 2], "more": {}}
    chosen = Choosing("b", Priced("x", 3.0), more={"y": Priced()})
    assert relevant(chosen) == {
        "kind": "b",
        "for_b": {"model": "x"},
        "sizes": [1, 2],
        "more": {"y": {"model": "m"}},
    }
