"""The consolidator of the paper: a language model folds the children's explanations.

It is shown what may be said (the candidates with the engine's values, and every statement of the
children and the engine that holds) and chooses, orders and words. It adds nothing: a sentence
stays only if it reads as one of those statements, its number, where it gives an evaluation, is
put right by the engine's, and the proof of the rule-based consolidator is asked about the whole;
what it does not bear out is cut and counted. Source: METHOD section 1, step 4 of a round. That
best move, values and lines are not asked for, and that the statements are listed, is ours.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson

from queen.games.chess.notation import san_line
from queen.language import grammar
from queen.language.api.forms import Unusable, read_form
from queen.language.api.messages import Question, Reply
from queen.language.consolidate import Material, Rules
from queen.language.explanation import Explanation, Sentence
from queen.language.ground import Ground
from queen.language.people import sentence_for_people
from queen.language.proof import EVALUATIONS, check
from queen.language.provenance import Consolidated, Inputs, Source
from queen.language.vocabulary import Claim
from queen.language.wording import sentences

SYSTEM = """\
You edit explanations of chess moves. Several people have each looked at the position after one \
candidate move. You are given what they said, as statements about the position before that move, \
each of them true. Fold them into one short explanation: why the best move is best, then what is \
wrong with the others.

Answer with one JSON object and nothing else: {"sentences": [STRING, ...]}

- Add nothing. Every sentence makes exactly one of the given statements; anything else is thrown \
away. Leave out what matters little, and do not say a thing twice.
- Keep the wording of a statement, its moves and its squares. You may put "After ...", \
"Following ..." or "... after ..." around it where it has such words already.
- The most telling statements come first: mates, won material, forks and threats before what \
merely stands somewhere."""

USER = """\
FEN: {fen}
{side} to move. The best move is {best}.

{candidates}

Give at most {sentences} sentences."""


def question(id_: str, inputs: Inputs, known: Material, rules: Rules, *, closed: bool) -> Question:
    """The request for one root; with `closed` its schema lists the statements."""
    ground = Ground(inputs.position)
    said = [sentence_for_people(sentence, ground) for sentence in known.said]
    blocks = [_block(ground, known, said, rank) for rank in range(len(known.candidates))]
    text = USER.format(
        fen=inputs.position.fen,
        side="White" if ground.root.turn else "Black",
        best=san_line(ground.root, (known.candidates[0].move,)),
        candidates="\n\n".join(blocks),
        sentences=rules.sentences,
    )
    return Question(id_, SYSTEM, text, schema(rules, said if closed else None), "folded")


def schema(rules: Rules, said: Sequence[str] | None = None) -> dict[str, Any]:
    """The answer's JSON schema; `said` closes the sentences to a list."""
    sentence = {"type": "string", "enum": list(dict.fromkeys(said))} if said else {"type": "string"}
    several = {
        "type": "array",
        "items": sentence,
        "minItems": 1,
        "maxItems": rules.sentences,
    }
    return {
        "type": "object",
        "properties": {"sentences": several},
        "required": ["sentences"],
        "additionalProperties": False,
    }


def prompts_digest() -> str:
    """SHA-256 of all that is said to the consolidator but for the positions."""
    return hashlib.sha256(orjson.dumps([SYSTEM, USER, schema(Rules())])).hexdigest()


def folded(
    reply: Reply, asked: Question, inputs: Inputs, known: Material, rules: Rules
) -> Consolidated | Unusable:
    """The explanation that a reply makes of its material, or why it makes none."""
    data = read_form(reply, asked.schema)
    if isinstance(data, Unusable):
        return data
    cut: Counter[str] = Counter(known.cut)
    ground = Ground(inputs.position)
    kept: dict[Claim, tuple[Sentence, Source]] = {}
    for text in data["sentences"]:
        found = _traced(text, ground, known)
        if isinstance(found, str):
            cut[f"llm_{found}"] += 1
        elif found[0].claims[0] in kept:
            cut["llm_repeated"] += 1
        else:
            kept[found[0].claims[0]] = found
    pairs = list(kept.values())[: rules.sentences]
    cut["llm_too_many"] += len(kept) - len(pairs)
    pairs = _proved(inputs, known, pairs, cut)
    if not pairs:
        return Unusable("answer.nothing_kept", f"{sum(cut.values())} cut")
    said = {source for _, source in pairs}
    cut["not_selected"] += sum(s.index >= 0 and s not in said for s in known.sources)
    return replace(_whole(inputs, known, pairs), cut=dict(+cut))


def _block(ground: Ground, known: Material, said: Sequence[str], rank: int) -> str:
    """One candidate with its value, its line, and what may be said of it."""
    one = known.candidates[rank]
    line = san_line(ground.root, (one.move, *one.line))
    about = [
        text for text, source in zip(said, known.sources, strict=True) if source.move == one.move
    ]
    head = f"Candidate {line.split(' ', 1)[1].split()[0]}, expected score {one.score:.2f}: {line}"
    return "\n".join([head, *(f"- {text}" for text in about or ["(nothing was said)"])])


def _traced(text: str, ground: Ground, known: Material) -> tuple[Sentence, Source] | str:
    """A sentence as the statement it makes, with that statement's source; else why not."""
    open_ = {
        _core(sentence.claims[0]): (sentence, source)
        for sentence, source in zip(known.said, known.sources, strict=True)
    }
    reason = "malformed"
    for sentence in sentences(text, ground):
        if sentence.claims and _core(sentence.claims[0]) in open_:
            meant, source = open_[_core(sentence.claims[0])]
            return _revalued(sentence, meant.claims[0], ground), source
        if reason != "untraceable":
            reason = "untraceable" if sentence.claims else "no_claim"
    return reason


def _core(claim: Claim) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """What a claim says, its number left out where that is an evaluation."""
    args = claim.args[:-1] if claim.kind in EVALUATIONS else claim.args
    return claim.kind, claim.at, args


def _revalued(sentence: Sentence, claim: Claim, ground: Ground) -> Sentence:
    """The sentence in its own wording with the engine's number."""
    if sentence.claims == (claim,):
        return sentence
    found = grammar.recognise(sentence.text)
    assert found is not None
    return Sentence(grammar.write(claim, ground, found[0].skeleton, found[0].frame), (claim,))


def _proved(
    inputs: Inputs,
    known: Material,
    pairs: list[tuple[Sentence, Source]],
    cut: Counter[str],
) -> list[tuple[Sentence, Source]]:
    """The sentences that the proof bears out."""
    faults = {
        int(violation.part.split()[1]): violation.reason
        for violation in check(_whole(inputs, known, pairs), inputs)
        if violation.part.startswith("sentence ")
    }
    cut.update(f"llm_{reason}" for reason in faults.values())
    return [pair for number, pair in enumerate(pairs) if number not in faults]


def _whole(
    inputs: Inputs, known: Material, pairs: Sequence[tuple[Sentence, Source]]
) -> Consolidated:
    best = known.candidates[0]
    prose = tuple(sentence for sentence, _ in pairs)
    explanation = Explanation(
        inputs.position.fen, best.move, (best.move, *best.line), known.candidates, prose
    )
    return Consolidated(explanation, known.lines, tuple(source for _, source in pairs))
