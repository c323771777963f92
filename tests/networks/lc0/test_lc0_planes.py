"""Planes against a slow encoder that walks the squares and replays the game."""

import chess
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queen.games.chess.position import Position, PositionError
from queen.networks.lc0 import UnsupportedNet, black_to_move, encode_planes
from queen.networks.lc0.history import Histories

STARTS = [
    chess.STARTING_FEN,
    "r3k2r/pppq1ppp/2npbn2/2b1p3/2B1P3/2NPBN2/PPPQ1PPP/R3K2R w Kq - 6 9",
    "rnbqkbnr/ppp1pppp/8/3pP3/8/8/PPPP1PPP/RNBQKBNR w KQkq d6 0 3",
    "rnbqkbnr/pppp1ppp/8/8/3Pp3/8/PPP1PPPP/RNBQKBNR b KQkq d3 0 3",
    "8/5pk1/4p1p1/3pP2p/1r1P1P1P/4K1P1/R7/8 b - - 37 51",
    "8/8/8/8/4k3/8/8/R3K3 w Q - 3 60",
]
MOVES = st.lists(st.integers(0, 200), max_size=60)
# now and then both sides shuffle a piece to and fro, so that positions repeat
SHUFFLE = st.lists(st.one_of(st.just(-1), st.integers(0, 200)), max_size=60)


def line(start: str, choices: list[int]) -> Position:
    """A position; a choice of -1 takes back the side's own last move if that is legal."""
    board = chess.Board(start)
    moves: list[str] = []
    for choice in choices:
        legal = sorted(move.uci() for move in board.legal_moves)
        if not legal:
            break
        back = moves[-2][2:4] + moves[-2][:2] if len(moves) > 1 else ""
        moves.append(back if choice == -1 and back in legal else legal[choice % len(legal)])
        board.push_uci(moves[-1])
    return Position(start, tuple(moves))


def slow_planes(position: Position) -> np.ndarray:
    boards = [chess.Board(position.start)]
    for uci in position.moves:
        after = boards[-1].copy()
        after.push_uci(uci)
        boards.append(after)
    now = boards[-1]
    planes = np.zeros((112, 64), np.float32)
    for i in range(8):
        at = len(boards) - 1 - i
        if at < 0 and boards[0].fen().rsplit(" ", 2)[0] == "/".join(
            ["rnbqkbnr", "pppppppp", "8", "8", "8", "8", "PPPPPPPP", "RNBQKBNR w KQkq -"]
        ):
            break
        board = boards[max(at, 0)].copy()
        if at < 0 and board.ep_square is not None:
            step = 8 if board.turn else -8
            pawn = board.remove_piece_at(board.ep_square - step)
            board.set_piece_at(board.ep_square + step, pawn)
        for square, piece in board.piece_map().items():
            theirs = piece.color != now.turn
            plane = 13 * i + 6 * theirs + piece.piece_type - 1
            planes[plane, square if now.turn else square ^ 56] = 1
        planes[13 * i + 12] = at >= 0 and seen_before(boards[: at + 1])
    rights = [
        (now.turn, False), (now.turn, True), (not now.turn, False), (not now.turn, True)
    ]  # fmt: skip
    for i, (color, kingside) in enumerate(rights):
        has = now.has_kingside_castling_rights if kingside else now.has_queenside_castling_rights
        planes[104 + i] = has(color)
    planes[108], planes[109], planes[111] = not now.turn, now.halfmove_clock, 1
    return planes.reshape(112, 8, 8)


def seen_before(boards: list[chess.Board]) -> bool:
    now = boards[-1]
    back = range(len(boards) - 1 - 4, -1, -2) if now.halfmove_clock >= 4 else ()
    for i in back:
        if sameness(boards[i], i == 0) == sameness(now, False):
            return True
        if boards[i].halfmove_clock < 2:
            return False
    return False


def sameness(board: chess.Board, first: bool) -> tuple[str, bool, int, int | None]:
    ep = board.ep_square
    if ep is not None and not first:
        takers = board.attackers(board.turn, ep) & board.pawns
        ep = ep if takers else None
    return board.board_fen(), board.turn, board.castling_rights, ep


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(STARTS), SHUFFLE)
def test_planes_are_those_of_the_slow_encoder(start: str, choices: list[int]) -> None:
    position = line(start, choices)
    fast = encode_planes([position], 1, Histories())
    assert fast.dtype == np.float32
    assert fast.shape == (1, 112, 8, 8)
    np.testing.assert_array_equal(fast[0], slow_planes(position))


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(STARTS), SHUFFLE, st.integers(1, 20), st.randoms())
def test_what_is_remembered_changes_nothing(start, choices, size, random) -> None:
    whole = line(start, choices)
    family = [Position(start, whole.moves[:ply]) for ply in range(len(whole.moves) + 1)]
    shuffled = random.sample(family, len(family))
    kept = Histories(size)
    found = [encode_planes([position], 1, kept)[0] for position in shuffled]
    alone = encode_planes(shuffled, 1, Histories())
    np.testing.assert_array_equal(np.stack(found), alone)


def test_a_third_occurrence_is_marked_and_a_lost_right_is_not() -> None:
    shuffle = ("g1f3", "g8f6", "f3g1", "f6g8") * 2
    twice = encode_planes([Position(chess.STARTING_FEN, shuffle)])[0]
    assert [bool(twice[13 * i + 12].all()) for i in range(8)] == [True] * 5 + [False] * 3
    rook = ("h1h2", "h8h7", "h2h1", "h7h8")
    start = "r3k2r/p6p/8/8/8/8/P7/R3K2R w KQkq - 10 20".replace("p6p", "p7")
    first = encode_planes([Position(start, rook)])[0]
    again = encode_planes([Position(start, rook * 2)])[0]
    assert not first[12].any()  # the same pieces, but castling was lost in between
    assert again[12].all()


def test_a_cycle_of_six_plies_is_a_repetition() -> None:
    cycle = ("a1a3", "h8h6", "a3a2", "h6h7", "a2a1", "h7h8")
    start = "7r/8/4k3/8/8/4K3/8/R7 w - - 10 60"
    assert not encode_planes([Position(start, cycle[:5])])[0, 12].any()
    assert encode_planes([Position(start, cycle)])[0, 12].all()


@pytest.mark.parametrize(
    ("push", "shuffle", "repeated"),
    [
        (("e2e4",), ("g8f6", "g1f3", "f6g8", "f3g1"), True),  # no pawn could take on e3
        (("e2e4", "a7a6", "e4e5", "d7d5"), ("g1f3", "g8f6", "f3g1", "f6g8"), False),
    ],
)
def test_en_passant_makes_a_position_another_only_where_a_pawn_attacks(
    push: tuple[str, ...], shuffle: tuple[str, ...], repeated: bool
) -> None:
    once = encode_planes([Position(chess.STARTING_FEN, push + shuffle)])[0]
    assert once[12].all() == repeated
    twice = encode_planes([Position(chess.STARTING_FEN, push + shuffle + shuffle)])[0]
    assert twice[12].all()


def test_black_is_told_from_the_planes() -> None:
    after = Position(chess.STARTING_FEN, ("e2e4",))
    planes = encode_planes([Position(chess.STARTING_FEN), after])
    assert black_to_move(planes).tolist() == [False, True]
    assert encode_planes([]).shape == (0, 112, 8, 8)


@pytest.mark.parametrize("number", [0, 6, 77])
def test_other_input_formats_are_named(number: int) -> None:
    with pytest.raises(UnsupportedNet, match=rf"\({number}\) is not supported") as fault:
        encode_planes([Position(chess.STARTING_FEN)], number)
    assert "INPUT_CLASSICAL_112_PLANE" in fault.value.remedy


@pytest.mark.parametrize("bad", ["e2e5", "0000", "junk"])
def test_a_move_that_is_not_legal_is_named(bad: str) -> None:
    position = Position(chess.STARTING_FEN, ("e2e4", "e7e5", bad))
    with pytest.raises(PositionError, match="ply 2 is not legal"):
        encode_planes([position], 1, Histories())
    with pytest.raises(PositionError):
        encode_planes([Position("8/8/8/8/8/8/8/8 w - - 0 1")])
