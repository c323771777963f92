"""YAML as the project reads and writes it: floats as people write them, no key twice, whole."""

from __future__ import annotations

import os
import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from queen.errors import QueenError


class YamlError(QueenError):
    """A YAML file that is missing or cannot be read."""


class _Loader(yaml.SafeLoader):
    """SafeLoader that reads 1e-3 as a float (YAML 1.2) and refuses a key given twice."""


def _mapping(loader: _Loader, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)  # type: ignore[no-untyped-call]
        if not isinstance(key, Hashable):
            raise yaml.constructor.ConstructorError(
                None, None, f"{key!r} cannot be a key", key_node.start_mark
            )
        if key in seen:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {key!r} stands there twice", key_node.start_mark
            )
        seen.add(key)
    return yaml.SafeLoader.construct_mapping(loader, node, deep=True)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
_FLOAT = re.compile(
    r"""^[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?
        |[0-9][0-9_]*[eE][-+]?[0-9]+
        |\.[0-9_]+(?:[eE][-+]?[0-9]+)?
        |\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$""",
    re.VERBOSE,
)
_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in pairs if tag != "tag:yaml.org,2002:float"]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))


def parse_yaml(text: str, where: str) -> Any:
    """Parse YAML text. Raises YamlError naming `where`, line and fault."""
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise YamlError(_first_line(error), where=where, remedy="mend the YAML") from None
    except (ValueError, RecursionError) as error:  # no date, a number of too many digits, too deep
        what = f"not YAML: {str(error)[:200]}"
        raise YamlError(what, where=where, remedy="mend the YAML, or put it in quotes") from None


def _first_line(error: yaml.YAMLError) -> str:
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    mark = getattr(error, "problem_mark", None)
    return f"not YAML: {problem}" + (f" (line {mark.line + 1})" if mark else "")


def read_yaml(path: Path, remedy: str = "") -> dict[str, Any]:
    """A YAML file that holds a mapping. Raises YamlError if it is missing or something else."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise YamlError("the file is missing", where=str(path), remedy=remedy) from None
    except UnicodeDecodeError as error:
        raise YamlError(f"not UTF-8: {error}", where=str(path), remedy=remedy) from None
    value = parse_yaml(text, str(path))
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise YamlError(
            f"expected a mapping, found {type(value).__name__}", where=str(path), remedy=remedy
        )
    return value


class _Dumper(yaml.SafeDumper):
    """SafeDumper that writes a value out wherever it stands, never as an alias."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    """Quote what YAML takes for line breaks: PyYAML writes them plain and reads them as spaces."""
    style = '"' if any(mark in value for mark in "\x85\u2028\u2029") else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style)


_Dumper.add_representer(str, _text)


def dump_yaml(value: Any, *, sort: bool = True) -> str:
    """Block-style YAML; with `sort`, keys in order, so that equal values give equal text."""
    text: str = yaml.dump(
        value,
        Dumper=_Dumper,
        sort_keys=sort,
        default_flow_style=False,
        allow_unicode=True,
        width=100,
    )
    return text


def write_text(path: Path, text: str) -> bool:
    """Write a text file whole, by rename; returns whether its content changed.

    A file that already says the same is left alone, so that its time stays what it was.
    """
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(temporary, path)
    return True
