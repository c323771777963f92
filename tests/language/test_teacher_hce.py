"""The embedded teacher: every sentence true, wording varied, nothing left to chance or order."""

from __future__ import annotations

import random
import re
from collections import Counter
from functools import cache

import chess
import pytest
from derivation import derive
from language_data import greedy_facts, legal_ucis, many_positions, random_table

from queen.engines.classical import ClassicalEvaluator
from queen.engines.judge import MoveJudge, RootVerdict
from queen.engines.locate import find_program
from queen.engines.pool import Analyser, Analysis, EngineSettings, Limit
from queen.errors import QueenError
from queen.games.chess.position import Position
from queen.language.claims import checkable
from queen.language.engine_facts import EngineFacts, Node, engine_holds, term_table
from queen.language.explanation import Explanation, parse, render
from queen.language.grammar import recognise
from queen.language.ground import Ground, Line
from queen.language.people import for_people
from queen.language.teacher_hce import Style, TeacherInput, lines_to_evaluate, write
from queen.language.vocabulary import Claim

COUNT = 220


@cache
def inputs() -> tuple[TeacherInput, ...]:
    """Positions with greedy searches, made-up terms and random people's moves."""
    rng = random.Random(11)
    return tuple(_input(position, rng) for position in many_positions(COUNT, seed=3))


def _input(position: Position, rng: random.Random) -> TeacherInput:
    legal = legal_ucis(position.board())
    human = tuple(rng.sample(legal, min(len(legal), rng.randrange(4))))
    facts = greedy_facts(position, human)
    wanted = lines_to_evaluate(TeacherInput(position, facts, human))
    tables = {line: random_table(rng) for line in wanted}
    return TeacherInput(position, EngineFacts(facts.nodes, tables), human)


@cache
def written() -> tuple[Explanation, ...]:
    return tuple(write(given, seed=7, index=i) for i, given in enumerate(inputs()))


def test_explanations_are_their_own_texts() -> None:
    for given, explanation in zip(inputs(), written(), strict=True):
        assert parse(render(explanation), given.position) == explanation
        assert "<" not in for_people(explanation, given.position)


def test_best_first_then_the_moves_people_try_with_refutations() -> None:
    for given, explanation in zip(inputs(), written(), strict=True):
        root = given.facts.nodes[()]
        assert explanation.best == root.best_move == explanation.candidates[0].move
        assert explanation.line == root.line[:5]
        assert {c.move for c in explanation.candidates[1:]} == set(given.human) - {root.best_move}
        for candidate in explanation.candidates[1:]:
            assert candidate.score == round(root.values[candidate.move], 2)
            node = given.facts.nodes.get((candidate.move,))
            assert candidate.line == (node.line[:4] if node else ())


def test_every_sentence_carries_a_claim_that_is_derived_again() -> None:
    for given, explanation in zip(inputs(), written(), strict=True):
        board = given.position.board()
        for sentence in explanation.prose:
            (claim,) = sentence.claims
            true = derive(claim, board) if checkable(claim) else rederived(claim, given)
            assert true, (sentence.text, board.fen())


def rederived(claim: Claim, given: TeacherInput) -> bool:
    """An engine claim from the raw facts, without the library's own check."""
    node, terms = given.facts.nodes.get(claim.at), given.facts.terms
    match claim.kind, claim.args:
        case "loss", (move, better, amount):
            assert node is not None
            assert better == node.best_move
            cost = round(round(node.best, 2) - round(node.values[move], 2), 2)
            return float(amount) == cost > 0
        case "score", (move, side, amount):
            assert node is not None
            white = given.position.white_to_move == (len(claim.at) % 2 == 0)
            return side == ("White" if white else "Black") and float(amount) == round(
                node.values[move], 2
            )
        case "sound", (move,):
            assert node is not None
            return node.best - node.values[move] < 0.10
        case "reply", (line,):
            assert node is not None
            return " ".join(node.line).startswith(line)
        case (("term_up" | "term_down"), (line, term, side, amount)):
            end = (*claim.at, *line.split())
            column = ("White", "Black").index(side)
            change = terms[end][NAMES[term]][column] - terms[claim.at][NAMES[term]][column]
            return float(amount) == pytest.approx(abs(change), abs=0.0051) and (change > 0) == (
                claim.kind == "term_up"
            )
        case "edge", (term, side, amount):
            white, black = terms[claim.at][NAMES[term]]
            lead = white - black if side == "White" else black - white
            return float(amount) == pytest.approx(lead, abs=0.0051)
    raise AssertionError(claim)


NAMES = {
    "pawn structure": "Pawns",
    "knight placement": "Knights",
    "bishop placement": "Bishops",
    "rook placement": "Rooks",
    "queen placement": "Queens",
    "mobility": "Mobility",
    "king safety": "King safety",
    "threat potential": "Threats",
    "passed-pawn play": "Passed",
    "space control": "Space",
}


def test_no_sentence_skeleton_is_above_a_tenth() -> None:
    texts = [s.text for explanation in written() for s in explanation.prose]
    assert len(texts) > 800
    found = [recognise(text) for text in texts]
    skeletons = Counter(form.skeleton.name for form, *_ in filter(None, found))
    assert skeletons.total() == len(texts)
    assert max(skeletons.values()) <= 0.1 * len(texts), skeletons.most_common(3)
    blanked = Counter(blank(text) for text in texts)
    assert max(blanked.values()) <= 0.1 * len(texts), blanked.most_common(3)


def blank(text: str) -> str:
    """A sentence without its squares, pieces, numbers, names and frame: by other means."""
    text = re.sub(r"(?:<\w+>)+(?:[ ,]+(?:<\w+>)+)*", "_", text)
    text = re.sub(r"\d+(\.\d+)?", "#", text)
    text = re.sub("|".join([*NAMES, "White", "Black", r"\b[a-h]-file"]), "~", text)
    text = re.sub(
        r"^(Here|In this position|At this point|(After|Following|With|Once) _,?)", "", text
    )
    return re.sub(r"( after _)?\.$", "", text).strip().lower()


def test_half_of_all_sentences_can_be_checked_on_the_board() -> None:
    claims = [s.claims[0] for explanation in written() for s in explanation.prose]
    assert sum(map(checkable, claims)) >= 0.5 * len(claims)
    assert len({claim.kind for claim in claims}) >= 20


def test_each_explanation_says_three_to_six_things_and_speaks_of_every_rejected_move() -> None:
    for explanation in written():
        assert 2 <= len(explanation.prose) <= 6
        assert len({s.claims for s in explanation.prose}) == len(explanation.prose)
        for candidate in explanation.candidates[1:3]:
            spoken = [c for s in explanation.prose for c in s.claims]
            about = [c for c in spoken if candidate.move in (*c.at[:1], *c.args[:1])]
            assert about or len(explanation.prose) == 6
    sizes = [len(explanation.prose) for explanation in written()]
    assert sum(size >= 3 for size in sizes) > 0.97 * len(sizes)


def test_the_same_seed_and_index_say_the_same_and_others_differ() -> None:
    given = inputs()[5]
    assert write(given, 7, 5) == write(given, 7, 5) == written()[5]
    texts = {render(write(given, seed, index)) for seed in (1, 2) for index in range(5)}
    assert len(texts) == 10


def test_the_table_is_asked_for_where_the_side_to_move_is_not_in_check() -> None:
    for given in inputs():
        ground = Ground(given.position)
        lines = lines_to_evaluate(given)
        for line in lines:
            board = ground.after(line)
            assert board is not None
            assert not board.is_check()
        assert (() in lines) == (not ground.root.is_check())


def test_after_a_check_the_terms_come_from_further_down_the_line() -> None:
    position = Position.from_fen("4k3/8/8/8/8/8/3Q4/4K3 w - - 0 1")
    node = Node(0.9, "d2e2", ("d2e2", "e8d7", "e2d3"), {"d2e2": 0.9})
    given = TeacherInput(position, EngineFacts({(): node}))
    assert lines_to_evaluate(given) == ((), ("d2e2", "e8d7"))
    evading = Position.from_fen("4k3/8/8/8/8/8/4r3/4K3 w - - 0 1")
    node = Node(0.5, "e1e2", ("e1e2", "e8d7"), {"e1e2": 0.5})
    assert lines_to_evaluate(TeacherInput(evading, EngineFacts({(): node}))) == (("e1e2",),)


def test_a_mate_is_said() -> None:
    position = Position.from_fen("6k1/5ppp/8/8/8/8/5PPP/3R2K1 w - - 0 1")
    node = Node(1.0, "d1d8", ("d1d8",), {"d1d8": 1.0, "g1f1": 0.6})
    given = TeacherInput(position, EngineFacts({(): node}), ("g1f1",))
    kinds = {s.claims[0].kind for i in range(8) for s in write(given, 1, i).prose}
    assert {"mates", "checkmate", "loss"} & kinds >= {"mates", "loss"}


def test_style_is_a_parameter() -> None:
    brief = Style(plies=2, candidates=2, sentences=3)
    for i, given in enumerate(inputs()[:20]):
        explanation = write(given, 1, i, brief)
        assert len(explanation.line) <= 2
        assert len(explanation.candidates) <= 2
        assert len(explanation.prose) <= 3


@pytest.mark.skipif(not find_program("stockfish"), reason="no stockfish here")
def test_with_the_real_engine() -> None:
    positions = [p for p in many_positions(12, seed=9) if not p.board().is_check()]
    kinds: set[str] = set()
    for index, given in enumerate(searched(positions)):
        ground = Ground(given.position)
        explanation = write(given, 1, index)
        assert parse(render(explanation), given.position) == explanation
        for claim in (c for s in explanation.prose for c in s.claims):
            kinds.add(claim.kind)
            if checkable(claim):
                assert derive(claim, given.position.board())
            else:
                assert engine_holds(claim, given.facts, ground)
    assert kinds & {"term_up", "term_down"}
    assert "loss" in kinds


def searched(positions: list[Position]) -> list[TeacherInput]:
    """Judged at a few hundred nodes, with the refutations and the terms a caller would give."""
    limit = Limit(nodes=400)
    human = [tuple(legal_ucis(p.board())[:2]) for p in positions]
    pairs = [(i, m) for i, moves in enumerate(human) for m in moves]
    with Analyser(EngineSettings(workers=1)) as analyser:
        judged = MoveJudge(analyser, limit).judge(
            [(p.fen, moves) for p, moves in zip(positions, human, strict=True)]
        )
        answers = analyser.analyse([positions[i].child(m).fen for i, m in pairs], limit)
    nodes: list[dict[Line, Node]] = []
    for verdict in judged:
        assert isinstance(verdict, RootVerdict)
        nodes.append({(): Node.from_verdict(verdict)})
    for (i, move), answer in zip(pairs, answers, strict=True):
        assert isinstance(answer, Analysis)
        if answer.best.moves:
            line = answer.best.moves
            node = Node(answer.expected, line[0], line, {line[0]: answer.expected})
            nodes[i][(move,)] = node
    with ClassicalEvaluator() as evaluator:
        return [
            _with_terms(TeacherInput(p, EngineFacts(known), moves), evaluator)
            for p, known, moves in zip(positions, nodes, human, strict=True)
        ]


def _with_terms(given: TeacherInput, evaluator: ClassicalEvaluator) -> TeacherInput:
    lines = lines_to_evaluate(given)
    fens = []
    for line in lines:
        board = Ground(given.position).after(line)
        assert board is not None
        fens.append(board.fen())
    tables = dict(zip(lines, map(term_table, evaluator.terms(fens)), strict=True))
    terms = {line: table for line, table in tables.items() if table is not None}
    return TeacherInput(given.position, EngineFacts(given.facts.nodes, terms), given.human)


def test_a_position_without_a_best_move_is_refused() -> None:
    position = Position.from_fen("R5k1/5ppp/8/8/8/8/8/6K1 b - - 0 1")
    for nodes in ({}, {(): Node(0.0, "", (), {})}):
        with pytest.raises(QueenError, match="best move is not known"):
            write(TeacherInput(position, EngineFacts(nodes)), 1, 1)


def test_missing_tables_are_done_without() -> None:
    assert term_table(None) is None
    position = Position.from_fen(chess.STARTING_FEN)
    given = TeacherInput(position, greedy_facts(position, ("h2h4",)), ("h2h4",))
    kinds = {s.claims[0].kind for i in range(10) for s in write(given, 1, i).prose}
    assert not kinds & {"term_up", "term_down", "edge"}
