"""An audit and an example's trail as people read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from queen.games.chess.notation import san_line
from queen.games.chess.position import Position
from stages.audit.trail import Branch, Choice, Statement, Trail, game_board
from stages.audit.whole import Audit

if TYPE_CHECKING:
    from rich.console import Console

WHO = {
    "engine": "an engine fact",
    "rules": "the rules of a finished game",
    "child": "the model's text about the position after {}",
    "below": "what was folded for the position after {}",
}


def show_audit(audit: Audit, console: Console) -> None:
    """What was checked, what could not be, what does not hold."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("Artifact")
    table.add_column("Content")
    for name, content in audit.artifacts:
        bad = any(problem.startswith(f"{name}:") for problem in audit.problems)
        table.add_row(Text(name, style="red" if bad else ""), content[:12])
    console.print(table)
    console.print(Text("checked: " + ", ".join(f"{n} {w}" for w, n in audit.checked.items())))
    for note in audit.notes:
        console.print(Text(f"note: {note}", style="yellow"))
    for problem in audit.problems:
        console.print(Text(f"does not hold: {problem}", style="red"))
    if audit.holds:
        console.print(Text(f"{audit.key}: everything holds", style="bold green"))
    else:
        count = len(audit.problems)
        console.print(Text(f"{audit.key}: {count} thing(s) do not hold", style="bold red"))


def show_trail(trail: Trail, console: Console) -> None:
    """The example as a tree, its text first and its game last."""
    state = "kept" if trail.kept else f"dropped: {trail.dropped}"
    top = Tree(Text(f"example {trail.pid} of {trail.key} ({state})", style="bold"))
    top.add(Text(trail.fen, style="dim"))
    _text(top, trail)
    _comparison(top, trail)
    _statements(top, trail)
    grown = top.add(Text("tree: every position explained below it", style="bold"))
    _branch(grown, trail.tree, trail)
    if trail.ancestors:
        above = top.add(Text("its place in the tree of its root", style="bold"))
        for branch in trail.ancestors:
            _node(above, branch)
    _root(top, trail)
    console.print(top)


def _text(top: Tree, trail: Trail) -> None:
    """The text before and after, as the model reads and writes it."""
    after = top.add(Text("text", style="bold"))
    after.add(Text(trail.text))
    before = top.add(Text("what the model said of the position before", style="bold"))
    before.add(Text(trail.old_text or "nothing that was kept", style="dim"))


def _comparison(top: Tree, trail: Trail) -> None:
    """Where the new line leaves the old one, and what the engine holds of it."""
    here = top.add(Text("filter", style="bold"))
    here.add(f"new line {_line(trail.fen, trail.compared['line'])}")
    here.add(f"old line {_line(trail.fen, trail.compared['old_line']) or 'none'}")
    at = trail.compared["differs_at"]
    if at is None:
        here.add("the lines do not differ" if trail.compared["old_line"] else "nothing to compare")
    else:
        old, new = trail.compared["old_value"], trail.compared["new_value"]
        here.add(f"they part at ply {at + 1}: old {_share(old)}, new {_share(new)}")
    params = trail.thresholds.get("filter")
    if params:
        here.add(Text(f"max_loss {params['max_loss']}; {_judge(params)}", style="dim"))


def _statements(top: Tree, trail: Trail) -> None:
    here = top.add(Text(f"statements ({_model_share(trail)})", style="bold"))
    for number, statement in enumerate(trail.statements, start=1):
        one = here.add(Text(f"{number}. {statement.told}"))
        one.add(Text(_origin(trail, statement), style="green" if statement.model else "cyan"))
        for hop in statement.hops:
            where = _line(_root_fen(trail), " ".join(hop.after))
            one = one.add(Text(f"{hop.origin} after {where}: {hop.text}", style="dim"))
    if trail.cut:
        reasons = ", ".join(f"{reason} {n}" for reason, n in sorted(trail.cut.items()))
        here.add(Text(f"left out of what the children said: {reasons}", style="dim"))


def _model_share(trail: Trail) -> str:
    model = sum(statement.model for statement in trail.statements)
    return f"{model} of {len(trail.statements)} written by the model"


def _origin(trail: Trail, statement: Statement) -> str:
    move = _line(trail.fen, statement.move)
    return f"from {WHO[statement.origin].format(move)}"


def _branch(here: Tree, branch: Branch, trail: Trail) -> None:
    node = _node(here, branch)
    for child in branch.children:
        _branch(node, child, trail)


def _node(here: Tree, branch: Branch) -> Tree:
    """A position: its move, the engine's view of it, the model's own move, its candidates."""
    title = Text(branch.san or "root", style="bold")
    if branch.best is not None:
        title.append(f"  engine {branch.best:.2f}, best {branch.best_move}", style="not bold")
    node = here.add(title)
    if branch.text is not None:
        node.add(Text(_spoken(branch), style="yellow" if branch.mistake else ""))
    if branch.stopped:
        node.add(Text(f"no root of its own: {branch.stopped}", style="dim"))
    for choice in branch.choices:
        node.add(Text(_choice(choice), style="dim"))
    if branch.replaced:
        node.add(Text(f"all were mistakes: {branch.replaced} gave way to the engine's best"))
    return node


def _spoken(branch: Branch) -> str:
    if branch.reason:
        return f"the model's text could not be read: {branch.reason}"
    return f"the model's own move {branch.said}{' is a mistake' if branch.mistake else ''}"


def _choice(choice: Choice) -> str:
    value = _share(choice.value)
    log = "engine's" if choice.logprob is None else f"log-prob {choice.logprob:.2f}"
    verdict = ", a mistake" if choice.mistake else ""
    source = f", line from {choice.line_from}" if choice.line_from else ""
    return f"candidate {choice.san} {value} ({log}{verdict}): {choice.line}{source}"


def _root(top: Tree, trail: Trail) -> None:
    game = trail.game
    _, before, after = game_board(game)
    here = top.add(Text(f"root {trail.root}, from {game.source} games", style="bold"))
    rated = " - ".join(str(elo) if elo is not None else "?" for elo in _elos(trail))
    result = f", {game.result}, rated {rated}" if game.result else ""
    ply = "?" if game.ply is None else game.ply
    here.add(f"game {game.game_id}, ply {ply}{result}")
    if game.file:
        here.add(Text(f"{game.file}, offset {game.offset}, split {game.split}", style="dim"))
    here.add(Text(before or "from the game's start"))
    if after:
        here.add(Text(f"went on {after}", style="dim"))
    made = top.add(Text("made by", style="bold"))
    made.add(Text(f"{trail.model}; {_engine(trail.engine)}"))
    for line in _thresholds(trail.thresholds):
        made.add(Text(line, style="dim"))
    for name, content in trail.artifacts.items():
        made.add(Text(f"{name} {content[:12]}", style="dim"))


def _elos(trail: Trail) -> tuple[int | None, int | None]:
    return trail.game.white_elo, trail.game.black_elo


def _engine(engine: Mapping[str, Any]) -> str:
    return " ".join(str(engine.get(name, "")) for name in ("name", "version")).strip() or "engine"


def _thresholds(thresholds: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for stage, params in thresholds.items():
        judge = f"; {_judge(params)}" if "judge" in params else ""
        limits = params.get("limits") or params.get("rules") or {}
        own = {k: v for k, v in {**params, **limits}.items() if not isinstance(v, dict)}
        yield f"{stage}: {', '.join(f'{k} {v}' for k, v in own.items())}{judge}"


def _judge(params: Mapping[str, Any]) -> str:
    judge = params["judge"]
    close = f", {judge['close_nodes']} where close" if judge["close_nodes"] else ""
    return f"mistake from {judge['mistake']}, judged at {judge['nodes']} nodes{close}"


def _share(value: float | None) -> str:
    return "not known" if value is None else f"{value:.2f}"


def _root_fen(trail: Trail) -> str:
    return trail.ancestors[0].fen if trail.ancestors else trail.fen


def _line(fen: str, moves: str | None) -> str:
    """UCI moves from a position as SAN."""
    return san_line(Position(fen).board(), moves.split()) if moves else ""
