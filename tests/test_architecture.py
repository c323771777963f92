"""The import graph and the sizes that the design promises."""

from __future__ import annotations

import ast
import sys
from collections.abc import Container, Iterable, Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BELOW = {
    "games": set(),
    "positions": {"games"},
    "engines": {"games", "positions"},
    "networks": {"games", "positions", "engines"},
    "language": {"games", "positions", "engines", "networks"},
    "search": {"games", "positions", "engines", "networks", "language", "generation"},
    "training": {"games", "positions", "engines", "networks", "language"},
    "generation": {"games", "positions", "engines", "networks", "language"},
    "evaluation": {
        "games",
        "positions",
        "engines",
        "networks",
        "language",
        "search",
        "training",
        "generation",
    },
    "lineage": set(),
}
BELOW["commands"] = set(BELOW)  # what people type stands on everything but queen/cli.py
FREE = {"children", "errors", "memory", "__version__"}
# Modules of queen in no package.
ALONE = {"__init__", "children", "errors", "memory", "bootstrap", "cli"}
ABOVE_STAGES = ("flows", "queen.commands", "queen.cli", "queen.bootstrap")
COMMAND_LINE = {"argparse", "typer", "click"}


def statements(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports anywhere in a file, but those for the type checker alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for other in node.orelse:
                yield from statements(other)
        else:
            yield from statements(node)


def named(node: ast.AST) -> set[str]:
    """What an import takes, as dotted names: `a.b` and `a.b.c` of `from a.b import c`."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"line {node.lineno}: relative imports hide where they lead"
        module = node.module or ""
        return {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return set()


def imported(path: Path) -> set[str]:
    """All that a file imports anywhere, as dotted names."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return {name for node in nodes for name in named(node)}


def within(name: str, parts: Iterable[str]) -> bool:
    """Whether a dotted name is one of the parts, or in one."""
    return any(name == part or name.startswith(f"{part}.") for part in parts)


def modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def test_every_part_of_queen_stands_in_the_table() -> None:
    queen = ROOT / "queen"
    assert {path.parent.name for path in queen.glob("*/__init__.py")} == set(BELOW)
    assert {path.parts[len(queen.parts)] for path in queen.glob("*/**/*.py")} == set(BELOW)
    assert {path.stem for path in queen.glob("*.py")} == ALONE


@pytest.mark.parametrize("part", sorted(BELOW))
def test_queen_imports_only_downwards(part: str) -> None:
    allowed = BELOW[part] | {part} | FREE
    for path in modules(f"queen/{part}"):
        for name in imported(path):
            if name.startswith("queen."):
                assert name.split(".")[1] in allowed, f"{path.relative_to(ROOT)} imports {name}"
            if part != "commands":
                assert not within(name, ("stages", "flows")), path


def test_modules_of_queen_in_no_package() -> None:
    """All but the command need nothing that is installed, nor anything of ours but the errors."""
    allowed = {"cli": {"commands"}}
    for path in (ROOT / "queen").glob("*.py"):
        for name in imported(path):
            top, _, rest = name.partition(".")
            if top == "queen" and rest:
                assert rest.split(".")[0] in allowed.get(path.stem, set()) | FREE, (
                    f"{path} imports {name}"
                )
            elif path.stem != "cli":
                assert top in {"queen", *sys.stdlib_module_names}, f"{path} imports {name}"


def test_stages_know_no_scheduler_no_tracker_no_command_line() -> None:
    above = {"prefect", "mlflow", *COMMAND_LINE, *ABOVE_STAGES}
    for path in modules("stages"):
        for name in imported(path):
            assert not within(name, above), f"{path.relative_to(ROOT)} imports {name}"


def test_flows_stand_on_stages_and_lineage() -> None:
    for path in modules("flows"):
        for name in imported(path):
            where = f"{path.relative_to(ROOT)} imports {name}"
            assert not within(name, COMMAND_LINE), where
            if within(name, ("queen",)):
                assert within(name, ("queen.lineage", "queen.errors")), where


def test_nothing_stands_on_itself() -> None:
    """No circle among modules, not even by imports inside functions."""
    paths = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for folder in ("queen", "stages", "flows")
        for path in modules(folder)
    }
    below = {
        module: {
            name
            for node in statements(ast.parse(path.read_text()))
            for name in leads_to(node, paths)
            if name != module
        }
        for module, path in paths.items()
    }
    tuple(TopologicalSorter(below).static_order())  # raises CycleError, which names the circle


def leads_to(node: ast.Import | ast.ImportFrom, known: Container[str]) -> set[str]:
    """The modules of ours that an import takes; a package only where no module of it is named."""
    found = {name for name in named(node) if name in known}
    return {name for name in found if not any(o.startswith(f"{name}.") for o in found)}


def test_every_file_stays_under_400_lines() -> None:
    for folder in ("queen", "stages", "flows", "tools"):
        for path in modules(folder):
            filled = [line for line in path.read_text().splitlines() if line.strip()]
            assert len(filled) <= 400, f"{path.relative_to(ROOT)} has {len(filled)} lines"


def test_packages_import_nothing_heavy_by_themselves() -> None:
    heavy = {"torch", "transformers", "mlflow", "prefect", "great_expectations", "deepspeed"}
    for folder in ("queen", "stages", "flows"):
        for path in (ROOT / folder).rglob("__init__.py"):
            assert not {n.split(".")[0] for n in imported(path)} & heavy, path
