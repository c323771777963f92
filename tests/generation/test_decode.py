from __future__ import annotations

import copy
import random
from dataclasses import replace

import chess
import pytest
import torch
from generation_parts import (
    LONGEST,
    STATE,
    RandomExpert,
    generator,
    model,
    positions,
    requests,
    tokenizer,
)
from torch import Tensor

from queen.games.chess.notation import move_text
from queen.games.chess.position import Position
from queen.generation.decode import Completion, GenerationError, Generator, Request, Sampling
from queen.generation.fused import FusedStepper
from queen.generation.generic import GenericStepper
from queen.generation.slots import Stepper
from queen.generation.trie import MoveTrees
from queen.language.prompts import explain_prompt
from queen.networks.digest import weights_digest
from queen.networks.llama import supports
from queen.networks.queen import QueenModel

GREEDY = Sampling(max_new_tokens=24)
DRAWN = Sampling(temperature=1.0, max_new_tokens=24)
NUCLEUS = Sampling(temperature=0.9, top_p=0.8, max_new_tokens=24)
PROMOTING = Position.from_fen("1n2k3/P7/8/8/8/8/7p/4K1N1 w - - 0 1")


def encoded(request: Request) -> list[int]:
    ids: list[int] = tokenizer()(request.prompt + request.prefix)["input_ids"]
    return ids


def full_logits(request: Request, ids: list[int], name: str = "smollm3") -> Tensor:
    """Logits [T, V] of the model's own forward."""
    with torch.no_grad():
        made = model(name)
        logits: Tensor = made(torch.tensor([ids]), RandomExpert().states([request.position]))
    return logits[0]


@pytest.mark.parametrize(
    ("name", "fused"), [("smollm3", True), ("llama", True), ("smollm3", False), ("gpt2", False)]
)
@pytest.mark.parametrize("sampling", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_cached_steps_give_the_full_forwards_probabilities(
    name: str, fused: bool, sampling: Sampling
) -> None:
    asked = requests(11)
    made = generator(4, name, fused=fused)
    assert isinstance(made.stepper, FusedStepper if fused else GenericStepper)
    for request, done in zip(asked, made.generate(asked, sampling), strict=True):
        start = encoded(request)
        ids = start + list(done.tokens) + [made.model.config.end_id] * done.finished
        logprobs = full_logits(request, ids, name).log_softmax(-1)
        steps = range(len(start), len(ids))
        own = sum(float(logprobs[t - 1, ids[t]]) for t in steps)
        assert done.logprob == pytest.approx(own, abs=2e-3)
        if sampling is GREEDY:
            best = [float(logprobs[t - 1].max() - logprobs[t - 1, ids[t]]) for t in steps]
            assert max(best) < 1e-3


@pytest.mark.parametrize("sampling", [GREEDY, DRAWN, NUCLEUS], ids=["greedy", "drawn", "nucleus"])
def test_a_batch_writes_what_each_request_alone_would(sampling: Sampling) -> None:
    asked = requests(30)
    together, alone = generator(9).generate(asked, sampling), generator(1).generate(asked, sampling)
    assert len({done.text for done in together}) > 15
    assert 0 < sum(done.finished for done in together) < len(asked)
    same = [one == other.text for one, other in zip((d.text for d in together), alone, strict=True)]
    assert sum(same) >= 0.995 * len(asked)


def gap(request: Request, tokens: list[int]) -> float:
    """How far apart the two likeliest tokens are after these, in log-probability."""
    logprobs = full_logits(request, encoded(request) + tokens)[-1].log_softmax(-1)
    first, second = logprobs.topk(2).values.tolist()
    return float(first - second)


def parted(one: Completion, other: Completion) -> list[int]:
    """The tokens that two texts share at their beginning."""
    same = [a == b for a, b in zip(one.tokens, other.tokens, strict=False)]
    return list(one.tokens[: same.index(False) if False in same else len(same)])


def test_hundreds_of_texts_part_from_those_written_alone_only_where_two_tokens_tie() -> None:
    asked = requests(250, seed=3)
    together, alone = generator(64).generate(asked, GREEDY), generator(1).generate(asked, GREEDY)
    pairs = zip(asked, together, alone, strict=True)
    differ = [(request, one, other) for request, one, other in pairs if one.text != other.text]
    assert len(differ) <= 0.005 * len(asked)
    assert all(gap(request, parted(one, other)) < 1e-3 for request, one, other in differ)
    assert len({done.text for done in together}) > 120


def test_the_measure_of_a_tie_sees_where_number_types_part_texts() -> None:
    asked = requests(60)
    exact, near = generator(30), generator(30, dtype=torch.bfloat16)
    pairs = zip(asked, exact.generate(asked, GREEDY), near.generate(asked, GREEDY), strict=True)
    gaps = [gap(r, parted(one, other)) for r, one, other in pairs if one.text != other.text]
    assert gaps
    assert all(0 <= each < 0.5 for each in gaps)


def test_texts_depend_neither_on_order_nor_on_batch_size() -> None:
    asked = requests(20)
    mixed = random.Random(5).sample(asked, len(asked))
    first = {done.id: done.text for done in generator(8).generate(asked, DRAWN)}
    for size in (3, 64):
        assert {done.id: done.text for done in generator(size).generate(mixed, DRAWN)} == first


def test_the_seed_is_the_records_own() -> None:
    request = requests(1)[0]
    twins = [replace(request, id=str(seed), seed=seed) for seed in (1, 2, 1, -3, 2**70)]
    texts = [done.text for done in generator().generate(twins, DRAWN)]
    assert texts[0] == texts[2]
    assert len(set(texts)) == 4


def test_a_longer_limit_continues_the_same_text() -> None:
    asked = requests(10)
    short, long = (
        generator().generate(asked, replace(DRAWN, max_new_tokens=count)) for count in (6, 20)
    )
    for one, other in zip(short, long, strict=True):
        assert other.tokens[: len(one.tokens)] == one.tokens


def test_another_records_states_change_nothing() -> None:
    asked = requests(12)
    changed = asked[4].position.fen
    for fused in (True, False):
        plain = generator(6, fused=fused).generate(asked, DRAWN)
        expert = RandomExpert("other", changed)
        shifted = generator(6, expert=expert, fused=fused).generate(asked, DRAWN)
        for index, (one, other) in enumerate(zip(plain, shifted, strict=True)):
            assert (one == other) is (index != 4)


def test_a_text_ends_at_the_end_token_or_at_its_limit() -> None:
    for done in generator(16).generate(requests(60), DRAWN):
        assert "<end>" not in done.text
        assert done.text.startswith("best ")
        assert len(done.tokens) < 24 if done.finished else len(done.tokens) == 24


def test_no_text_grows_past_what_the_decoder_takes() -> None:
    request = requests(1)[0]
    far = replace(request, prefix="best " + "." * 50)
    done = generator().generate([far, request], Sampling(max_new_tokens=500))
    assert [len(encoded(r)) + len(d.tokens) for r, d in zip([far, request], done, strict=True)] == [
        LONGEST,
        LONGEST,
    ] or any(d.finished for d in done)
    assert all(d.error is None for d in done)


def written_move(request: Request, done: Completion) -> str | None:
    """UCI of the legal move that a text begins with after its prefix, if it does."""
    board, rest = request.position.board(), done.text[len(request.prefix) :]
    begun = [m.uci() for m in board.legal_moves if rest.startswith(move_text(board, m))]
    assert len(begun) < 2
    return begun[0] if begun else None


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(temperature=3.0, max_new_tokens=5)])
def test_a_constrained_first_move_is_always_legal(sampling: Sampling) -> None:
    asked = requests(60, legal=True)
    done = generator(16).generate(asked, sampling)
    assert None not in map(written_move, asked, done)
    free = [replace(request, legal_first_move=False) for request in asked]
    assert None in map(written_move, free, generator(16).generate(free, sampling))


def test_constrained_promotions_name_their_piece() -> None:
    asked = [
        Request(str(seed), PROMOTING, explain_prompt(PROMOTING), "best ", seed, True)
        for seed in range(150)
    ]
    done = generator(32).generate(asked, Sampling(temperature=50.0, max_new_tokens=4))
    seen = set(map(written_move, asked, done))
    assert seen <= {move.uci() for move in PROMOTING.board().legal_moves}
    assert {f"{move}{piece}" for move in ("a7a8", "a7b8") for piece in "qrbn"} <= seen


def test_move_logprobs_are_those_of_each_move_written_out() -> None:
    asked = [*requests(5), Request("p", PROMOTING, explain_prompt(PROMOTING), "best ")]
    for name in ("smollm3", "gpt2"):
        scored = generator(4, name).move_logprobs(asked)
        for request, found in zip(asked, scored, strict=True):
            board = request.position.board()
            assert set(found) == {move.uci() for move in board.legal_moves}
            assert 0 < sum(torch.tensor(list(found.values())).exp()) < 1
            start = encoded(request)
            for uci in sorted(found)[::7]:
                ids = start + tokenizer()(move_text(board, uci))["input_ids"]
                logprobs = full_logits(request, ids, name).log_softmax(-1)
                own = sum(float(logprobs[t - 1, ids[t]]) for t in range(len(start), len(ids)))
                assert found[uci] == pytest.approx(own, abs=1e-3)


def test_a_constrained_greedy_move_takes_the_likeliest_legal_token_each_time() -> None:
    asked = requests(8, legal=True)
    for request, done in zip(asked, generator(5).generate(asked, GREEDY), strict=True):
        node = MoveTrees(tokenizer().get_vocab()).of(request.position.board())
        ids = encoded(request)
        while node.children:
            logits = full_logits(request, ids)[-1]
            ids.append(max(node.children, key=lambda token: float(logits[token])))
            node = node.children[ids[-1]]
        assert written_move(request, done) == node.move


def test_one_records_failure_is_its_own() -> None:
    good = requests(6)
    mated = Position(chess.STARTING_FEN, ("f2f3", "e7e5", "g2g4", "d8h4"))
    nan = positions(1, seed=9)[0]
    bad = [
        replace(good[0], id="illegal", position=Position(chess.STARTING_FEN, ("e2e5",))),
        replace(good[0], id="mated", position=mated, legal_first_move=True),
        replace(good[0], id="long", prefix="." * 200),
        replace(good[0], id="nan", position=nan),
    ]
    for fused in (True, False):
        made = generator(4, expert=RandomExpert(broken=nan.fen), fused=fused)
        done = made.generate([*good[:2], *bad, *good[2:]], GREEDY)
        errors = {each.id: each.error for each in done if each.error is not None}
        assert set(errors) == {"illegal", "mated", "long", "nan"}
        assert "e2e5" in str(errors["illegal"])
        assert "over" in str(errors["mated"])
        assert "200" in str(errors["long"]) or "tokens" in str(errors["long"])
        assert "not finite" in str(errors["nan"])
        alone = generator(4, fused=fused).generate(good, GREEDY)
        assert [each.text for each in done if each.error is None] == [each.text for each in alone]


def test_no_requests_give_no_texts() -> None:
    assert generator().generate([], GREEDY) == []
    assert generator().move_logprobs([]) == []


def test_without_an_expert_the_decoder_writes_alone() -> None:
    made = Generator(model(), tokenizer(), None, 4, torch.float32)
    request = requests(1)[0]
    done = made.generate([request], GREEDY)[0]
    with torch.no_grad():
        ids = encoded(request) + list(done.tokens)
        best = made.model(torch.tensor([ids]))[0].argmax(-1).tolist()
    assert list(done.tokens) == best[len(encoded(request)) - 1 : -1]


def test_bfloat16_stays_near_float32() -> None:
    asked = requests(10)
    exact, near = generator(5), generator(5, dtype=torch.bfloat16)
    one, other = (made.generate(asked, GREEDY) for made in (exact, near))
    same = [a.tokens[:3] == b.tokens[:3] for a, b in zip(one, other, strict=True)]
    assert sum(same) >= 7


def test_the_weights_are_those_of_the_digest() -> None:
    asked = requests(4)
    made = Generator(copy.deepcopy(model()), tokenizer(), RandomExpert(), 4, torch.float32)
    assert made.weights_digest == weights_digest(made.model)
    before = made.generate(asked, GREEDY)
    with torch.no_grad():
        for parameter in made.model.decoder.parameters():
            parameter.mul_(3)
    assert [each.tokens for each in made.generate(asked, GREEDY)] == [
        each.tokens for each in before
    ]


def test_parts_that_do_not_fit_are_refused() -> None:
    expert = RandomExpert()
    expert.digest = "another"
    with pytest.raises(GenerationError, match="another"):
        generator(expert=expert)
    with pytest.raises(GenerationError, match="no such sampling"):
        Sampling(top_p=0.0)
    with pytest.raises(GenerationError, match="tokens"):
        generator().move_logprobs([replace(requests(1)[0], prefix="." * 300)])
    assert not supports(model("gpt2"))


def fed(stepper: Stepper, made: QueenModel) -> Tensor:
    """Logits after two prompts and a token more, in slots 2 and 0 of three; all on the device."""
    device = made.device
    ids = torch.tensor([[5, 6, 7], [8, 9, 0]], device=device)
    states = [torch.ones(2, 64, STATE, device=device), torch.zeros(2, 64, STATE, device=device)]
    slots, kept = torch.tensor([2, 0], device=device), torch.tensor([0, 2], device=device)
    lengths = torch.tensor([3, 2], device=device)
    with torch.inference_mode():
        context = made.context(states)
        stepper.open(3, 10, context)
        stepper.prefill(slots, ids, lengths, context)
        stepper.keep(kept)
        return stepper.step(lengths + 1, lengths.flip(0), 3)


@pytest.mark.parametrize("kind", [FusedStepper, GenericStepper])
def test_on_another_device_a_stepper_makes_no_tensor_on_the_cpu(kind: type) -> None:
    """Shown on the meta device, which refuses to meet tensors of another: no GPU is needed."""
    made = QueenModel(model().config).to("meta", torch.bfloat16).eval()
    more = {"bridged": True} if kind is FusedStepper else {}
    stepper = kind(made, torch.bfloat16, **more)
    logits = fed(stepper, made)
    assert (logits.device.type, logits.dtype) == ("meta", torch.float32)
    assert logits.shape == (2, len(tokenizer()))
    if isinstance(stepper, FusedStepper):
        assert stepper.cache[0].dtype == torch.bfloat16


def test_the_fused_step_in_bfloat16_throughout_stays_near_float32() -> None:
    """As on a GPU, where caches and what flows between the products are bfloat16 too."""
    exact = fed(FusedStepper(model(), torch.float32, bridged=True), model())
    wide, narrow = torch.float32, torch.bfloat16
    mixed = fed(FusedStepper(model(), narrow, bridged=True, inner=wide), model())
    near = fed(FusedStepper(model(), narrow, bridged=True, inner=narrow), model())
    scale = float(exact.std())
    assert float((mixed - exact).abs().mean()) < 0.05 * scale
    assert float((near - exact).abs().mean()) < 0.1 * scale


def test_both_steppers_keep_to_the_protocol() -> None:
    steppers: list[Stepper] = [
        FusedStepper(model(), torch.float32, bridged=False),
        GenericStepper(model(), torch.float32),
    ]
    ids = torch.tensor([[5, 6, 7], [8, 9, 0]])
    lengths = torch.tensor([3, 2])
    logits = []
    for stepper in steppers:
        with torch.inference_mode():
            stepper.open(3, 10, None)
            first = stepper.prefill(torch.tensor([2, 0]), ids, lengths, None)
            stepper.keep(torch.tensor([0, 2]))
            logits.append((first, stepper.step(torch.tensor([4, 4]), torch.tensor([2, 3]), 3)))
    for one, other in zip(*logits, strict=True):
        assert torch.allclose(one, other, atol=1e-4)
