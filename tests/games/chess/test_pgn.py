"""The PGN reader: what it keeps, what it rejects, and that nothing is lost on the way."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import chess
import pytest
from board_strategies import played_boards
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pgn_samples import COMPRESS, GAME, OTHER, export, zipped

from queen.errors import QueenError
from queen.games.chess import pgn
from queen.games.chess.pgn import Game, PgnError, Reject, read_games, split_of

FISCHER = "1rk1r3/pppppppp/8/8/8/8/PPPPPPPP/1RK1R3 w EBeb - 0 1"


def read(path: Path, **options: bool) -> tuple[list[Game], list[Reject]]:
    rejects: list[Reject] = []
    return list(read_games(path, on_reject=rejects.append, **options)), rejects


@pytest.fixture
def reading(tmp_path):
    """Read a text or bytes written to a file of this name."""

    def run(text: str | bytes, name: str = "games.pgn", **options: bool):
        data = text.encode() if isinstance(text, str) else text
        (tmp_path / name).write_bytes(data)
        return read(tmp_path / name, **options)

    return run


def test_a_game_with_everything(reading):
    (game, other), rejects = reading(GAME + "\n" + OTHER)
    assert rejects == []
    assert game.moves == ("e2e4", "e7e5", "d1h5", "e8e7", "h5e5")
    assert game.clocks == (600.0, 599.5, None, None, 3723.0)
    assert game.evals == (0.24, 0.37, None, 999.0, None)
    assert (game.result, game.white_elo, game.black_elo) == ("1-0", 1728, 1634)
    assert (game.time_control, game.variant, game.start) == (
        "600+0",
        "standard",
        chess.STARTING_FEN,
    )
    assert (game.source, game.index, game.offset, game.fault) == ("games.pgn", 0, 0, None)
    assert (other.index, other.offset) == (1, len(GAME) + 1)
    assert other.position(2).fen == "rnbqkbnr/pppp1ppp/8/4p3/8/5P2/PPPPP1PP/RNBQKBNR w KQkq - 0 2"


def test_names_and_places_are_dropped_unless_kept(reading):
    extra = '[WhiteTeam "Analysts"]\n[Annotator "Hopper"]\n[Termination "Ada won on time"]\n'
    extra += '[Opening "Wayward Queen"]\n[Tournament "https://example.org/t/1"]\n'
    text = GAME.replace("[Result", extra + "[Result")
    (game,), _ = reading(text)
    told = repr(dict(game.headers)).lower()
    assert not [word for word in ("ada", "grace", "analysts", "hopper", "http") if word in told]
    assert game.headers["Opening"] == "Wayward Queen"
    (named,), _ = reading(text, keep_names=True)
    assert named.headers["White"] == "Ada"
    assert named.id == game.id


def test_the_id_tells_games_apart_but_not_their_copies(reading):
    (first, again, later), _ = reading(
        GAME + "\n" + GAME.replace("abcd1234", "wxyz") + "\n" + GAME.replace("02.01", "02.02")
    )
    assert first.id == again.id != later.id


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(played_boards(), min_size=1, max_size=4), st.sampled_from(sorted(COMPRESS)))
def test_games_survive_export_and_every_compression(tmp_path, boards, suffix):
    (tmp_path / f"g{suffix}").write_bytes(COMPRESS[suffix](export(boards).encode()))
    rejects: list[Reject] = []
    played = [board for board in boards if board.move_stack]
    games = []
    try:
        for game in read_games(tmp_path / f"g{suffix}", on_reject=rejects.append):
            games.append(game)
    except PgnError:
        assert not played
    assert [g.moves for g in games] == [tuple(m.uci() for m in b.move_stack) for b in played]
    assert [g.start for g in games] == [b.root().fen() for b in played]
    assert [r.reason for r in rejects] == ["no_moves"] * (len(boards) - len(played))


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_line_ends_marks_and_missing_gaps(reading, newline):
    text = "\ufeff" + (GAME.rstrip() + "\n" + OTHER + "% an escape\n\n" + OTHER)
    games, rejects = reading(text.replace("\n", newline))
    assert [len(g.moves) for g in games] == [5, 4, 4]
    assert rejects == []


def test_games_without_headers_and_empty_lines_inside(reading):
    games, rejects = reading("1. e4 e5\n\n2. Nf3 *\n\n\n1. d4 d5 1/2-1/2\n\n1. c4\n")
    assert [g.moves for g in games] == [("e2e4", "e7e5", "g1f3"), ("d2d4", "d7d5"), ("c2c4",)]
    assert [g.result for g in games] == ["*", "1/2-1/2", "*"]
    assert rejects == []


@pytest.mark.parametrize(
    ("text", "reason", "kept"),
    [
        (GAME.replace("2. Qh5?!", "2. Qh6"), "illegal_move", 2),
        (GAME.replace("1. e4", "1. Ke3"), "illegal_move", 0),
        (GAME.replace("2. Qh5?!", "2. --"), "illegal_move", 2),
        ('[Event "x"]\n[FEN "8/8/8/8/8/8/8/8 w - - 0 1"]\n\n1. e4 *\n', "bad_fen", 0),
        ('[Event "x"]\n[FEN "rubbish"]\n\n1. e4 *\n', "bad_fen", 0),
        ('[Event "x"]\n[Variant "Crazyhouse"]\n\n1. e4 N@f3 *\n', "variant", 0),
        ('[Event "x"]\n[Variant "Chess960"]\n\n1. e4 *\n', "variant", 0),
        (f'[Event "x"]\n[FEN "{FISCHER}"]\n\n1. e4 *\n', "variant", 0),
        ('[Event "x"]\n[Result "1-0"]\n\n1-0\n', "no_moves", 0),
        ('[Event "x"]\n[Result "*"]\n', "no_moves", 0),
        ('[Event "x\x00"]\n\n1. e4 *\n', "encoding", 0),
    ],
)
def test_a_bad_game_is_told_once_and_spoils_no_other(reading, text, reason, kept):
    games, rejects = reading(OTHER + "\n" + text + "\n" + OTHER)
    assert [(r.reason, r.index, r.offset, r.kept) for r in rejects] == [
        (reason, 1, len(OTHER) + 1, kept)
    ]
    assert rejects[0].file == "games.pgn"
    assert rejects[0].detail
    whole = [g for g in games if g.fault is None]
    assert [g.index for g in whole] == [0, 2]
    broken = [(g.fault, len(g.moves)) for g in games if g.fault]
    assert broken == ([(reason, kept)] if kept else [])


def test_an_unclosed_comment_swallows_no_other_game(reading):
    games, rejects = reading(GAME.replace("nothing] }", "nothing]") + "\n" + OTHER)
    assert [len(g.moves) for g in games] == [4, 4]
    assert rejects == []
    games, _ = reading(GAME.replace("a comment", 'a comment\n[Event "no header"]') + "\n" + OTHER)
    assert [len(g.moves) for g in games] == [5, 4]


def test_latin_1_is_read(reading):
    (game,), rejects = reading(
        GAME.replace('"Rated', '"Tournoi d\xe9butant').encode("latin-1"), keep_names=True
    )
    assert (game.headers["Event"][:16], rejects) == ("Tournoi d\xe9butant", [])


def test_from_position_games_are_standard(reading):
    fen = "4k3/8/8/8/8/8/4P3/4K3 w - - 0 1"
    (game,), _ = reading(f'[Event "x"]\n[Variant "From Position"]\n[FEN "{fen}"]\n\n1. e4 *\n')
    assert (game.start, game.moves) == (fen, ("e2e4",))


def many(count: int) -> tuple[str, list[tuple[str, ...]]]:
    """Games by a seeded random walk, and their moves."""
    boards = []
    for seed in range(count):
        rng, board = random.Random(seed), chess.Board()
        for _ in range(40):
            board.push(rng.choice(sorted(board.legal_moves, key=str)))
            if board.is_game_over():
                break
        boards.append(board)
    return export(boards), [tuple(m.uci() for m in b.move_stack) for b in boards]


@pytest.mark.parametrize("suffix", [".pgn.gz", ".pgn.zst", ".pgn.bz2"])
@pytest.mark.parametrize("share", [0.35, 0.8, 0.999])
def test_a_cut_archive_gives_what_came_before_the_cut(tmp_path, suffix, share):
    text, truth = many(60)
    blocks = [text[i : i + 3000].encode() for i in range(0, len(text), 3000)]
    data = b"".join(COMPRESS[suffix](block) for block in blocks)
    path = tmp_path / f"cut{suffix}"
    path.write_bytes(data[: int(len(data) * share)])
    games, rejects = read(path)
    assert [r.reason for r in rejects] == ["truncated_archive"]
    assert 5 < len(games) <= 60
    assert rejects[0].offset > games[-1].offset
    whole = [g for g in games if g.fault is None]
    assert [g.moves for g in whole] == truth[: len(whole)]
    assert len(whole) >= len(games) - 1
    for game in games[len(whole) :]:
        assert game.fault == "truncated_archive"
        assert game.moves == truth[game.index][: len(game.moves)]


def test_a_damaged_archive_is_told(tmp_path):
    text, _ = many(60)
    blocks = [COMPRESS[".pgn.gz"](text[i : i + 4000].encode()) for i in range(0, len(text), 4000)]
    blocks[4] = blocks[4][:40] + bytes(60) + blocks[4][100:]
    (tmp_path / "bad.pgn.gz").write_bytes(b"".join(blocks))
    games, rejects = read(tmp_path / "bad.pgn.gz")
    assert [r.reason for r in rejects] == ["truncated_archive"]
    assert len(games) >= 10


@pytest.mark.parametrize("suffix", [".pgn.gz", ".pgn.zst", ".pgn.bz2", ".pgn.zip"])
@pytest.mark.parametrize("content", [b"no archive at all, just words", b"\x00\x01\x02" * 99])
def test_what_is_no_archive_is_a_clear_error(tmp_path, suffix, content):
    path = tmp_path / f"fake{suffix}"
    path.write_bytes(content)
    rejects: list[Reject] = []
    with pytest.raises(PgnError, match=r"no game could be read \(unreadable 1\)") as caught:
        list(read_games(path, on_reject=rejects.append))
    assert str(path) in str(caught.value)
    assert "remedy" in str(caught.value)
    assert [r.reason for r in rejects] == ["unreadable"]


@pytest.mark.parametrize("suffix", sorted(COMPRESS))
@pytest.mark.parametrize("data", [b"", b"\n \n\n"])
def test_an_empty_file_is_a_clear_error(tmp_path, suffix, data):
    path = tmp_path / f"empty{suffix}"
    path.write_bytes(COMPRESS[suffix](data) if data else data)
    with pytest.raises(PgnError, match=r"\(empty 1\)"):
        read(path)


def test_missing_sources_are_told_before_anything_is_read(tmp_path):
    with pytest.raises(PgnError, match="no such file"):
        read_games(tmp_path / "nowhere.pgn", on_reject=print)
    with pytest.raises(PgnError, match="holds no"):
        read_games(tmp_path, on_reject=print)


def test_a_folder_is_read_in_order_and_a_bad_file_ends_nothing(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "b.PGN.ZST").write_bytes(COMPRESS[".pgn.zst"](OTHER.encode()))
    (tmp_path / "a.pgn").write_text(GAME)
    (tmp_path / "aa.pgn.gz").write_bytes(b"rubbish")
    (tmp_path / "sub" / "c.pgn.zip").write_bytes(
        zipped(("2.pgn", GAME.encode()), ("1.pgn", OTHER.encode()), ("note.txt", b"1. e4"))
    )
    (tmp_path / "readme.txt").write_text("1. e4 e5 *")
    games, rejects = read(tmp_path)
    assert [(g.source, len(g.moves)) for g in games] == [
        ("a.pgn", 5),
        ("b.PGN.ZST", 4),
        ("sub/c.pgn.zip", 4),
        ("sub/c.pgn.zip", 5),
    ]
    assert [(r.reason, r.file) for r in rejects] == [("unreadable", "aa.pgn.gz")]


@pytest.mark.parametrize("mark", [b"; ", b";\x00", b"%\x00"])
def test_a_comment_between_two_games_spoils_neither(reading, mark):
    games, rejects = reading(OTHER.encode() + b"\n" + mark + GAME.encode() + b"\n" + mark)
    assert [(game.moves[0], game.offset) for game in games] == [
        ("f2f3", 0),
        ("e2e4", len(OTHER) + 1 + len(mark) + len(GAME.splitlines(keepends=True)[0])),
    ]
    assert rejects == []


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.binary(max_size=200), st.integers(0, len(GAME)))
@example(b";\x00", 0)
def test_rubbish_in_the_middle_never_raises(tmp_path, rubbish, place):
    data = GAME.encode()
    path = tmp_path / "rubbish.pgn"
    path.write_bytes(OTHER.encode() + b"\n" + data[:place] + rubbish + data[place:])
    games, rejects = read(path)
    assert games[0].moves[:2] == ("f2f3", "e7e5")
    assert {r.reason for r in rejects} <= set(pgn.REASONS)
    for game in games:
        game.position(len(game.moves)).board()


def test_a_game_too_long_to_be_one_is_left_out(reading):
    flood = b"1. e4 " + b"x" * (pgn.MAX_GAME_BYTES + 100) + b"\n\n"
    games, rejects = reading(OTHER.encode() + b'\n[Event "x"]\n\n' + flood + OTHER.encode())
    assert [g.moves[0] for g in games] == ["f2f3", "f2f3"]
    assert [r.reason for r in rejects] == ["unreadable"]


@pytest.mark.parametrize("flood", [b"x", b"1. e4 {", b"(("])
@pytest.mark.parametrize("first", [True, False])
def test_a_flood_without_headers_is_told_and_takes_no_game_with_it(reading, flood, first):
    flood = (flood * pgn.MAX_GAME_BYTES)[: pgn.MAX_GAME_BYTES + 100] + b"\n\n"
    other = OTHER.encode() + b"\n"
    games, rejects = reading(flood + other if first else other + flood)
    assert [g.moves[0] for g in games] == ["f2f3"]
    assert [r.reason for r in rejects] == ["unreadable"]


@pytest.mark.parametrize("number", ["²", "9" * 12, "9" * 400, "9" * 5000])
def test_numbers_that_are_none_are_no_ratings_and_no_clocks(reading, number):
    text = f'[WhiteElo "{number}"]\n[BlackElo "1634"]\n\n1. e4 {{ [%clk {number}:00:01] }} e5 *\n'
    (game,), rejects = reading(text)
    assert (game.white_elo, game.black_elo) == (None, 1634)
    assert (game.clocks, rejects) == ((None, None), [])


def test_a_file_name_that_is_no_utf8_is_told_in_escapes(tmp_path):
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.pgn"))
    path.write_text(OTHER + '\n[Event "x"]\n\n1. e5 *\n')
    for source in (path, tmp_path):
        (game,), (reject,) = read(source)
        assert game.source == reject.file == r"caf\xe9.pgn"


def test_splits_follow_the_shares_and_hang_on_id_and_seed_alone():
    shares = {"test": 0.1, "train": 0.7, "dev": 0.2}
    ids = [f"{i:032x}" for i in range(4000)]
    splits = [split_of(i, shares, seed=1) for i in ids]
    counts = Counter(splits)
    for name, share in shares.items():
        assert abs(counts[name] / len(ids) - share) < 0.03
    assert splits == [split_of(i, dict(sorted(shares.items())), seed=1) for i in ids]
    moved = sum(a != split_of(i, shares, seed=2) for i, a in zip(ids, splits, strict=True))
    assert moved > 1000
    assert {split_of(i, {"dev": 1.0}, 0) for i in ids} == {"dev"}


@pytest.mark.parametrize("shares", [{"train": 0.5}, {"train": 0.5, "held": 0.5}])
def test_shares_that_do_not_sum_are_an_error(shares):
    with pytest.raises(QueenError, match="no shares"):
        split_of("00", shares, 0)


@pytest.mark.data
def test_real_games():
    folder = os.environ.get("QUEEN_TEST_DATA")
    if not folder:
        pytest.skip("needs QUEEN_TEST_DATA")
    games, rejects = read(Path(folder) / "games" / "lila_public.pgn.gz")
    assert (len(games), rejects) == (1505, [])
    assert len({g.id for g in games}) == 1505
    for told in ("clocks", "evals"):
        plies = [value is not None for game in games for value in getattr(game, told)]
        assert sum(plies) > 0.97 * len(plies)
