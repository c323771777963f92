"""The engine's side of UCI, spoken to line by line: order, clocks, faults, ends."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping

import chess
import pytest

from queen.engines.players import MaterialPlayer
from queen.engines.server import Engine, UciServer, read_board
from queen.engines.thinking import Search, Thinker, Value
from queen.errors import QueenError
from queen.games.chess.position import PositionError
from queen.generation.options import EXPLAINING_OPTIONS

TAKES = "fen 4k3/8/8/3q4/4P3/8/8/4K3 w - - 0 1"
WAIT_S = 20.0


class Material:
    """One ply of material, which is real play; it notes what it was given."""

    def __init__(self) -> None:
        self.seen: list[tuple[chess.Board, dict[str, Value]]] = []

    def think(self, board: chess.Board, search: Search, options: Mapping[str, Value]) -> chess.Move:
        self.seen.append((board.copy(), dict(options)))
        move = MaterialPlayer(1).moves([board])[0]
        search.say(f"depth 1 pv {move.uci()}")
        return move


class Patient(Material):
    """Thinks until its time is up."""

    def think(self, board: chess.Board, search: Search, options: Mapping[str, Value]) -> chess.Move:
        while not search.over():
            time.sleep(0.002)
        return super().think(board, search, options)


class Talk:
    """A conversation with a server in a thread of its own."""

    def __init__(self, load: Callable[[], Thinker]) -> None:
        self.said: queue.Queue[str] = queue.Queue()
        self.lines: queue.Queue[str | None] = queue.Queue()
        self.status: list[int] = []
        server = UciServer(Engine("Queen test", EXPLAINING_OPTIONS, load), self.said.put)
        self.thread = threading.Thread(target=lambda: self.status.append(server.serve(self._in())))
        self.thread.start()

    def _in(self) -> Iterator[str]:
        while (line := self.lines.get(timeout=WAIT_S)) is not None:
            yield line

    def send(self, *lines: str) -> None:
        for line in lines:
            self.lines.put(line)

    def until(self, word: str) -> list[str]:
        """What is said, up to the first line that begins so."""
        heard = [self.said.get(timeout=WAIT_S)]
        while not heard[-1].startswith(word):
            heard.append(self.said.get(timeout=WAIT_S))
        return heard

    def end(self) -> int:
        self.lines.put(None)
        self.thread.join(WAIT_S)
        return self.status[0]


@pytest.fixture
def talk() -> Iterator[Callable[..., Talk]]:
    made: list[Talk] = []

    def begin(load: Callable[[], Thinker] = Material) -> Talk:
        made.append(Talk(load))
        return made[-1]

    yield begin
    for one in made:
        one.lines.put(None)
        one.thread.join(WAIT_S)
        assert not one.thread.is_alive()


def test_uci_is_answered_before_anything_is_loaded(talk: Callable[..., Talk]) -> None:
    loads: list[int] = []

    def load() -> Thinker:
        loads.append(1)
        return Material()

    one = talk(load)
    one.send("uci")
    heard = one.until("uciok")
    assert heard[:2] == ["id name Queen test", "id author the Queen project"]
    assert heard[2:-1] == [str(option) for option in EXPLAINING_OPTIONS]
    assert loads == []
    one.send("isready", "isready", "go depth 3")
    assert one.until("bestmove").count("readyok") == 2
    assert loads == [1]
    assert one.end() == 0


def test_a_game_goes_on_with_its_history(talk: Callable[..., Talk]) -> None:
    thinker = Material()
    one = talk(lambda: thinker)
    one.send("ucinewgame", f"position {TAKES} moves e4d5", "go movetime 5")
    assert one.until("bestmove")[-1] in {
        f"bestmove e8{square}" for square in ["d8", "d7", "e7", "f7", "f8"]
    }
    one.send(f"position {TAKES}", "go wtime 1000 btime 1000")
    assert one.until("bestmove")[-1] == "bestmove e4d5"
    boards = [board for board, _ in thinker.seen]
    assert [move.uci() for move in boards[0].move_stack] == ["e4d5"]
    assert boards[0].root().fen() == TAKES.removeprefix("fen ")


def test_unknown_words_are_passed_over(talk: Callable[..., Talk]) -> None:
    one = talk()
    one.send("xyzzy", "", "joho isready", "register later", "debug on", "bla go depth 1")
    assert one.until("readyok") == ["readyok"]
    assert one.until("bestmove")[-1] != "bestmove 0000"


@pytest.mark.parametrize(
    ("position", "says"),
    [
        ("fen not a fen", "not a FEN"),
        ("fen 8/8/8/8/8/8/8/8 w - - 0 1", "not a legal position"),
        ("startpos moves e2e4 e2e4", "move 2, 'e2e4', cannot be played"),
        ("startpos moves e7e5", "move 1"),
        ("startpos moves e2e4 0000", "move 2, '0000', cannot be played"),
        ("here", "neither `startpos` nor `fen`"),
        ("", "neither `startpos` nor `fen`"),
    ],
)
def test_a_bad_position_is_told_and_nothing_is_played_there(
    talk: Callable[..., Talk], position: str, says: str
) -> None:
    one = talk()
    one.send(f"position {position}", "go", "position startpos", "go")
    heard = one.until("bestmove")
    assert any(says in line for line in heard)
    assert all(line.startswith("info string error: ") for line in heard[:-1])
    assert heard[-1] == "bestmove 0000"
    assert one.until("bestmove")[-1] != "bestmove 0000"
    with pytest.raises(PositionError):
        read_board(position.split())


def test_a_finished_game_has_no_move(talk: Callable[..., Talk]) -> None:
    one = talk()
    one.send("position startpos moves f2f3 e7e5 g2g4 d8h4", "go")
    assert one.until("bestmove") == ["info depth 0 score mate 0", "bestmove (none)"]
    one.send("position fen 7k/5Q2/6K1/8/8/8/8/8 b - - 0 1", "go")
    assert one.until("bestmove") == ["info depth 0 score cp 0", "bestmove (none)"]


def test_options_reach_the_player_and_wrong_ones_are_told(talk: Callable[..., Talk]) -> None:
    thinker = Material()
    one = talk(lambda: thinker)
    one.send(
        "setoption name explain value false", "setoption name Move Overhead value 120",
        "setoption name Temperature value 0.7", "setoption name Temperature value hot",
        "setoption name Hash value 16", "setoption", "go",
    )  # fmt: skip
    errors = [line for line in one.until("bestmove") if "error" in line]
    assert [line.split(": ")[1] for line in errors if "remedy" not in line][:2] == [
        "Temperature", "Hash",
    ]  # fmt: skip
    values = thinker.seen[0][1]
    assert (values["Explain"], values["Move Overhead"], values["Temperature"]) == (False, 120, 0.7)


def test_questions_are_answered_while_it_thinks_and_stop_ends_it(talk: Callable[..., Talk]) -> None:
    one = talk(Patient)
    one.send("isready")
    one.until("readyok")
    one.send("go infinite", "isready")
    assert one.until("readyok") == ["readyok"]
    one.send("stop")
    assert one.until("bestmove")[-1] != "bestmove 0000"
    one.send("stop", "isready")
    assert one.until("readyok") == ["readyok"]


@pytest.mark.parametrize("word", ["ponder", "infinite"])
def test_an_endless_search_answers_only_when_asked(talk: Callable[..., Talk], word: str) -> None:
    one = talk(Material)
    one.send(f"go {word}")
    one.until("info depth 1")
    one.send("isready")
    assert one.until("readyok") == ["readyok"]
    one.send("ponderhit")
    assert one.until("bestmove")[-1].startswith("bestmove ")


def test_a_new_search_ends_the_one_before(talk: Callable[..., Talk]) -> None:
    one = talk(Patient)
    one.send("go infinite", "go movetime 1")
    assert len([one.until("bestmove") for _ in range(2)]) == 2


@pytest.mark.parametrize("last", ["quit", None])
def test_quit_and_the_end_of_commands_end_the_search(
    talk: Callable[..., Talk], last: str | None
) -> None:
    one = talk(Patient)
    one.send("go infinite", *([last] if last else []))
    assert one.end() == 0
    assert one.until("bestmove")


def test_a_player_that_fails_is_replaced_by_a_legal_move_and_said_so(
    talk: Callable[..., Talk],
) -> None:
    class Broken:
        def think(
            self, board: chess.Board, search: Search, options: Mapping[str, Value]
        ) -> chess.Move:
            if board.fullmove_number == 1:
                return chess.Move.from_uci("e2e5")
            raise QueenError("out of wits", where="here", remedy="think again")

    one = talk(Broken)
    one.send("position startpos", "go", "position startpos moves e2e4 e7e5", "go")
    heard = one.until("bestmove")
    assert heard[0] == "info string error: e2e5 is not legal here"
    assert heard[-1] == "bestmove a2a3"
    heard = one.until("bestmove")
    assert heard[0] == "info string error: here: out of wits"
    assert (
        chess.Move.from_uci(heard[-1].split()[1])
        in read_board(["startpos", "moves", "e2e4", "e7e5"]).legal_moves
    )


def test_a_player_that_cannot_be_loaded_ends_the_engine_with_a_fault(
    talk: Callable[..., Talk],
) -> None:
    def load() -> Thinker:
        raise QueenError("no such model", where="models/r9", remedy="name another")

    one = talk(load)
    one.send("uci", "isready", "go")
    one.thread.join(WAIT_S)
    assert one.status == [1]
    heard = one.until("info string error: remedy")
    assert "info string error: models/r9: no such model" in heard
    assert "readyok" not in heard
