"""Every answer of the question bank against a mailbox board that shares no code with it."""

from __future__ import annotations

import random
import re
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import chess
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "games" / "chess"))
from board_strategies import boards
from mailbox_board import FILES, Mailbox, index, name, side_of

from queen.errors import QueenError
from queen.games.chess.position import Position, PositionError
from queen.language.questions import bank

SIDES = {"White": "w", "Black": "b"}
PROMOTIONS = "<P><b7><b8><R> <P><b7><b8><Q>"
WORDS = re.compile(r"(?:after (?P<line>.+) : )?(?P<body>[^:]+) \?")


@st.composite
def situations(draw: st.DrawFn) -> tuple[Position, tuple[str, ...]]:
    """A position with its history, and moves played on from it."""
    board = draw(boards())
    for choice in draw(st.lists(st.integers(0, 999), max_size=3)):
        moves = sorted(board.legal_moves, key=str)
        if moves:
            board.push(moves[choice % len(moves)])
    moves = tuple(move.uci() for move in board.move_stack)
    now = len(moves) - draw(st.integers(0, min(6, len(moves))))
    return Position(board.root().fen(), moves[:now]), moves[now:]


def tokens(text: str) -> list[str]:
    return re.findall(r"<(\w+)>", text)


def played(box: Mailbox, moves: tuple[str, ...]) -> Mailbox:
    for move in moves:
        box = box.played(move)
    return box


def squares(found: list[int]) -> str:
    return "".join(f"<{name(s)}>" for s in sorted(found)) or "none"


def pawn_squares(box: Mailbox, side: str) -> tuple[list[int], list[int]]:
    white, black = box.squares_of("P"), box.squares_of("p")
    return (white, black) if side == "White" else (black, white)


def on(box, square):
    man = box.men.get(index(tokens(square)[0]))
    return f"<{man}>" if man else "none"


def where(box, man):
    return squares(box.squares_of(tokens(man)[0]))


def count(box, man):
    found = box.squares_of(tokens(man)[0])
    return f"{squares(found)} : {len(found)}"


def king(box, side):
    return squares([box.king(SIDES[side])])


def material(box):
    told, lead = [], 0
    for white, black in zip("PNBRQ", "pnbrq", strict=True):
        for kind, sign in ((white, 1), (black, -1)):
            found = box.squares_of(kind)
            lead += sign * sum(box.worth(s) for s in found)
            told.append(f"{squares(found)}<{kind}>{len(found)}")
        said = "even" if lead == 0 else f"White {lead}" if lead > 0 else f"Black {-lead}"
        told.append(said)
    return f"{' '.join(told)} : {said}"


def castling(box, side):
    short, long = ("K", "Q") if side == "White" else ("k", "q")
    names = {(True, True): "both", (True, False): "short", (False, True): "long"}
    return names.get((short in box.rights, long in box.rights), "none")


def to_move(box):
    return "White" if box.turn == "w" else "Black"


def files(found, marked=()):
    here = [[s for s in found if s % 8 == f] for f in range(8)]
    marks = ["!" if set(each) & set(marked) else "" for each in here]
    return " ".join(squares(each) + m if each else "-" for each, m in zip(here, marks, strict=True))


def from_a_to_h(found):
    text = "".join(squares([s]) for f in range(8) for s in sorted(found) if s % 8 == f)
    return text or "none"


def doubled(box, side):
    ours, _ = pawn_squares(box, side)
    found = [s for s in ours if any(t != s and t % 8 == s % 8 for t in ours)]
    return f"{files(ours, found)} : {from_a_to_h(found)}"


def isolated(box, side):
    ours, _ = pawn_squares(box, side)
    taken = {s % 8 for s in ours}
    found = [s for s in ours if not {s % 8 - 1, s % 8 + 1} & taken]
    return f"{files(ours, found)} : {from_a_to_h(found)}"


def passed(box, side):
    ours, theirs = pawn_squares(box, side)
    up = 1 if side == "White" else -1

    def stoppers(s):
        return [t for t in theirs if abs(t % 8 - s % 8) < 2 and (t // 8 - s // 8) * up > 0]

    ordered = sorted(ours, key=lambda s: (s % 8, s))
    met = [squares([s]) + (from_a_to_h(stoppers(s)) if stoppers(s) else "!") for s in ordered]
    listed = " ".join(met) or "none"
    found = from_a_to_h([s for s in ours if not stoppers(s)])
    return f"{files(ours)} , {files(theirs)} , {listed} : {found}"


def open_files(box):
    pawns = box.squares_of("Pp")
    taken = {s % 8 for s in pawns}
    found = " ".join(FILES[f] for f in range(8) if f not in taken) or "none"
    return f"{files(pawns)} : {found}"


def moves(box, square):
    goals = {index(m[2:4]) for m in box.moves_from(index(tokens(square)[0]))}
    return squares(list(goals))


def attackers(box, side, square):
    return squares(box.attackers(SIDES[side], index(tokens(square)[0])))


def defenders(box, square):
    s = index(tokens(square)[0])
    return squares(box.attackers(side_of(box.men[s]), s))


def in_check(box):
    return "yes" if box.checked(box.turn) else "no"


def checks(box):
    def key(move):
        return index(move[:2]), index(move[2:4]), "nbrq".find(move[4:] or "-")

    return " ".join(spelt(box, m) for m in sorted(box.checks(), key=key)) or "none"


def spelt(box, move):
    man = box.men[index(move[:2])]
    last = move[4:].upper() if man == "P" else move[4:]
    return f"<{man}><{move[:2]}><{move[2:4]}>" + (f"<{last}>" if last else "")


def pinned(box, side):
    return squares([pin[0] for pin in box.pins(SIDES[side])])


def forks(box, side):
    return squares([fork[0] for fork in box.forks(SIDES[side])])


def hanging(box, side):
    return squares([s for s in box.side(SIDES[side]) if box.hangs(s)])


def captures(box, square):
    start = tokens(square)[0]
    return squares(list({index(m[2:4]) for m in box.captures() if m.startswith(start)}))


def legal(box, move):
    return "yes" if move in {spelt(box, m) for m in box.moves()} else "no"


ANSWERS = {
    "piece_on": ("on", on),
    "squares_of": ("where", where),
    "count": ("count", count),
    "king_square": ("king", king),
    "material": ("material", material),
    "castling": ("castling", castling),
    "side_to_move": ("to move", to_move),
    "doubled_pawns": ("doubled", doubled),
    "isolated_pawns": ("isolated", isolated),
    "passed_pawns": ("passed", passed),
    "open_files": ("open files", open_files),
    "moves": ("moves", moves),
    "attackers": ("attackers", attackers),
    "defenders": ("defenders", defenders),
    "in_check": ("in check", in_check),
    "checking_moves": ("checks", checks),
    "pins": ("pinned", pinned),
    "forks": ("forks", forks),
    "hanging": ("hanging", hanging),
    "captures": ("captures", captures),
    "legal_move": ("legal", legal),
}


def answered(question: bank.Question) -> str:
    """The answer by the mailbox board, from the question's words alone."""
    box = Mailbox.parse(question.position.start)
    box = played(box, question.position.moves)
    said = WORDS.fullmatch(question.prompt)
    assert said is not None
    for word in (said["line"] or "").split():
        _, start, end, *last = tokens(word)
        move = start + end + "".join(last).lower()
        assert spelt(box, move) == word
        box = box.played(move)
    word, answer = ANSWERS[question.type.removeprefix("after_")]
    assert said["body"].startswith(word)
    return answer(box, *said["body"].removeprefix(word).split())


@settings(max_examples=70, deadline=None)
@given(situations(), st.integers(0, 2**32))
def test_every_answer_is_that_of_the_mailbox_board(situation, seed):
    position, line = situation
    for kind in bank.BANK:
        question = kind.ask(position, line, random.Random(f"{seed} {kind.name}"))
        if question is None:
            lineless = kind.stage.endswith("future") and not line
            assert lineless or kind.name.removeprefix("after_") in ("defenders", "legal_move")
            continue
        assert question.answer == answered(question), question.prompt
        assert (question.stage, question.type) == (kind.stage, kind.name)
        assert question.position == position
        assert question.line == line[: len(question.line)]
        assert bool(question.line) == question.stage.endswith("future")
        assert len(question.line) <= bank.MAX_LINE


@cache
def walks() -> tuple[tuple[Position, tuple[str, ...]], ...]:
    """Positions along seeded random walks, with six plies ahead."""
    found = []
    for seed in range(80):
        rng, board = random.Random(seed), chess.Board()
        for _ in range(rng.randrange(6, 60)):
            options = sorted(board.legal_moves, key=str)
            if options:
                board.push(rng.choice(options))
        walk = tuple(move.uci() for move in board.move_stack)
        found.append((Position(chess.STARTING_FEN, walk[:-6]), walk[-6:]))
    return tuple(found)


def questions_of(type_name: str, each: int = 1) -> list[bank.Question]:
    """Questions of a type about every walk, `each` of them."""
    asked = [
        bank.ask(position, line, type_name, random.Random(seed))
        for seed, (position, line) in enumerate(walks() * each)
    ]
    return [question for question in asked if question is not None]


@pytest.mark.parametrize("type_name", ["piece_on", "after_piece_on"])
def test_half_the_squares_asked_about_are_occupied(type_name):
    marks = Counter(q.subset.split()[0] for q in questions_of(type_name, 5))
    assert abs(marks["occupied"] / (marks["occupied"] + marks["empty"]) - 0.5) < 0.1
    assert set(marks) == {"occupied", "empty"}


@pytest.mark.parametrize("type_name", ["attackers", "defenders", "legal_move"])
def test_either_answer_is_as_likely_where_both_can_be_had(type_name):
    marks = Counter(q.subset for q in questions_of(type_name, 4))
    assert len(marks) == 2
    assert min(marks.values()) > 0.35 * sum(marks.values())


def test_no_type_is_always_answered_alike():
    for kind in bank.BANK:
        answers = Counter(q.answer for q in questions_of(kind.name))
        assert len(answers) > 1, kind.name


def test_changed_marks_the_answers_that_the_line_changes():
    for question in questions_of("after_piece_on"):
        now = played(Mailbox.parse(question.position.start), question.position.moves)
        said = WORDS.fullmatch(question.prompt)
        assert said is not None
        before = on(now, said["body"].removeprefix("on"))
        assert question.subset.endswith(" changed") == (before != question.answer)


def test_lines_of_every_length_are_asked_about():
    lengths = Counter(len(q.line) for q in questions_of("after_material", 3))
    assert set(lengths) == {1, 2, 3, 4}
    assert min(lengths.values()) > 0.15 * sum(lengths.values())


def answer_to(fen: str, type_name: str, prompt: str, line: tuple[str, ...] = ()) -> str:
    """The answer to just this prompt, drawing until it is asked."""
    for seed in range(3000):
        question = bank.ask(Position.from_fen(fen), line, type_name, random.Random(seed))
        if question is not None and question.prompt == prompt:
            return question.answer
    raise AssertionError(f"{prompt!r} was never asked")


@pytest.mark.parametrize(
    ("fen", "type_name", "prompt", "answer"),
    [
        (
            "r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1",
            "moves",
            "moves <e1> ?",
            "<c1><d1><f1><g1><d2><e2><f2>",
        ),
        ("4k3/8/8/8/8/8/8/RN2K3 w Q - 0 1", "moves", "moves <e1> ?", "<d1><f1><d2><e2><f2>"),
        ("4k3/8/8/3pP3/8/8/8/4K3 w - d6 0 2", "captures", "captures <e5> ?", "<d6>"),
        ("4k3/8/8/r2pP2K/8/8/8/8 w - d6 0 2", "captures", "captures <e5> ?", "none"),
        ("4k3/1P6/8/8/8/8/8/4K3 w - - 0 1", "checking_moves", "checks ?", PROMOTIONS),
        ("4r1k1/8/8/8/8/8/4N3/4K3 w - - 0 1", "moves", "moves <e2> ?", "none"),
        ("4r1k1/8/8/8/8/8/4N3/4K3 w - - 0 1", "pins", "pinned White ?", "<e2>"),
        ("4k3/8/8/8/8/8/3q4/4K3 w - - 0 1", "in_check", "in check ?", "yes"),
        ("r3k3/2N5/8/8/8/8/8/4K3 b q - 0 1", "forks", "forks White ?", "<c7>"),
        ("r3k3/2N5/8/8/8/8/8/4K3 b q - 0 1", "castling", "castling Black ?", "long"),
    ],
)
def test_known_positions(fen, type_name, prompt, answer):
    assert answer_to(fen, type_name, prompt) == answer


def test_a_line_through_castling_and_en_passant():
    fen = "4k3/3p4/8/4P3/8/8/8/4K2R w K - 0 1"
    line = ("e1g1", "d7d5", "e5d6")
    text = "after <K><e1><g1> <p><d7><d5> <P><e5><d6> :"
    assert answer_to(fen, "after_piece_on", f"{text} on <f1> ?", line) == "<R>"
    assert answer_to(fen, "after_piece_on", f"{text} on <d5> ?", line) == "none"
    assert answer_to(fen, "after_castling", f"{text} castling White ?", line) == "none"
    assert answer_to(fen, "after_side_to_move", f"{text} to move ?", line) == "Black"


def test_the_bank_has_four_stages_of_six_types_or_more_with_names_of_their_own():
    stages = Counter(kind.stage for kind in bank.BANK)
    assert bank.stages() == ("static-current", "dynamic-current", "static-future", "dynamic-future")
    assert all(stages[stage] >= 6 for stage in bank.stages())
    assert len({kind.name for kind in bank.BANK}) == len(bank.BANK)
    assert {kind.name.removeprefix("after_") for kind in bank.BANK} == set(ANSWERS)


def test_the_same_seed_asks_the_same():
    for kind in bank.BANK:
        for position, line in walks()[:4]:
            first, second = (kind.ask(position, line, random.Random(7)) for _ in range(2))
            assert first == second


def test_future_types_need_a_line_and_the_others_do_not():
    start = Position(chess.STARTING_FEN)
    for kind in bank.BANK:
        question = bank.ask(start, (), kind.name, random.Random(0))
        assert (question is None) == kind.stage.endswith("future")


def test_an_unknown_type_and_an_illegal_line_are_told():
    start = Position(chess.STARTING_FEN)
    with pytest.raises(QueenError, match="piece_on"):
        bank.ask(start, (), "piece on", random.Random(0))
    with pytest.raises(PositionError, match="'e2e5' of the line"):
        bank.ask(start, ("e2e5",), "after_piece_on", random.Random(0))


def test_the_expert_is_asked_for_its_move_and_not_in_the_bank():
    kind = bank.expert_move_type(lambda position: "g1f3" if position.white_to_move else "g8f6")
    start = Position(chess.STARTING_FEN)
    question = kind.ask(start, ("e2e4",), random.Random(0))
    assert question is not None
    assert (question.prompt, question.answer) == ("expert move ?", "<N><g1><f3>")
    assert (question.stage, question.line) == ("dynamic-current", ())
    reply = kind.ask(start.child("e2e4"), (), random.Random(0))
    assert reply is not None
    assert reply.answer == "<n><g8><f6>"
    mated = Position(chess.STARTING_FEN, ("f2f3", "e7e5", "g2g4", "d8h4"))
    assert kind.ask(mated, (), random.Random(0)) is None
    assert kind not in bank.BANK
