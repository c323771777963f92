"""Facts against a mailbox board that shares no code with python-chess."""

from __future__ import annotations

import chess
import pytest
from board_strategies import RICH_FENS, boards, played_boards
from hypothesis import given, settings
from mailbox_board import Mailbox, index, side_of

from queen.games.chess import facts

SIDE = {chess.WHITE: "w", chess.BLACK: "b"}
FORWARD = {chess.WHITE: 1, chess.BLACK: -1}


def both(board: chess.Board) -> Mailbox:
    return Mailbox.parse(board.fen())


def pawns(box: Mailbox, color: chess.Color) -> list[int]:
    return box.squares_of("P" if color else "p")


def test_the_boards_that_walks_begin_from_are_legal():
    assert [fen for fen in RICH_FENS if not chess.Board(fen).is_valid()] == []


def perft(box: Mailbox, depth: int) -> int:
    moves = box.moves()
    return len(moves) if depth == 1 else sum(perft(box.played(m), depth - 1) for m in moves)


@pytest.mark.parametrize(
    ("fen", "depth", "count"),
    [
        (RICH_FENS[0], 2, 400),
        (RICH_FENS[1], 2, 2039),
        (RICH_FENS[2], 2, 191),
        (RICH_FENS[4], 1, 44),
    ],
)
def test_the_mailbox_board_itself_matches_published_perft_counts(fen, depth, count):
    assert perft(Mailbox.parse(fen), depth) == count


@settings(max_examples=60, deadline=None)
@given(boards())
def test_attackers_and_defenders(board):
    box = both(board)
    for square in chess.SQUARES:
        for color in chess.COLORS:
            assert list(facts.attackers(board, color, square)) == box.attackers(SIDE[color], square)
        own = side_of(box.men[square]) if square in box.men else None
        expected = box.attackers(own, square) if own else []
        assert list(facts.defenders(board, square)) == expected


@settings(max_examples=120, deadline=None)
@given(boards())
def test_pins(board):
    box = both(board)
    for color in chess.COLORS:
        assert list(facts.pins(board, color)) == sorted(box.pins(SIDE[color]))


@settings(max_examples=120, deadline=None)
@given(boards())
def test_hanging_pieces_and_forks(board):
    box = both(board)
    for color in chess.COLORS:
        loose = [s for s in box.side(SIDE[color]) if box.hangs(s)]
        assert list(facts.hanging(board, color)) == loose
        assert [tuple(f) for f in facts.forks(board, color)] == box.forks(SIDE[color])


@settings(max_examples=120, deadline=None)
@given(boards())
def test_pawn_structure(board):
    box = both(board)
    for color in chess.COLORS:
        ours, theirs = pawns(box, color), pawns(box, not color)
        up = FORWARD[color]
        ahead = {s: [t for t in theirs if (t // 8 - s // 8) * up > 0] for s in ours}
        passed = [s for s in ours if all(abs(t % 8 - s % 8) > 1 for t in ahead[s])]
        alone = [s for s in ours if all(abs(t % 8 - s % 8) != 1 for t in ours)]
        twice = [s for s in ours if sum(t % 8 == s % 8 for t in ours) > 1]
        assert list(facts.passed_pawns(board, color)) == passed
        assert list(facts.isolated_pawns(board, color)) == alone
        assert list(facts.doubled_pawns(board, color)) == twice


@settings(max_examples=120, deadline=None)
@given(boards())
def test_files_and_material(board):
    box = both(board)
    men = {color: {s % 8 for s in pawns(box, color)} for color in chess.COLORS}
    empty = [f for f in range(8) if f not in men[True] | men[False]]
    assert list(facts.open_files(board)) == empty
    for color in chess.COLORS:
        assert list(facts.half_open_files(board, color)) == sorted(men[not color] - men[color])
    worth = sum(
        box.worth(s) * (1 if piece.isupper() else -1)
        for s, piece in box.men.items()
        if piece not in "Kk"
    )
    assert facts.material(board) == worth


@settings(max_examples=120, deadline=None)
@given(boards())
def test_outposts(board):
    box = both(board)
    for color in chess.COLORS:
        up, own_pawn = FORWARD[color], "P" if color else "p"
        expected = []
        for s in box.squares_of("NB" if color else "nb"):
            guarded = any(box.men[t] == own_pawn for t in box.attackers(SIDE[color], s))
            chasers = [
                t
                for t in pawns(box, not color)
                if abs(t % 8 - s % 8) == 1 and (t // 8 - s // 8) * up > 0
            ]
            if guarded and not chasers and (s // 8 if color else 7 - s // 8) in (3, 4, 5):
                expected.append(s)
        assert list(facts.outposts(board, color)) == expected


@settings(max_examples=40, deadline=None)
@given(played_boards())
def test_moves_checks_and_captures(board):
    box = both(board)
    assert [m.uci() for m in facts.checking_moves(board)] == in_order(box.checks())
    assert [m.uci() for m in facts.capturing_moves(board)] == in_order(box.captures())
    for square in box.men:
        goals = sorted({index(m[2:4]) for m in box.moves_from(square)})
        assert list(facts.legal_targets(board, square)) == goals


def in_order(moves: list[str]) -> list[str]:
    return sorted(moves, key=lambda m: (index(m[:2]), index(m[2:4]), "nbrq".find(m[4:] or "-")))


def test_a_textbook_fork_and_a_refuted_one():
    board = chess.Board("r3k3/2N5/8/8/8/8/8/4K3 b - - 0 1")
    assert facts.forks(board, chess.WHITE) == (facts.Fork(chess.C7, (chess.A8, chess.E8)),)
    guarded = chess.Board("r3k3/2N5/8/b7/8/8/8/4K3 b - - 0 1")
    assert facts.forks(guarded, chess.WHITE) == ()


def test_a_pinned_guard_does_not_save_a_piece():
    board = chess.Board("4k3/4n3/6b1/8/8/3N4/8/4R1K1 w - - 0 1")
    assert facts.pins(board, chess.BLACK) == (facts.Pin(chess.E7, chess.E1, chess.E8),)
    assert facts.hanging(board, chess.WHITE) == (chess.D3,)
    taken = chess.Board("4k3/4n3/6b1/8/8/8/6Q1/4R1K1 w - - 0 1")
    assert facts.hanging(taken, chess.BLACK) == (chess.G6,)
