"""A stream is cut into parts and games the same way however it arrives."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from queen.games.chess.archives import ArchiveError
from queen.games.chess.pgn_split import split_games
from queen.positions.cutting import SLACK, Part, games_of, parts

GAME = '[Event "{n}"]\n[White "Ada"]\n[Result "1-0"]\n\n1. e4 {{ number {n} }} e5 1-0\n\n'
TEXT = "".join(GAME.format(n=n) for n in range(300)).encode()


def pieces(text: bytes, rng: random.Random) -> Iterator[bytes]:
    at = 0
    while at < len(text):
        size = rng.randrange(1, 4000)
        yield text[at : at + size]
        at += size


@pytest.mark.parametrize("size", [1, 500, 4000, 10**6])
def test_parts_do_not_depend_on_the_pieces_they_arrive_in(size: int) -> None:
    whole = list(parts([TEXT], size))
    assert b"".join(part.data for part in whole) == TEXT
    assert list(parts(pieces(TEXT, random.Random(1)), size)) == whole
    assert all(part.data.startswith(b"[Event ") for part in whole)
    assert all(len(part.data) >= size for part in whole[:-1])


def test_a_stream_taken_up_at_a_part_gives_the_rest() -> None:
    whole = list(parts([TEXT], 3000))
    later = whole[2]
    assert list(parts([TEXT[later.offset :]], 3000, later.offset)) == whole[2:]


def test_games_keep_their_offsets() -> None:
    found = [game for part in parts([TEXT], 3000) for game in games_of(part)]
    assert len(found) == 300
    for game in found:
        assert game.plain
        assert TEXT[game.offset :].startswith(game.head + game.body)


def test_a_broken_stream_gives_what_it_held() -> None:
    failure = ArchiveError("it breaks", reason="truncated_archive")

    def broken() -> Iterator[bytes]:
        yield TEXT[:5000]
        raise failure

    found = list(parts(broken(), 2000))
    assert b"".join(part.data for part in found) == TEXT[:5000]
    assert [part.failure for part in found] == [None] * (len(found) - 1) + [failure]
    games = list(games_of(found[-1]))
    assert [game.cut for game in games] == [False] * (len(games) - 1) + [True]


def test_text_without_a_game_is_cut_all_the_same() -> None:
    size = 1000
    noise = b"x" * (2 * SLACK)
    found = list(parts([noise], size))
    assert b"".join(part.data for part in found) == noise
    assert max(len(part.data) for part in found) <= size + SLACK


ODD = [
    b'[Event "a"]\n[Site "?"]\n1. e4 e5 1-0\n[Event "b"]\n\n1. d4 *\n',
    b'[Event "a"]\n\n1. e4 {\n\n[Event "not one"]\n} e5 1-0\n\n[Event "b"]\n\n1. d4 *\n',
    b"1. e4 e5 1-0\n\n1. d4 d5 *\n",
    b'[Event "a"]\r\n\r\n1. e4 e5\r\n2. Nf3 1-0\r\n\r\n[Event "b"]\r\n\r\n1. d4 *\r\n',
    b'[Event "a"]\n\n1. e4\n\ne5 {blank lines} 1-0\n\n[Site "b"]\n\n1. d4 *\n',
    b'\xef\xbb\xbf[Event "a"]\n\n1. e4 *\n',
    b'% made by hand\n[Event "a"]\n\n1. e4\n% and this\ne5 *\n',
    b'[Event "a"]\n\n[Event "b"]\n\n1. e4 *\n',
]


@pytest.mark.parametrize("text", ODD)
def test_odd_files_are_cut_as_line_by_line(text: bytes) -> None:
    """The comment that holds an empty line and a header is the one that is cut otherwise."""
    found = list(games_of(Part(text, 0)))
    slow = [game for game in split_games([text]) if game.body or game.head]
    if b"not one" not in text:
        assert [(g.offset, b"".join(g.head).strip(), b"".join(g.body).split()) for g in slow] == [
            (g.offset, g.head.strip(), g.body.split()) for g in found
        ]
    assert found[-1].body.split()[:1] == [b"1."]


def test_nothing_gives_nothing() -> None:
    assert list(parts([], 10)) == []
    assert list(games_of(Part(b"", 0))) == []
