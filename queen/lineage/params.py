"""Params: the Hydra tree under params/ composed into the params.yaml that DVC watches.

Group choices (`profile=mini`, `decoder=scratch`) go through Hydra; values (`positions.cap=500`)
are checked against what the tree holds, so that a typo or a wrong type is named before anything
runs. The choices in force stand in the head of params.yaml: `queen configure seed=3` comes on top
of them, and naming a profile starts afresh.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from queen.errors import QueenError
from queen.lineage.yamlio import YamlError, dump_yaml, parse_yaml, read_yaml, write_text

PARAMS_FILE = "params.yaml"
TREE = "params"
HEADER = "# written by queen configure; choose with it, or edit params/ and run it again\n"
CHOSEN = "# choices: "
STEPS = ("sample", "explain", "recurse", "consolidate", "filter", "train", "evaluate")


class ParamsError(QueenError):
    """A param that does not exist, or a value of the wrong type."""


@dataclass(frozen=True)
class Change:
    """One value that is not what it was; None where there was, or is, no such key."""

    key: str
    before: Any
    after: Any


@dataclass(frozen=True)
class Configured:
    """The outcome of `configure`: the params, the choices in force, what changed in params.yaml."""

    params: dict[str, Any]
    choices: tuple[str, ...]
    changes: tuple[Change, ...]


def configure(
    root: Path,
    overrides: Sequence[str] = (),
    check: Callable[[Mapping[str, Any]], None] | None = None,
) -> Configured:
    """Compose params/ with the given choices and write params.yaml.

    Args:
        root: the project.
        overrides: `key=value` each; a step of a round (`filter.max_loss=0.05`) means the defaults
            of rounds. Without `profile=` they come on top of the choices in force.
        check: called with the params before anything is written; raises to refuse them.

    Raises:
        ParamsError: an unknown group, option or key (the nearest real one is named), a wrong type.
    """
    choices = _merge_choices(chosen(root), overrides)
    params = compose(root, choices)
    if check is not None:
        check(params)
    changes = tuple(differences(_params_before(root), params))
    head = HEADER + (f"{CHOSEN}{dump_list(choices)}\n" if choices else "")
    write_text(root / PARAMS_FILE, head + dump_yaml(params))
    return Configured(params, choices, changes)


def compose(root: Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The resolved params of a project as plain values; writes nothing."""
    groups = option_names(root / TREE)
    picked, values = [], []
    for item in overrides:
        key, text = split_override(item)
        if key in groups:
            _require_option(key, text, groups[key])
            picked.append(f"{key}={text}")
        else:
            values.append((full_key(key), text))
    config = _hydra_compose(root / TREE, picked)
    from omegaconf import OmegaConf

    defaults = _plain(config)
    for key, text in values:
        value = typed_value(defaults, key, parse_yaml(text, key), text, sorted(groups))
        OmegaConf.update(config, key, value, force_add=True)
    return _plain(config)


def _plain(config: Any) -> dict[str, Any]:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        resolved = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise ParamsError(
            str(error).splitlines()[0], where=TREE, remedy="give the value it refers to"
        ) from error
    assert isinstance(resolved, dict)
    return {str(key): value for key, value in resolved.items()}


def _hydra_compose(tree: Path, picked: list[str]) -> Any:
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    try:
        with initialize_config_dir(config_dir=str(tree.resolve()), version_base="1.3"):
            return hydra_compose(config_name="config", overrides=picked)
    except (HydraException, OmegaConfBaseException) as error:
        raise ParamsError(
            str(error).splitlines()[0], where=str(tree), remedy="mend the files under params/"
        ) from error


def option_names(tree: Path) -> dict[str, list[str]]:
    """The groups of the tree and the options of each."""
    if not (tree / "config.yaml").is_file():
        raise ParamsError(
            "config.yaml is missing", where=str(tree), remedy="restore params/ from git"
        )
    folders = sorted(p for p in tree.iterdir() if p.is_dir())
    return {p.name: sorted(f.stem for f in p.glob("*.yaml")) for p in folders}


def split_override(item: str) -> tuple[str, str]:
    """`key=value` as its two halves. Raises ParamsError if it is something else."""
    key, sign, text = item.partition("=")
    if not sign or not key.strip() or key != key.strip() or key[0] in "+~":
        raise ParamsError(
            f"{item!r} is not of the form key=value",
            where="queen configure",
            remedy="write for example profile=mini or filter.max_loss=0.05",
        )
    return key, text


def full_key(key: str) -> str:
    """A step's key named alone means the defaults of rounds: filter.x is round.filter.x."""
    return f"round.{key}" if key.split(".")[0] in STEPS else key


def typed_value(
    defaults: Mapping[str, Any], key: str, value: Any, text: str, also: Iterable[str] = ()
) -> Any:
    """The value as the type that the key has by default.

    Args:
        defaults: the tree the key must be in; below an empty mapping any key is welcome.
        key: dotted.
        value: as parsed from `text`.
        also: further names to suggest (groups).

    Raises:
        ParamsError: the key is unknown (nearest named) or the value of another type.
    """
    found, default = _lookup(defaults, key)
    if not found:
        raise unknown("param", key, [*dotted_keys(defaults), *also], PARAMS_FILE)
    if isinstance(value, float) and math.isnan(value):
        raise _wrong_type(key, default, value)
    if default is None or (isinstance(default, str) and isinstance(value, str | None)):
        return value
    if isinstance(default, str) and not isinstance(value, dict | list):
        return text
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not type(default) or isinstance(default, dict):
        raise _wrong_type(key, default, value)
    if isinstance(value, list):
        _check_items(key, default, value)
    return value


def _check_items(key: str, default: list[Any], value: list[Any]) -> None:
    kinds = {type(item) for item in default}
    if len(kinds) != 1:
        return
    for item in value:
        if type(item) not in kinds and not (kinds == {float} and type(item) is int):
            raise _wrong_type(key, default, value)


def _wrong_type(key: str, default: Any, value: Any) -> ParamsError:
    remedy = f"give a value like the default, {default!r}"
    if isinstance(default, dict):
        remedy = f"set one of its keys: {', '.join(sorted(map(str, default)))}"
    return ParamsError(
        f"expected {type(default).__name__}, found {value!r} ({type(value).__name__})",
        where=key,
        remedy=remedy,
    )


def _lookup(tree: Mapping[str, Any], key: str) -> tuple[bool, Any]:
    node: Any = tree
    for part in key.split("."):
        if not isinstance(node, Mapping):
            return False, None
        if not node and node is not tree:
            return True, None
        if part not in node:
            return False, None
        node = node[part]
    return True, node


def dotted_keys(tree: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Every key of a nested mapping, dotted, inner nodes too."""
    for name, value in tree.items():
        yield f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from dotted_keys(value, f"{prefix}{name}.")


def unknown(kind: str, name: str, names: Iterable[str], where: str) -> ParamsError:
    """The error for a name that does not exist, naming the nearest that does."""
    known = sorted(set(names))
    near = nearest(name, known)
    remedy = f"did you mean {near!r}?" if near else f"known: {', '.join(known[:12])}"
    return ParamsError(f"unknown {kind} {name!r}", where=where, remedy=remedy)


def nearest(name: str, names: Sequence[str]) -> str | None:
    """The real name nearest to a mistyped one: by the whole, else by its last part."""
    whole = difflib.get_close_matches(name, names, n=1, cutoff=0.75)
    if whole:
        return whole[0]
    tail = name.rsplit(".", 1)[-1]
    tails = difflib.get_close_matches(tail, [n.rsplit(".", 1)[-1] for n in names], n=1)
    ranked = sorted(
        (n for n in names if tails and n.rsplit(".", 1)[-1] == tails[0]),
        key=lambda n: -difflib.SequenceMatcher(None, n, name).ratio(),
    )
    return ranked[0] if ranked else None


def _require_option(group: str, option: str, options: list[str]) -> None:
    if option not in options:
        near = difflib.get_close_matches(option, options, n=1)
        hint = f"did you mean {group}={near[0]}? " if near else ""
        raise ParamsError(
            f"unknown {group} {option!r}",
            where=f"{TREE}/{group}",
            remedy=f"{hint}there are: {', '.join(options)}",
        )


def _merge_choices(before: Sequence[str], overrides: Sequence[str]) -> tuple[str, ...]:
    fresh = any(split_override(item)[0] == "profile" for item in overrides)
    merged: dict[str, str] = {}
    for item in [*([] if fresh else before), *overrides]:
        key, text = split_override(item)
        below = f"{full_key(key)}."
        merged = {k: v for k, v in merged.items() if k + "." != below and not k.startswith(below)}
        merged[full_key(key)] = text
    return tuple(f"{key}={text}" for key, text in merged.items())


def chosen(root: Path) -> tuple[str, ...]:
    """The choices in force, from the head of params.yaml; none if there is no such file."""
    path = root / PARAMS_FILE
    if not path.is_file():
        return ()
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith(CHOSEN):
            return tuple(map(str, parse_yaml(line[len(CHOSEN) :], str(path))))
        if not line.startswith("#"):
            break
    return ()


def dump_list(items: Sequence[str]) -> str:
    """A list on one line, readable as YAML."""
    import json

    return json.dumps(list(items), ensure_ascii=False)


def _params_before(root: Path) -> dict[str, Any]:
    try:
        return read_yaml(root / PARAMS_FILE)
    except YamlError:
        return {}


def differences(
    before: Mapping[str, Any], after: Mapping[str, Any], prefix: str = ""
) -> Iterator[Change]:
    """The values that differ between two nested mappings, by dotted key."""
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from differences(old, new, f"{prefix}{name}.")
        elif old != new or type(old) is not type(new):
            yield Change(f"{prefix}{name}", old, new)


def read_params(root: Path) -> dict[str, Any]:
    """The resolved params. Raises YamlError if `queen configure` never ran."""
    return read_yaml(root / PARAMS_FILE, remedy="run `queen configure`")
