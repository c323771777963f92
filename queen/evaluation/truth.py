"""Is the prose about this position? Its claims checked on the board, here and elsewhere.

A sentence can be checked if what it says is for the board alone to decide (`language.claims`):
what stands where, what attacks what, material, a move that takes or mates. What only an engine
can decide (a score, a best reply) is no claim here, whether its moves are legal or not.

A share of true claims says little by itself: "White can castle kingside" holds in many positions.
So the same sentences are put to another position too, squares and pieces as written. A claim
whose moves cannot be played there is false there; the shares among claims that can be put there
at all are told beside. Source: METHOD section 1 (what ours adds); the shuffle is ours.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from queen.evaluation.intervals import SAMPLES, Interval, ratio_bootstrap
from queen.language.claims import board_holds
from queen.language.form import prose_of
from queen.language.grammar import read, stated
from queen.language.ground import Ground
from queen.language.vocabulary import BOARD_KINDS, IMPOSSIBLE, Claim


@dataclass(frozen=True)
class ProseCount:
    """What one text's prose says, counted.

    Attributes:
        sentences: all of them. readable: those that fit a skeleton.
        claims: those of them that the board alone decides, one claim each.
        playable: claims whose moves, if they speak of any, can be played in their own position.
        true: claims that hold there.
        playable_elsewhere, true_elsewhere: the same in another position.
    """

    sentences: int = 0
    readable: int = 0
    claims: int = 0
    playable: int = 0
    true: int = 0
    playable_elsewhere: int = 0
    true_elsewhere: int = 0


@dataclass(frozen=True)
class Truth:
    """Shares over the prose of many texts, with intervals by bootstrap over games.

    A share of nothing is None.

    Attributes:
        checkable: claims, of all sentences.
        truth: true, of all claims. truth_shuffled: the same elsewhere.
        truth_gain: the difference of the two.
        truth_playable: true, of the claims that can be put to their own position at all;
            truth_shuffled_playable: elsewhere.
    """

    checkable: Interval | None
    truth: Interval | None
    truth_shuffled: Interval | None
    truth_gain: Interval | None
    truth_playable: Interval | None
    truth_shuffled_playable: Interval | None


def count_prose(text: str, here: Ground, elsewhere: Ground, *, finished: bool = True) -> ProseCount:
    """Check the prose of a text, sound or not, against two positions.

    Args:
        here: the position it is about.
        elsewhere: the position it is put to besides.
        finished: False where the writer was stopped before its end mark.
    """
    rows = prose_of(text, finished=finished)
    claims = [(row, stated(row)) for row in rows]
    checked = [(row, c) for row, c in claims if c is not None and c.kind in BOARD_KINDS]
    own = [_verdict(row, claim, here) for row, claim in checked]
    other = [_verdict(row, claim, elsewhere) for row, claim in checked]
    return ProseCount(
        sentences=len(rows),
        readable=sum(claim is not None for _, claim in claims),
        claims=len(checked),
        playable=sum(verdict is not None for verdict in own),
        true=sum(verdict is True for verdict in own),
        playable_elsewhere=sum(verdict is not None for verdict in other),
        true_elsewhere=sum(verdict is True for verdict in other),
    )


def _verdict(row: str, claim: Claim, ground: Ground) -> bool | None:
    """Whether a sentence's claim holds; None if its moves cannot be played there."""
    if any(found.kind == IMPOSSIBLE for found in read(row, ground)):
        return None
    return board_holds(claim, ground)


def partners(white_to_move: Sequence[bool], seed: int) -> list[int]:
    """For each position the number of another one, each taken once, to put its prose to.

    A seeded cycle through the positions in which the same side is to move: with the other side to
    move nearly no move could be played, and the comparison would be too easy. Where a side has
    one position alone, one cycle goes through all.

    Args:
        white_to_move: of each position.

    Returns:
        A position has itself only if it is the only one.
    """
    order = np.random.default_rng(seed).permutation(len(white_to_move)).tolist()
    sides = [[n for n in order if white_to_move[n] is white] for white in (True, False)]
    cycles = [order] if any(len(side) == 1 for side in sides) else sides
    found = {n: cycle[at - 1] for cycle in cycles for at, n in enumerate(cycle)}
    return [found[n] for n in range(len(white_to_move))]


def truth_of(
    counts: Sequence[ProseCount],
    games: Sequence[Hashable],
    *,
    seed: int,
    samples: int = SAMPLES,
    level: float = 0.95,
) -> Truth:
    """Shares over all claims of all texts.

    Args:
        counts: of each text.
        games: the game that each text's position is from.
        seed, samples, level: of the bootstrap.
    """
    table = {f.name: np.array([getattr(c, f.name) for c in counts]) for f in fields(ProseCount)}
    table["gain"] = table["true"] - table["true_elsewhere"]

    def share(part: str, whole: str) -> Interval | None:
        if not table[whole].sum():
            return None
        parts, wholes = table[part], table[whole]
        return ratio_bootstrap(parts, wholes, games, seed=seed, samples=samples, level=level)

    return Truth(
        checkable=share("claims", "sentences"),
        truth=share("true", "claims"),
        truth_shuffled=share("true_elsewhere", "claims"),
        truth_gain=share("gain", "claims"),
        truth_playable=share("true", "playable"),
        truth_shuffled_playable=share("true_elsewhere", "playable_elsewhere"),
    )
