"""Explanations for people: SAN, plain words, no tokens left."""

from __future__ import annotations

from hypothesis import given, settings
from language_data import explained

from queen.games.chess.position import Position
from queen.language.explanation import Explanation, parse
from queen.language.people import for_people

START = Position.from_fen("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1")
TEXT = """best <N><g1><f3>
line <N><g1><f3> <p><d7><d5>
candidate <N><g1><f3> 0.56 line <p><d7><d5>
candidate <P><h2><h4> 0.41
After <N><g1><f3> <p><d7><d5>, the <N> on <f3> controls <e5>.
Here <P><h2><h4> falls 0.15 short of <N><g1><f3>.
The <N> likes <f3> more than <P><h2><h4>."""


def test_a_page_for_people() -> None:
    assert for_people(parse(TEXT, START), START) == (
        "Best move: 1. Nf3\n"
        "Line: 1. Nf3 d5\n"
        "Candidates:\n"
        "  56% 1. Nf3 d5\n"
        "  41% 1. h4\n"
        "\n"
        "After 1. Nf3 d5, the knight on f3 controls e5. "
        "Here 1. h4 falls 0.15 short of 1. Nf3. "
        "The knight likes f3 more than 1. h4."
    )


@settings(max_examples=60, deadline=None)
@given(explained())
def test_no_tokens_are_left(pair: tuple[Explanation, Position]) -> None:
    page = for_people(*pair)
    assert "<" not in page
    assert ">" not in page
