"""The import graph and the sizes that the design promises."""

from __future__ import annotations

import ast
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
FREE = {"errors"}


def imported(path: Path) -> set[str]:
    """Modules a file imports anywhere, as dotted names."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module)
    return names


def modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("part", sorted(BELOW))
def test_queen_imports_only_downwards(part: str) -> None:
    allowed = BELOW[part] | {part} | FREE
    for path in modules(f"queen/{part}"):
        for name in imported(path):
            if name.startswith("queen."):
                assert name.split(".")[1] in allowed, f"{path.relative_to(ROOT)} imports {name}"
            assert name.split(".")[0] not in ("stages", "flows"), path


def test_stages_know_no_scheduler_no_tracker_no_command_line() -> None:
    for path in modules("stages"):
        tops = {name.split(".")[0] for name in imported(path)}
        assert not tops & {"prefect", "mlflow", "argparse", "typer", "flows"}, path


def test_flows_stand_on_stages_and_lineage() -> None:
    for path in modules("flows"):
        assert "queen.cli" not in imported(path), path


def test_every_file_stays_under_400_lines() -> None:
    for folder in ("queen", "stages", "flows"):
        for path in modules(folder):
            filled = [line for line in path.read_text().splitlines() if line.strip()]
            assert len(filled) <= 400, f"{path.relative_to(ROOT)} has {len(filled)} lines"


def test_packages_import_nothing_heavy_by_themselves() -> None:
    heavy = {"torch", "transformers", "mlflow", "prefect", "great_expectations", "deepspeed"}
    for folder in ("queen", "stages", "flows"):
        for path in (ROOT / folder).rglob("__init__.py"):
            assert not {n.split(".")[0] for n in imported(path)} & heavy, path
