"""Games between players: paired openings, adjudication, a record that can be resumed.

Every finished game is one line of a JSON file, appended at once; a match that starts again skips
the games it finds there. A move that is missing or illegal loses the game and is recorded so.
Source: METHOD section 1, Evaluation.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import BinaryIO

import chess
import chess.pgn
import orjson

from queen.engines.analysis import EngineFailure, Limit
from queen.engines.players import Player
from queen.engines.pool import Analyser
from queen.engines.score import expected_from_cp
from queen.errors import QueenError
from queen.games.chess.position import Position

Verdict = Callable[[Sequence[chess.Board]], Sequence[float]]
"""White's expected score, in [0, 1], of each board."""


class MatchError(QueenError):
    """A match that cannot go on: its record is another's, or its adjudicator fails."""


@dataclass(frozen=True)
class Rules:
    """When a game ends other than by the rules of chess.

    Attributes:
        max_plies: plies after which the verdict decides; the opening's are counted.
        draw_margin: at the cap the game is drawn if White's expected score is within this of 0.5.
        check_every: plies between looks for a decided game; 0 never looks.
        decided: two looks running with an expected score this high end the game.
    """

    max_plies: int = 200
    draw_margin: float = 0.15
    check_every: int = 0
    decided: float = 0.98


@dataclass(frozen=True)
class Pairing:
    """One game to play: its number, its players and the opening already on the board."""

    index: int
    white: Player
    black: Player
    opening: Position


@dataclass(frozen=True)
class GameRecord:
    """A finished game.

    Attributes:
        start: FEN the opening begins at. moves: UCI, opening included.
        opening_plies: how many of the moves are the opening's.
        result: "1-0", "0-1" or "1/2-1/2".
        termination: "checkmate", "stalemate", ..., "adjudication: ...", "illegal move: ..." or
            "no move".
    """

    index: int
    white: str
    black: str
    start: str
    moves: tuple[str, ...]
    opening_plies: int
    result: str
    termination: str

    @property
    def white_score(self) -> float:
        """1, 0.5 or 0."""
        return {"1-0": 1.0, "0-1": 0.0, "1/2-1/2": 0.5}[self.result]

    def score_of(self, name: str) -> float:
        """The points of the player of that name."""
        if name not in (self.white, self.black):
            raise ValueError(f"{name} did not play game {self.index}")
        return self.white_score if name == self.white else 1.0 - self.white_score


def material_verdict(boards: Sequence[chess.Board]) -> list[float]:
    """White's expected score by material alone: 1, 3, 3, 5, 9 pawns of 100 centipawns."""
    return [expected_from_cp(100 * _material(board)) for board in boards]


def engine_verdict(analyser: Analyser, limit: Limit) -> Verdict:
    """A verdict by engine searches. It raises MatchError where the engine fails."""

    def verdict(boards: Sequence[chess.Board]) -> list[float]:
        fens = [board.fen(en_passant="legal") for board in boards]
        values = []
        for board, answer in zip(boards, analyser.analyse(fens, limit), strict=True):
            if isinstance(answer, EngineFailure):
                raise MatchError(
                    f"the engine that adjudicates failed ({answer.reason}): {answer.detail}",
                    where=answer.fen,
                    remedy="run again (finished games are kept), or adjudicate by material",
                )
            values.append(answer.expected if board.turn else 1.0 - answer.expected)
        return values

    return verdict


def paired(
    players: Iterable[tuple[Player, Player]], openings: Sequence[Position], first: int = 0
) -> list[Pairing]:
    """Two games, colours reversed, for each two players and each opening, numbered from `first`."""
    games = (
        (white, black, opening)
        for one, other in players
        for opening in openings
        for white, black in ((one, other), (other, one))
    )
    return [Pairing(first + n, *game) for n, game in enumerate(games)]


def play(
    pairings: Sequence[Pairing],
    rules: Rules,
    verdict: Verdict = material_verdict,
    *,
    record: Path | None = None,
    concurrency: int = 32,
) -> list[GameRecord]:
    """Play the games that `record` does not hold yet; return all, in the order of `pairings`.

    Args:
        record: JSON lines of finished games, read first and appended to.
        concurrency: how many games share a batch of moves; the results do not depend on it.

    Raises MatchError where the record holds a game of these numbers between others.
    """
    done = _resume(record, pairings)
    todo = [pairing for pairing in pairings if pairing.index not in done]
    out = record.open("ab") if record else None
    try:
        for game in _finish(todo, rules, verdict, concurrency):
            done[game.index] = game
            if out:
                _append(out, game)
    finally:
        if out:
            out.close()
    return [done[pairing.index] for pairing in pairings]


def read_record(path: Path) -> list[GameRecord]:
    """Games in the order they ended. A torn last line is cut off the file.

    Raises MatchError on a broken line elsewhere.
    """
    data = path.read_bytes() if path.exists() else b""
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        with path.open("rb+") as file:
            file.truncate(len(whole))
    return [_parse(line, f"{path}, line {n}") for n, line in enumerate(whole.splitlines(), 1)]


def to_pgn(game: GameRecord, headers: Mapping[str, str] | None = None) -> str:
    """The game as PGN, without date or place; `headers` are added, or replace those of the game."""
    board = chess.Board(game.start)
    tree = chess.pgn.Game()
    tree.setup(board)
    tree.add_line([chess.Move.from_uci(uci) for uci in game.moves])
    own = {
        "White": game.white,
        "Black": game.black,
        "Round": str(game.index + 1),
        "Result": game.result,
        "PlyCount": str(len(game.moves)),
        "OpeningPlies": str(game.opening_plies),
        "Termination": game.termination,
    }
    tree.headers.update(own | dict(headers or {}))
    out = io.StringIO()
    print(tree, file=out)
    return out.getvalue()


@dataclass
class _Running:
    """A game under way."""

    pairing: Pairing
    board: chess.Board
    opening_plies: int
    looks: list[float] = field(default_factory=list)
    result: str = ""
    termination: str = ""

    @classmethod
    def begin(cls, pairing: Pairing) -> _Running:
        board = pairing.opening.board()
        return cls(pairing, board, len(board.move_stack))

    @property
    def mover(self) -> Player:
        return self.pairing.white if self.board.turn else self.pairing.black

    def end(self, result: str, termination: str) -> None:
        self.result, self.termination = result, termination

    def lose(self, why: str) -> None:
        self.end("0-1" if self.board.turn else "1-0", why)

    def record(self) -> GameRecord:
        pairing, board = self.pairing, self.board
        moves = tuple(move.uci() for move in board.move_stack)
        names = pairing.white.name, pairing.black.name
        return GameRecord(
            pairing.index,
            *names,
            pairing.opening.start,
            moves,
            self.opening_plies,
            self.result,
            self.termination,
        )


def _finish(
    todo: Sequence[Pairing], rules: Rules, verdict: Verdict, concurrency: int
) -> Iterator[GameRecord]:
    """Play on all boards at once; games leave as they end and others take their place."""
    waiting = iter(todo)
    running: list[_Running] = []
    while True:
        while len(running) < concurrency and (pairing := next(waiting, None)):
            running.append(_Running.begin(pairing))
        if not running:
            return
        _judge(running, rules, verdict)
        yield from (game.record() for game in running if game.result)
        running = [game for game in running if not game.result]
        _step(running)
        yield from (game.record() for game in running if game.result)
        running = [game for game in running if not game.result]


def _step(running: Sequence[_Running]) -> None:
    """One ply on every board, one batch for each player."""
    batches: dict[int, list[_Running]] = {}
    for game in running:
        batches.setdefault(id(game.mover), []).append(game)
    for games in batches.values():
        moves = games[0].mover.moves([game.board for game in games])
        for game, move in zip(games, moves, strict=True):
            _push(game, move)


def _push(game: _Running, move: chess.Move | None) -> None:
    if move is None:
        game.lose("no move")
    elif not game.board.is_legal(move):
        game.lose(f"illegal move: {move.uci()}")
    else:
        game.board.push(move)


def _judge(running: Sequence[_Running], rules: Rules, verdict: Verdict) -> None:
    """End the games that are over by the rules of chess or by ours."""
    for game in running:
        if outcome := outcome_by_rules(game.board):
            game.end(*outcome)
    due = [game for game in running if not game.result and _due(game, rules)]
    if not due:
        return
    for game, value in zip(due, verdict([game.board for game in due]), strict=True):
        game.looks.append(value)
        _adjudicate(game, rules)


def outcome_by_rules(board: chess.Board) -> tuple[str, str] | None:
    """Result and reason, or None while the game goes on; repetition and fifty moves end it."""
    if outcome := board.outcome():
        return outcome.result(), outcome.termination.name.lower().replace("_", " ")
    if board.halfmove_clock >= 100:
        return "1/2-1/2", "fifty moves"
    if board.halfmove_clock >= 4 and board.is_repetition(3):
        return "1/2-1/2", "threefold repetition"
    return None


def _due(game: _Running, rules: Rules) -> bool:
    plies = len(game.board.move_stack)
    played = plies - game.opening_plies
    look = rules.check_every and played and played % rules.check_every == 0
    return plies >= rules.max_plies or bool(look)


def _adjudicate(game: _Running, rules: Rules) -> None:
    last = game.looks[-2:] if len(game.looks) > 1 else [0.5]
    if min(last) >= rules.decided:
        game.end("1-0", "adjudication: decided")
    elif max(last) <= 1 - rules.decided:
        game.end("0-1", "adjudication: decided")
    elif len(game.board.move_stack) >= rules.max_plies:
        lead = game.looks[-1] - 0.5
        winner = "1-0" if lead > 0 else "0-1"
        result = "1/2-1/2" if abs(lead) <= rules.draw_margin else winner
        game.end(result, "adjudication: ply limit")


def _material(board: chess.Board) -> int:
    kinds = ((chess.PAWN, 1), (chess.KNIGHT, 3), (chess.BISHOP, 3), (chess.ROOK, 5))
    return sum(
        value * (len(board.pieces(kind, chess.WHITE)) - len(board.pieces(kind, chess.BLACK)))
        for kind, value in (*kinds, (chess.QUEEN, 9))
    )


def to_line(game: GameRecord) -> bytes:
    """The game as a line of a record, which `read_record` reads."""
    return orjson.dumps(asdict(game)) + b"\n"


def _append(out: BinaryIO, game: GameRecord) -> None:
    out.write(to_line(game))
    out.flush()


def _parse(line: bytes, where: str) -> GameRecord:
    try:
        fields = orjson.loads(line)
        return GameRecord(**{**fields, "moves": tuple(fields["moves"])})
    except (orjson.JSONDecodeError, TypeError, KeyError) as error:
        raise MatchError(
            f"not a finished game: {error}", where=where, remedy="delete the line or the file"
        ) from error


def _resume(record: Path | None, pairings: Sequence[Pairing]) -> dict[int, GameRecord]:
    """Finished games by number, each checked against the pairing of that number."""
    if record is None:
        return {}
    wanted = {pairing.index: pairing for pairing in pairings}
    games = {game.index: game for game in read_record(record) if game.index in wanted}
    for index, game in games.items():
        pairing = wanted[index]
        same = (game.white, game.black) == (pairing.white.name, pairing.black.name)
        opening = game.moves[: game.opening_plies] == pairing.opening.moves
        if not (same and opening and game.start == pairing.opening.start):
            raise MatchError(
                f"game {index} was played by others or from another opening",
                where=str(record),
                remedy="give this match a record of its own, or delete the file",
            )
    return games
