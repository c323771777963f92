"""Rows, filters, hashes and faults of extracted games."""

from __future__ import annotations

import chess
import numpy as np
import pyarrow as pa
import pytest

from queen.positions.cutting import Part
from queen.positions.extraction import Filters, Rating, Tally, extract, sampled
from queen.positions.headers import facts_of, speed_of, start_of
from queen.positions.packed import pack, unpack
from queen.positions.readers import reader_named
from queen.positions.reference import ReferenceReader
from queen.positions.rust_reader import RustReader
from queen.positions.schema import OCCURRENCES, move_code

GAME = """[Event "Rated Blitz game"]
[Site "https://example.org/abcd1234"]
[White "{white}"]
[Black "Grace"]
[Result "{result}"]
[WhiteElo "1728"]
[BlackElo "{elo}"]
[TimeControl "{time}"]{more}

1. e4 {{ [%eval 0.24] [%clk 0:10:00] }} e5 {{ [%eval #3] [%clk 0:09:59] }} 2. Qh5 Nc6 {result}

"""
FISCHER = '\n[Variant "Chess960"]\n[FEN "bqnbrnkr/pppppppp/8/8/8/8/PPPPPPPP/BQNBRNKR w KQkq - 0 1"]'


def game(white: str = "Ada", result: str = "1-0", elo: str = "1634?", time: str = "300+3",
         more: str = "") -> str:  # fmt: skip
    text = GAME.format(white=white, result=result, elo=elo, time=time, more=more)
    return text.replace("2. Qh5 Nc6", "2. d3 d6") if more == FISCHER else text


def table(text: str, filters: Filters | None = None) -> tuple[pa.Table, Tally]:
    """What both readers give."""
    part = Part(text.encode(), 0)
    fast, told = extract(part, filters or Filters(), RustReader())
    slow, same = extract(part, filters or Filters(), ReferenceReader())
    assert fast.equals(slow)
    assert told == same
    assert fast.schema == OCCURRENCES
    return fast, told


def test_a_row_says_all_there_is() -> None:
    rows = table(game())[0].to_pylist()
    assert len(rows) == 4
    board = chess.Board()
    for ply, uci in enumerate(("e2e4", "e7e5", "d1h5", "b8c6"), 1):
        board.push_uci(uci)
        row = rows[ply - 1]
        assert row["position"] == pack(board)
        assert (row["ply"], row["move"]) == (ply, move_code(chess.Move.from_uci(uci)))
        assert (row["white_elo"], row["black_elo"], row["result"]) == (1728, 1634, 1)
    assert [row["played"] for row in rows] == [*(row["move"] for row in rows[1:]), 0]
    assert [row["clock"] for row in rows] == [600.0, 599.0, None, None]
    assert [row["eval_cp"] for row in rows] == [-24, None, None, None]
    assert [row["eval_mate"] for row in rows] == [None, 3, None, None]
    assert len({row["game"] for row in rows}) == 1


@pytest.mark.parametrize(
    ("told", "cp", "mate"),
    [
        ("#-3", None, -3), ("#12", None, 12), ("#-120", None, -120), ("#0", None, 0),
        ("-1.5", -150, None), ("12.34", 1234, None), ("400", 32_000, None), ("0.0", 0, None),
        ("#", None, None), ("1000", None, None), ("1e30", None, None), ("#4,30", None, 4),
        ("2.5,30", 250, None),
    ],
)  # fmt: skip
def test_scores_are_from_the_side_to_move(told: str, cp: int | None, mate: int | None) -> None:
    text = game().replace("0.24", told).replace("#3", told)
    first, second = table(text)[0].to_pylist()[:2]
    assert (second["eval_cp"], second["eval_mate"]) == (cp, mate)
    assert first["eval_cp"] == (None if cp is None else -cp)
    assert first["eval_mate"] == (None if mate is None else -mate)


def test_names_are_no_part_of_anything() -> None:
    assert table(game("Ada"))[0].equals(table(game("Somebody Else"))[0])


def test_whatever_a_row_holds_is_in_its_games_hash() -> None:
    usual = game()
    others = [
        usual.replace("0:09:59", "0:09:58"),
        usual.replace("0.24", "0.25"),
        usual.replace("1728", "1729"),
        usual.replace("2. Qh5", "2. Qf3"),
        game(result="0-1"),
        usual.replace("300+3", "300+4"),
    ]
    hashes = [table(text)[0]["game"][0].as_py() for text in (usual, *others)]
    assert len(set(hashes)) == len(hashes)


@pytest.mark.parametrize(
    ("filters", "taken", "reason"),
    [
        (Filters(rating=Rating(min=1700)), 0, "games.rating"),
        (Filters(rating=Rating(max=1800)), 1, None),
        (Filters(time_control=("blitz", "rapid")), 1, None),
        (Filters(time_control=("bullet",)), 0, "games.time_control"),
        (Filters(results=("0-1", "*")), 0, "games.result"),
        (Filters(results=("1-0",)), 1, None),
        (Filters(variants=("chess960",)), 0, "games.variant"),
        (Filters(skip_plies=3), 1, "positions.skip_plies"),
        (Filters(skip_plies=9), 0, "positions.skip_plies"),
        (Filters(share=0.0), 0, "positions.share"),
    ],
)
def test_filters(filters: Filters, taken: int, reason: str | None) -> None:
    found, tally = table(game(), filters)
    assert tally.counts["taken"] == taken
    assert (found.num_rows > 0) == bool(taken)
    assert set(tally.drops) == ({reason} if reason else set())


def test_variants_are_counted_and_left_out() -> None:
    text = game(more='\n[Variant "Crazyhouse"]') + game(more=FISCHER) + game()
    found, tally = table(text)
    assert found.num_rows == 8
    assert tally.drops == {"games.variant": 1}
    standard = Filters(variants=("standard",))
    assert table(text, standard)[1].drops == {"games.variant": 2}
    assert unpack(found["position"][0].as_py()).chess960


def test_faults_are_counted_with_their_place_and_good_moves_kept() -> None:
    bad = game().replace("2. Qh5", "2. Ke4")
    fen = game(more='\n[FEN "8/8/8/8/8/8/8/8 w - - 0 1"]')
    noise = game().replace("Qh5", "Q\0h5")
    empty = '[Event "x"]\n[Result "1-0"]\n\n1-0\n\n'
    found, tally = table(game() + bad + fen + noise + empty + game())
    assert [fault["reason"] for fault in tally.faults] == [
        "bad_fen", "encoding", "illegal_move", "no_moves",
    ]  # fmt: skip
    offsets = {fault["reason"]: fault["offset"] for fault in tally.faults}
    assert offsets["illegal_move"] == len(game())
    assert offsets["bad_fen"] == len(game() + bad)
    assert {fault["reason"]: fault["kept"] for fault in tally.faults}["illegal_move"] == 2
    assert found.num_rows == 4 + 2 + 4
    assert tally.counts == {"games": 6, "taken": 3, "broken": 1, "positions": 10}


def test_a_share_is_by_position_and_about_so_large() -> None:
    rng = np.random.default_rng(1)
    packed = rng.integers(0, 256, (20_000, 36), dtype=np.uint8)
    taken = sampled(packed, 0.3)
    assert abs(taken.mean() - 0.3) < 0.02
    assert np.array_equal(sampled(packed[::-1].copy(), 0.3), taken[::-1])
    assert not (sampled(packed, 0.1) & ~taken).any()


def test_latin_1_is_read() -> None:
    text = game(white="Bjørn").replace("e5 {", "e5 { où").encode("latin-1")
    for reader in (RustReader(), ReferenceReader()):
        found, tally = extract(Part(text, 0), Filters(), reader)
        assert (found.num_rows, tally.faults) == (4, [])


@pytest.mark.parametrize(
    ("told", "speed"),
    [
        ("15+0", "ultrabullet"), ("60+1", "bullet"), ("179+0", "bullet"), ("180+0", "blitz"),
        ("300+3", "blitz"), ("300+5", "rapid"), ("600", "rapid"), ("900+15", "classical"),
        ("40/7200:3600", "classical"), ("1/259200", "correspondence"), ("-", "unknown"),
        ("", "unknown"), ("*180", "unknown"), ("9" * 5000 + "+0", "unknown"),
    ],
)  # fmt: skip
def test_speeds(told: str, speed: str) -> None:
    assert speed_of(told) == speed


def test_headers_that_say_nothing() -> None:
    facts = facts_of(b'[WhiteElo "?"]\n[BlackElo "99999"]\n[Result "?"]\n[Variant "Chess 960"]\n')
    assert (facts.white_elo, facts.black_elo, facts.result) == (None, None, None)
    assert facts.variant == "chess960"
    assert facts_of(b'[WhiteElo "%s"]\n' % (b"9" * 5000)).white_elo is None


def test_a_start_that_only_chess960_knows_is_played_by_its_rules() -> None:
    fen = "bqnbrnkr/pppppppp/8/8/8/8/PPPPPPPP/BQNBRNKR w HEhe - 0 1"
    assert start_of(fen, False) == start_of(fen, True)
    assert start_of(fen, False).rooks == (7, 4, 7, 4)


def test_readers_by_name() -> None:
    assert isinstance(reader_named("auto"), RustReader)
    assert isinstance(reader_named("python-chess"), ReferenceReader)


def test_unknown_words_are_named() -> None:
    assert Filters(time_control=("blitz", "blits")).unknown() == {"time_control": ["blits"]}
    assert Filters().unknown() == {}
