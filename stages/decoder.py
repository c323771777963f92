"""The decoder a model starts from: one to be trained from scratch, or one that is taken over."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from queen.networks.settings import AnyDecoder, BridgeSettings, PretrainedSettings
from stages.base import Job

if TYPE_CHECKING:
    from queen.networks.build import EncoderInfo
    from queen.networks.queen import QueenModel


def located(decoder: PretrainedSettings, job: Job[Any]) -> Path:
    """Its Hugging Face folder; fetched and converted once."""
    from queen.networks.pretrained import locate_decoder

    return locate_decoder(decoder.source, job.project, job.state.downloads)


def decoder_spec(decoder: AnyDecoder, job: Job[Any]) -> dict[str, Any]:
    """What a shard's key must say of the decoder beside its params: the content of its files."""
    if not isinstance(decoder, PretrainedSettings):
        return {}
    from queen.networks.pretrained import folder_digest

    return {"decoder": folder_digest(located(decoder, job))}


def decoder_licence(decoder: AnyDecoder) -> dict[str, str]:
    """The licence of weights that are taken over."""
    if isinstance(decoder, PretrainedSettings) and decoder.licence:
        return {"decoder": decoder.licence}
    return {}


def new_model(
    decoder: AnyDecoder,
    bridge: BridgeSettings,
    tokenizer: Any,
    encoder: EncoderInfo,
    job: Job[Any],
) -> QueenModel:
    """A QUEEN before its first step."""
    from queen.networks.build import bridge_pretrained, build_queen

    if not isinstance(decoder, PretrainedSettings):
        return build_queen(decoder, bridge, tokenizer, encoder, job.seed)
    from queen.language.tokenizer import load_foreign
    from queen.networks.pretrained import load_decoder

    folder = located(decoder, job)
    known = len(load_foreign(folder))
    trained = load_decoder(folder, decoder.shape)
    return bridge_pretrained(trained, bridge, tokenizer, encoder, job.seed, known)
