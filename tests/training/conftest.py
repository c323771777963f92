"""A real model at a size for tests: an SE-ResNet with random weights, a two-layer decoder."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

import chess
import pytest
import torch

from queen.games.chess.position import Position
from queen.language.questions.bank import Question, ask
from queen.language.tokenizer import train_tokenizer
from queen.networks.build import BridgeSettings, DecoderSettings, EncoderInfo, build_queen
from queen.networks.expert import Expert
from queen.networks.lc0.config import Lc0Config
from queen.networks.lc0.encoder import Lc0Encoder
from queen.networks.lc0.format import NetFormat
from queen.networks.lc0.resnet import ResNetShape, build_resnet
from queen.networks.queen import QueenModel
from queen.training.curriculum import question_turn

WIDTH = 16
STATES = (1, 2)


def random_positions(count: int, seed: int = 0) -> list[Position]:
    """Positions of random games, with their history."""
    rng = random.Random(seed)
    found: list[Position] = []
    while len(found) < count:
        board, position = chess.Board(), Position(chess.STARTING_FEN)
        for _ in range(rng.randrange(4, 40)):
            if board.is_game_over():
                break
            move = rng.choice(list(board.legal_moves)).uci()
            board.push_uci(move)
            position = position.child(move)
        if not board.is_game_over():
            found.append(position)
    return found


@pytest.fixture(scope="session")
def positions() -> list[Position]:
    return random_positions(40)


@pytest.fixture(scope="session")
def questions(positions: list[Position]) -> list[Question]:
    """Some kinds of question about each position, those of a position together."""
    rng = random.Random(1)
    kinds = ["piece_on", "side_to_move", "in_check"]
    found = [ask(position, (), kind, rng) for position in positions for kind in kinds]
    return [question for question in found if question is not None]


@pytest.fixture(scope="session")
def tokenizer(questions: list[Question]) -> Any:
    turns = [question_turn(question) for question in questions]
    return train_tokenizer([text for turn in turns for text in (turn.prompt, turn.answer)], 350)


@pytest.fixture(scope="session")
def encoder() -> Lc0Encoder:
    torch.manual_seed(3)
    shape = ResNetShape(WIDTH, (4, 4), 8, 0, 0, 0, 0, 0, 4, 16, 0, 0)
    form = NetFormat(input=1, output=2, network=4, policy=2, value=2)
    return build_resnet(Lc0Config(form, shape))


@pytest.fixture(scope="session")
def expert(encoder: Lc0Encoder) -> Expert:
    return Expert(encoder, STATES, memory_mb=0)


@pytest.fixture(scope="session")
def new_model(tokenizer: Any, expert: Expert) -> Callable[..., QueenModel]:
    """Builds the same small model each time; `gate` is where its gates start."""
    start = build_queen(
        DecoderSettings(width=32, layers=2, heads=2, kv_heads=2, ffn=64, max_length=256),
        BridgeSettings(states=STATES, layers=(0, 1), heads=2, state_mlp=32),
        tokenizer,
        EncoderInfo("random", expert.digest, 3, WIDTH),
        seed=0,
    )

    def new(gate: float = 0.0) -> QueenModel:
        model = copy.deepcopy(start)
        for bridge in model.blocks:
            bridge.attention_gate.data.fill_(gate)
            bridge.ffn_gate.data.fill_(gate)
        return model

    return new


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads of small operations that share cores with other tests wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
