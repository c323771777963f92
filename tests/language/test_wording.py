"""Plain English read back as the project's sentences."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from language_data import many_positions, positions, sentences

from queen.games.chess.position import Position
from queen.language import wording
from queen.language.claims import board_holds, checkable, stands
from queen.language.explanation import Candidate, Explanation, Sentence, parse, render
from queen.language.grammar import read
from queen.language.ground import Ground
from queen.language.observe import observations
from queen.language.people import sentence_for_people
from queen.language.vocabulary import BOARD_KINDS, KINDS, Claim, Slot
from queen.language.voice import Voice
from queen.language.wording import understand

FEN = "r1bqkb1r/pppp1ppp/2n2n2/4p2Q/2B1P3/8/PPPP1PPP/RNB1K1NR w KQkq - 4 4"
GROUND = Ground(Position.from_fen(FEN))


def test_what_the_project_says_to_people_it_understands() -> None:
    """True observations after random lines: each comes back with its claim and its tokens."""
    heard = 0
    for number, position in enumerate(many_positions(30, seed=21)):
        ground, voice = Ground(position), Voice(2, number)
        for move in list(position.board().legal_moves)[:4]:
            for _, claim in observations(ground, (move.uci(),)):
                said = voice.say(claim, ground)
                found = understand(sentence_for_people(said, ground), ground)
                assert found.sentence == said
                heard += 1
    assert heard > 300


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_sentence_of_the_grammar_is_among_the_readings(data: st.DataObject) -> None:
    position = data.draw(positions())
    ground = Ground(position)
    said = data.draw(sentences(ground))
    words = sentence_for_people(said, ground)
    if len(words) > wording.LONGEST:
        return
    claim = said.claims[0]
    board = ground.after(claim.at)
    assert board is not None
    pairs = zip(KINDS[claim.kind], claim.args, strict=True)
    units = [u for slot, arg in pairs if slot in (Slot.UNIT, Slot.UNITS) for u in arg.split()]
    if any(stands(board, unit) is None for unit in units):
        return  # nobody can tell whose a piece is that stands nowhere
    assert any(reading.claims == said.claims for reading in wording.sentences(words, ground))


@pytest.mark.parametrize(
    ("text", "claim"),
    [
        ("After 4. Qxf7#, Black is checkmated.", Claim("checkmate", ("h5f7",), ("Black",))),
        ("The bishop on c4 attacks the pawn on f7", Claim("attacks", (), ("Bc4", "pf7"))),
        (
            "the black knight on f6 attacks the white queen on h5.",
            Claim("attacks", (), ("nf6", "Qh5")),
        ),
        (
            "After d3 Nxh5, the knight on h5 controls f4.",
            Claim("controls", ("d2d3", "f6h5"), ("nh5", "f4")),
        ),
        (
            "After d2d3 f6h5, the knight on h5 controls f4.",
            Claim("controls", ("d2d3", "f6h5"), ("nh5", "f4")),
        ),
        ("d3 is controlled by the bishop on c4.", Claim("controls", (), ("Bc4", "d3"))),
        ("Nxe4 takes the pawn on e4 after d3.", Claim("takes", ("d2d3",), ("f6e4", "Pe4"))),
        ("After <Q><h5><f7>, Black is checkmated.", Claim("checkmate", ("h5f7",), ("Black",))),
        ("Material  is\nlevel", Claim("level")),
    ],
)  # fmt: skip
def test_a_sentence_is_read_as_its_claim(text: str, claim: Claim) -> None:
    found = understand(text, GROUND)
    assert found.sentence is not None
    assert found.sentence.claims == (claim,)
    assert read(found.sentence.text, GROUND) == (claim,)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("White is 3 pawns ahead in material.", "false"),
        ("The knight on f3 attacks the pawn on e5.", "false"),
        ("The rook on h1 stands on an open file.", "false"),
        ("After Qxf7#, White is checkmated.", "false"),
        ("Qxf7# is a sound move.", "unverifiable"),
        ("After <Q><h5><a1>, Black is checkmated.", "impossible"),
        ("Look: <end>", "malformed"),
        ("x" * 500, "malformed"),
        ("", "malformed"),
        ("Bell \x07 rings twice.", "malformed"),
    ],
)
def test_what_may_not_stand_is_cut_with_its_reason(text: str, reason: str) -> None:
    assert understand(text, GROUND) == wording.Understood(None, reason)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("White's queen on h5 eyes f7, which only the king on e8 guards!",
         "<Q> on <h5> eyes <f7>, which only the <k> on <e8> guards!"),
        ("White plans Nf5 and a king-side attack.", "White plans Nf5 and a king-side attack."),
        ("best is to wait and see", "Best is to wait and see."),
        ("The a1-h8 diagonal is short here.", "The a1-h8 diagonal is short here."),
        ("With d3 White opens c1-h6.", "With <P><d2><d3> White opens c1-h6."),
    ],
)  # fmt: skip
def test_prose_without_a_claim_is_kept_in_tokens(text: str, tokens: str) -> None:
    assert understand(text, GROUND).sentence == Sentence(tokens)


@settings(max_examples=150, deadline=None)
@given(positions(), st.text(max_size=120))
def test_any_text_is_cut_or_can_stand_in_an_explanation(position: Position, text: str) -> None:
    move = next(iter(position.board().legal_moves)).uci()
    found = understand(text, Ground(position))
    assert (found.sentence is None) == bool(found.reason)
    if found.sentence is not None:
        said = _explained(position, move, found.sentence)
        assert parse(render(said), position) == said
        for claim in found.sentence.claims:
            assert checkable(claim)
            assert board_holds(claim, Ground(position))


def _explained(position: Position, move: str, sentence: Sentence) -> Explanation:
    return Explanation(position.fen, move, (move,), (Candidate(move, 0.5),), (sentence,))


def test_a_pattern_is_given_for_every_kind_of_claim_about_the_board() -> None:
    given_ = wording.patterns()
    assert len(given_) == len(set(given_)) == len(BOARD_KINDS) - 1
    assert all("{" not in pattern for pattern in given_)
