"""params/rounds.yaml: the tree of rounds, each with its fully resolved values.

A round stands on its parent's model. Its values are the `round` section of params.yaml (or
another round's, with `like`) with its own `set` on top, written out in full, so that a judged
round never changes when defaults do. No round is ever removed.
"""

from __future__ import annotations

import contextlib
import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from queen.errors import QueenError
from queen.lineage.lock import exclusive, lock_folder
from queen.lineage.params import (
    STEPS,
    Change,
    differences,
    dotted_keys,
    read_params,
    split_override,
    typed_value,
    unknown,
)
from queen.lineage.verdicts import BASES, FIRST, Verdicts, read_verdicts
from queen.lineage.yamlio import dump_yaml, parse_yaml, read_yaml, write_text

FILE = "params/rounds.yaml"
HEADER = (
    "# The tree of rounds. A person edits parent, like and set (or says `queen round add`);\n"
    "# `queen configure` writes seed and values from them, but for rounds that have a verdict.\n"
    "# Never take a round out: `dvc gc` would lose what it made.\n"
)
NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
RESERVED = {*BASES, *STEPS, "judge", "lc0", "released"}
FIELDS = ("parent", "like", "seed", "set", *STEPS)


class RoundError(QueenError):
    """A round that cannot be: a bad name, an unknown parent, a cycle, a wrong value."""


@dataclass(frozen=True)
class Round:
    """One round of the tree.

    Attributes:
        key: its name.
        parent: the model it starts from: `pawn1` or another round.
        seed: seed of its stages; None until it is resolved.
        like: the round it takes its values from, if any.
        set: its own values (and seed), nested, on top of the defaults or of `like`.
        values: step -> resolved params.
    """

    key: str
    parent: str
    seed: int | None
    like: str | None
    set: Mapping[str, Any]
    values: Mapping[str, Any]

    @property
    def resolved(self) -> bool:
        return self.seed is not None and all(step in self.values for step in STEPS)


def read_rounds(root: Path) -> dict[str, Round]:
    """All rounds, in the file's order.

    Raises:
        RoundError: a bad name, an unknown field, parent or like, a cycle.
    """
    raw = read_yaml(root / FILE, remedy="restore it from git: `git checkout params/rounds.yaml`")
    table = raw.get("rounds") or {}
    if set(raw) - {"rounds"} or not isinstance(table, dict):
        raise RoundError(
            "expected one mapping named rounds", where=FILE, remedy="restore it from git"
        )
    rounds = {str(key): _read_round(str(key), value) for key, value in table.items()}
    _check_tree(rounds)
    return rounds


def _read_round(key: str, raw: Any) -> Round:
    check_name(key)
    where = f"{FILE}: {key}"
    if not isinstance(raw, dict) or "parent" not in raw:
        raise RoundError("a round needs a parent", where=where, remedy=f"say parent: {FIRST}")
    for field in raw:
        if field not in FIELDS:
            raise unknown("field", str(field), FIELDS, where)
    seed = raw.get("seed")
    if seed is not None and type(seed) is not int:
        raise RoundError(f"the seed is {seed!r}", where=where, remedy="give a whole number")
    own = raw.get("set") or {}
    if not isinstance(own, dict):
        raise RoundError("set is no mapping", where=where, remedy="say set: {filter: {...}}")
    values = {step: raw[step] for step in STEPS if step in raw}
    like = raw.get("like")
    return Round(key, str(raw["parent"]), seed, str(like) if like else None, own, values)


def check_name(key: str) -> None:
    """Raise RoundError unless a name can stand in stage names and folders."""
    if not NAME.fullmatch(key) or key in RESERVED:
        why = "is taken" if key in RESERVED else "cannot be a round's name"
        raise RoundError(
            f"{key!r} {why}",
            where=FILE,
            remedy="a small letter, then small letters, digits, - or _, at most 32; like r5b",
        )


def _check_tree(rounds: Mapping[str, Round]) -> None:
    for key, entry in rounds.items():
        if entry.parent not in rounds and entry.parent != FIRST:
            raise _unknown_round(
                "parent", entry.parent, [FIRST, *(r for r in rounds if r != key)], key
            )
        if entry.like is not None and entry.like not in rounds:
            raise _unknown_round("round to be like", entry.like, list(rounds), key)
    for key in rounds:
        _check_chain(rounds, key, "parent")
        _check_chain(rounds, key, "like")


def _check_chain(rounds: Mapping[str, Round], key: str, field: str) -> None:
    seen = [key]
    here = getattr(rounds[key], field)
    while here in rounds:
        seen.append(here)
        if here == key:
            raise RoundError(
                f"the rounds run in a circle by {field}: {' -> '.join(seen)}",
                where=f"{FILE}: {key}",
                remedy=f"give one of them another {field}",
            )
        if seen.count(here) > 1:
            return
        here = getattr(rounds[here], field)


def _unknown_round(kind: str, name: str, names: Sequence[str], key: str) -> QueenError:
    return unknown(kind, name, names, f"{FILE}: {key}")


def round_values(root: Path, key: str) -> dict[str, Any]:
    """The resolved values of a round: parent, seed and each step's params.

    Raises:
        RoundError: no such round, or one that `queen configure` has not resolved yet.
    """
    rounds = read_rounds(root)
    if key not in rounds:
        raise unknown("round", key, rounds, FILE)
    entry = rounds[key]
    if not entry.resolved:
        raise RoundError(
            "the round has no values yet", where=f"{FILE}: {key}", remedy="run `queen configure`"
        )
    return {"parent": entry.parent, "seed": entry.seed, **copy.deepcopy(dict(entry.values))}


def ordered(rounds: Mapping[str, Round]) -> list[str]:
    """Rounds with every parent before its children, else in the file's order."""
    done: list[str] = []

    def visit(key: str) -> None:
        if key in rounds and key not in done:
            visit(rounds[key].parent)
            done.append(key)

    for key in rounds:
        visit(key)
    return done


def models_in_order(rounds: Mapping[str, Round]) -> list[str]:
    """Every model of the project, parents first."""
    return [*BASES, *ordered(rounds)]


def resolve(root: Path) -> dict[str, tuple[Change, ...]]:
    """Write out the values of every round that has no verdict; returns what changed, by round.

    Values come from the `round` section of params.yaml, or from the round named by `like`, with
    the round's own `set` on top. A round of rounds draws the roots after theirs (`sample.skip`),
    unless it is like one of another line, whose roots it shares. A round that was judged (and not
    reopened) keeps its values.

    Raises:
        RoundError, ParamsError: see `read_rounds`; a key in `set` that no step has.
    """
    with _writing(root):
        return _resolve_file(root)


@contextlib.contextmanager
def _writing(root: Path) -> Iterator[None]:
    """The file is read, changed and written by one alone: no round of another's is lost."""
    with exclusive(lock_folder(root) / "rounds.lock"):
        yield


def _resolve_file(root: Path) -> dict[str, tuple[Change, ...]]:
    rounds = read_rounds(root)
    fresh = _resolve_all(rounds, read_params(root), read_verdicts(root))
    changed = {
        key: tuple(differences(_plain(rounds[key]), _plain(entry))) for key, entry in fresh.items()
    }
    _write(root, fresh)
    return {key: changes for key, changes in changed.items() if changes}


def _resolve_all(
    rounds: Mapping[str, Round], params: Mapping[str, Any], verdicts: Verdicts
) -> dict[str, Round]:
    done: dict[str, Round] = {}

    def visit(key: str, wanting: tuple[str, ...] = ()) -> Round:
        if key in wanting:
            raise RoundError(
                f"the rounds run in a circle by parent and like: {' -> '.join([*wanting, key])}",
                where=f"{FILE}: {key}",
                remedy="give one of them another parent or like",
            )
        if key not in done:
            entry = rounds[key]
            if verdicts.judged(key) and entry.resolved:
                done[key] = entry
            else:
                below = (*wanting, key)
                base = visit(entry.like, below) if entry.like else None
                parent = visit(entry.parent, below) if _draws_on(rounds, entry) else None
                done[key] = _resolved(entry, base, parent, params)
        return done[key]

    for key in rounds:
        visit(key)
    return {key: done[key] for key in rounds}


def _draws_on(rounds: Mapping[str, Round], entry: Round) -> bool:
    """Whether a round takes the roots after its parent's: not if it is like one of another line."""
    line = [key for key, _ in _up(rounds, entry.parent)]
    return bool(line) and (entry.like is None or entry.like in line)


def _up(rounds: Mapping[str, Round], key: str) -> Iterator[tuple[str, Round]]:
    """A round and its ancestors that are rounds."""
    while key in rounds:
        yield key, rounds[key]
        key = rounds[key].parent


def _resolved(
    entry: Round, base: Round | None, parent: Round | None, params: Mapping[str, Any]
) -> Round:
    if base is None:
        values = {"seed": int(params.get("seed", 0)), **copy.deepcopy(dict(params["round"]))}
    else:
        values = {"seed": base.seed, **copy.deepcopy(dict(base.values))}
    if parent is not None and "sample" in parent.values:
        drawn = parent.values["sample"]
        values["sample"]["skip"] = int(drawn.get("skip", 0)) + int(drawn.get("roots", 0))
    for key, value in _leaves(entry.set, values):
        checked = typed_value(values, key, value, str(value))
        _put(values, key, checked)
    seed = values.pop("seed")
    return Round(entry.key, entry.parent, seed, entry.like, entry.set, values)


def _leaves(own: Mapping[str, Any], defaults: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a nested `set` by dotted key, down to where the defaults hold no mapping."""
    for name, value in own.items():
        below = defaults.get(name) if isinstance(defaults, Mapping) else None
        if isinstance(value, Mapping) and (below is None or isinstance(below, Mapping)):
            yield from _leaves(value, below or {}, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _put(tree: dict[str, Any], key: str, value: Any) -> None:
    *path, last = key.split(".")
    for part in path:
        tree = tree.setdefault(part, {})
    tree[last] = value


def add_round(
    root: Path,
    key: str,
    *,
    parent: str,
    like: str | None = None,
    settings: Sequence[str] = (),
    seed: int | None = None,
) -> Round:
    """Add a round to the tree and resolve its values.

    Args:
        root: the project.
        key: the new name.
        parent: `pawn1` or a round.
        like: a round whose values and seed it takes, so that shards both share are found again.
        settings: `step.param=value` each.
        seed: another seed than that of `like`, or than the project's.

    Raises:
        RoundError, ParamsError: the name is taken or bad, parent or like unknown, a wrong setting.
    """
    check_name(key)
    with _writing(root):
        rounds = read_rounds(root)
        if key in rounds:
            raise RoundError(f"there is a round {key!r}", where=FILE, remedy="choose another name")
        own: dict[str, Any] = {} if seed is None else {"seed": seed}
        values = _round_defaults(root, rounds, like)
        for name, value in (_setting(item, values) for item in settings):
            _put(own, name, value)
        rounds[key] = Round(key, parent, None, like, own, {})
        _check_tree(rounds)
        fresh = _resolve_all(rounds, read_params(root), read_verdicts(root))
        _write(root, {**rounds, key: fresh[key]})
        return fresh[key]


def _round_defaults(root: Path, rounds: Mapping[str, Round], like: str | None) -> dict[str, Any]:
    if like is not None and like in rounds and rounds[like].resolved:
        return {"seed": rounds[like].seed, **rounds[like].values}
    params = read_params(root)
    return {"seed": int(params.get("seed", 0)), **params["round"]}


def _setting(item: str, values: Mapping[str, Any]) -> tuple[str, Any]:
    key, text = split_override(item)
    if key.split(".")[0] not in (*STEPS, "seed"):
        raise unknown("param", key, list(dotted_keys(values)), "queen round add --set")
    return key, typed_value(values, key, parse_yaml(text, key), text)


def _plain(entry: Round) -> dict[str, Any]:
    head: dict[str, Any] = {"parent": entry.parent}
    if entry.like:
        head["like"] = entry.like
    if entry.seed is not None:
        head["seed"] = entry.seed
    if entry.set:
        head["set"] = copy.deepcopy(dict(entry.set))
    return {**head, **{step: entry.values[step] for step in STEPS if step in entry.values}}


def _write(root: Path, rounds: Mapping[str, Round]) -> None:
    table = {key: _plain(entry) for key, entry in rounds.items()}
    write_text(root / FILE, HEADER + dump_yaml({"rounds": table}, sort=False))
