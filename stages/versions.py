"""The VERSION of each stage, beside a digest of the code it can import.

A stage's outputs are known by its VERSION. The digest (syntax trees without comments and
docstrings) changes whenever the code does; somebody then says whether outputs change
(`queen version STAGE --bump`) or not (`--same`).
"""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Iterator
from pathlib import Path

import yaml

from queen.errors import QueenError

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "stages" / "versions.yaml"
PACKAGES = ("queen", "stages")
HEADER = "# VERSION of each stage, and a digest of the code it can import: see `queen version`.\n"


def version_of(stage: str) -> int:
    """The VERSION of a stage. Raises QueenError if nobody has given it one."""
    table = read_table()
    if stage not in table:
        raise QueenError(
            f"stage {stage!r} has no version",
            where=str(TABLE),
            remedy=f"say `queen version {stage} --bump`",
        )
    return int(table[stage]["version"])


def read_table() -> dict[str, dict[str, int | str]]:
    if not TABLE.is_file():
        return {}
    return yaml.safe_load(TABLE.read_text()) or {}


def stale() -> list[str]:
    """Stages whose code changed since somebody last said what that means for their outputs."""
    from stages.registry import NAMES

    table = read_table()
    return [n for n in NAMES if table.get(n, {}).get("code") != code_digest(n)]


def settle(stage: str, *, bump: bool) -> None:
    """Record the present code of a stage; with `bump`, its outputs are said to change."""
    table = read_table()
    version = int(table.get(stage, {"version": 0})["version"])
    table[stage] = {
        "version": version + 1 if bump or version == 0 else version,
        "code": code_digest(stage),
    }
    TABLE.write_text(HEADER + yaml.safe_dump(dict(sorted(table.items())), sort_keys=True))


def code_digest(stage: str) -> str:
    """Digest of the syntax trees of every module of ours that the stage's module can import."""
    module = "stages.evaluate" if stage == "judge" else f"stages.{stage}"
    digest = hashlib.sha256()
    for name in sorted(_reach(module)):
        digest.update(name.encode() + b"\0" + _tree(name).encode())
    return digest.hexdigest()[:16]


def _reach(module: str) -> set[str]:
    seen: set[str] = set()
    ahead = [module]
    while ahead:
        name = ahead.pop()
        if name not in seen and _file_of(name) is not None:
            seen.add(name)
            ahead.extend(_imports(name))
    return seen


def _file_of(module: str) -> Path | None:
    base = ROOT.joinpath(*module.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


@functools.cache
def _parsed(module: str) -> ast.Module:
    path = _file_of(module)
    assert path is not None
    return ast.parse(path.read_text())


@functools.cache
def _imports(module: str) -> tuple[str, ...]:
    """Modules of ours named by import statements anywhere in a module."""
    return tuple(sorted(set(_named(_parsed(module)))))


def _named(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        yield from (n for n in names if n.split(".")[0] in PACKAGES)


@functools.cache
def _tree(module: str) -> str:
    tree = ast.parse(ast.unparse(_parsed(module)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                node.body = node.body[1:]
    return ast.dump(tree)
