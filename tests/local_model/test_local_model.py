"""The tiny model behind the server: held to a form it stays in it, and free it is free."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import jsonschema
import pytest

from local_model.fixtures import speaker
from local_model.forms import Form
from local_model.speaker import LocalSpeaker
from queen.games.chess.position import Position
from queen.language.teacher_frontier import question
from queen.language.teacher_hce import Style

__all__ = ["speaker"]

SCHEMA = {
    "type": "object",
    "properties": {
        "move": {"type": "string", "enum": ["e4", "e4+", "d4"]},
        "words": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2},
        "score": {"type": "number"},
    },
}


@pytest.mark.parametrize("letters", [3, 12])
def test_what_it_says_is_valid_by_any_schema_of_ours(speaker: LocalSpeaker, letters: int) -> None:
    own = LocalSpeaker(speaker.model, speaker.tokenizer, letters)
    for plies in (1, 3):
        fen = "r1bqkb1r/pppp1ppp/2n2n2/4p2Q/2B1P3/8/PPPP1PPP/RNB1K1NR w KQkq - 4 4"
        asked = question("x", Position.from_fen(fen), Style(plies, 2, 2), closed=True)
        said = own.say([{"role": "user", "content": asked.user}], 900, asked.schema)
        assert said.finish == "stop"
        jsonschema.validate(json.loads(said.text), dict(asked.schema))


def test_a_form_takes_what_is_in_it_and_nothing_else() -> None:
    form = Form.of(SCHEMA, letters=5)
    whole = '{"move": "e4+", "words": ["ab", ""], "score": 0.25}'
    for at in range(len(whole)):
        after = form.after(whole[:at])
        assert after is not None
        assert not after.complete
        assert whole[at] in after.next_letters()
    end = form.after(whole)
    assert end is not None
    assert end.complete
    assert end.next_letters() == set()
    for wrong in ('{"move": "e5', '{"words"', '{"move": "e4", "words": []', f"{whole}x"):
        assert form.after(wrong) is None
    assert form.after('{"move": "e4", "words": ["abcdef') is None


def test_free_it_answers_within_its_room_and_the_same_each_time(speaker: LocalSpeaker) -> None:
    turn = [{"role": "user", "content": "Best move?"}]
    said = speaker.say(turn, 12)
    assert said == speaker.say(turn, 12)
    assert 1 <= said.answer_tokens <= 12
    assert said.text != speaker.say([{"role": "user", "content": "And now, for Black?"}], 12).text
