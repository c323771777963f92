"""Engine claims are true, false or beyond what is known."""

from __future__ import annotations

import chess
import pytest

from queen.engines.classical import ClassicalTerms
from queen.engines.table import TERMS as TABLE_TERMS
from queen.engines.table import Row
from queen.language.engine_facts import EngineFacts, Node, engine_holds, term_table
from queen.language.ground import Ground
from queen.language.vocabulary import ENGINE_KINDS, TERMS, Claim

GROUND = Ground(chess.Board())
ROOT = Node(0.554, "e2e4", ("e2e4", "e7e5", "g1f3"), {"d2d4": 0.551, "f2f3": 0.454, "g2g4": 0.40})
CHILD = Node(0.45, "e7e5", ("e7e5", "g1f3"), {"e7e5": 0.45})
TABLES = {
    (): {"Mobility": (0.10, 0.30), "Space": (0.0, 0.0)},
    ("e2e4",): {"Mobility": (0.45, 0.20), "Space": (0.0, 0.5)},
}
FACTS = EngineFacts({(): ROOT, ("e2e4",): CHILD}, TABLES)


@pytest.mark.parametrize(
    ("kind", "at", "args", "verdict"),
    [
        ("score", (), ("e2e4", "White", "0.55"), True),
        ("score", (), ("e2e4", "Black", "0.55"), False),
        ("score", (), ("e2e4", "White", "0.56"), False),
        ("score", (), ("a2a3", "White", "0.50"), None),
        ("score", ("e2e4",), ("e7e5", "Black", "0.45"), True),
        ("score", ("d2d4",), ("e7e5", "Black", "0.45"), None),
        ("score", ("e2e5",), ("e7e5", "Black", "0.45"), False),
        ("loss", (), ("f2f3", "e2e4", "0.10"), True),
        ("loss", (), ("f2f3", "d2d4", "0.10"), True),
        ("loss", (), ("d2d4", "e2e4", "0.00"), False),
        ("loss", (), ("e2e4", "f2f3", "-0.10"), False),
        ("reply", (), ("e2e4 e7e5",), True),
        ("reply", ("e2e4",), ("e7e5",), True),
        ("reply", ("e2e4",), ("d7d5",), False),
        ("reply", (), ("e2e4 e7e5 g1f3 b8c6",), False),
        ("sound", (), ("d2d4",), True),
        ("sound", (), ("e2e4",), True),
        ("mistake", (), ("f2f3",), True),
        ("mistake", (), ("d2d4",), False),
        ("mistake", (), ("h2h4",), None),
        ("term_up", (), ("e2e4", "mobility", "White", "0.35"), True),
        ("term_up", (), ("e2e4", "mobility", "Black", "0.10"), False),
        ("term_down", (), ("e2e4", "mobility", "Black", "0.10"), True),
        ("term_up", (), ("d2d4", "mobility", "White", "0.35"), None),
        ("term_up", (), ("e2e4", "king safety", "White", "0.35"), None),
        ("edge", ("e2e4",), ("mobility", "White", "0.25"), True),
        ("edge", ("e2e4",), ("space control", "White", "0.50"), False),
        ("edge", (), ("space control", "White", "0.00"), False),
    ],
)
def test_claims_against_known_facts(
    kind: str, at: tuple[str, ...], args: tuple[str, ...], verdict: bool | None
) -> None:
    assert engine_holds(Claim(kind, at, args), FACTS, GROUND) is verdict


def test_claims_about_the_board_are_not_the_engines() -> None:
    assert len(ENGINE_KINDS) == 8
    with pytest.raises(KeyError):
        engine_holds(Claim("hanging", (), ("Pe2",)), FACTS, GROUND)


def test_facts_seen_one_move_earlier() -> None:
    child = EngineFacts({(): CHILD}, {(): TABLES[("e2e4",)]})
    whole = EngineFacts({(): ROOT}).merged([child.lifted("e2e4")])
    assert whole.nodes == FACTS.nodes
    assert whole.terms == {("e2e4",): TABLES[("e2e4",)]}
    other = EngineFacts({(): CHILD}).merged([FACTS])
    assert other.nodes[()] == CHILD


def test_a_loss_of_exactly_the_threshold_is_a_mistake() -> None:
    node = Node(0.6, "", (), {"e2e4": 0.6 - 0.1})
    assert node.is_mistake("e2e4")
    assert not Node(0.6, "", (), {"e2e4": 0.6 - 0.0999}).is_mistake("e2e4")
    assert not ROOT.knows("h2h4")
    with pytest.raises(KeyError):
        ROOT.value("h2h4")


def test_the_table_of_both_sides_shares() -> None:
    row = Row((0.2, 0.4), (0.0, -0.2), (0.2, 0.6))
    bare = Row(None, None, (0.0, 0.0))
    sided = set(TERMS)
    rows = {name: row if name in sided else bare for name in TABLE_TERMS}
    found = term_table(ClassicalTerms(chess.STARTING_FEN, 0.5, rows, None))
    assert found is not None
    assert set(found) == sided
    assert found["Mobility"] == (pytest.approx(0.3), pytest.approx(-0.1))
    empty = {name: Row((0.0, 0.0), (0.0, 0.0), (0.0, 0.0)) for name in TABLE_TERMS}
    assert term_table(ClassicalTerms(chess.STARTING_FEN, 0.5, empty, None)) is None
