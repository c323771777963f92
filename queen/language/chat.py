"""How a model's turns are written: in the project's own tokens, or as a model's chat template does.

Prompts and answers are made in the project's tokens (`queen.language.prompts`). Where a model was
tuned on another form, they are put into it right before they are tokenised, so that what the model
reads is what `apply_chat_template` gives for the same conversation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from queen.errors import QueenError
from queen.language.prompts import ASSISTANT, END, USER

_ASKED, _SAID, _ASKED_AGAIN = "first-request", "first-answer", "second-request"
_SAME_DAY = "{%- macro strftime_now(format) -%}01 July 2025{%- endmacro -%}"


class ChatError(QueenError):
    """A chat template from which turns cannot be read."""


@dataclass(frozen=True)
class Turns:
    """What stands around the texts of a conversation.

    Attributes:
        first: before the first request; a template may put a system message there.
        later: before a further request.
        assistant: between a request and its answer.
        end: after an answer; one token.
    """

    first: str = USER
    later: str = USER
    assistant: str = ASSISTANT
    end: str = END

    @classmethod
    def of(cls, tokenizer: Any) -> Turns:
        """The form a tokenizer's model is spoken to in.

        Raises:
            ChatError: the template cannot be rendered, or does not end an answer with a token.
        """
        template = getattr(tokenizer, "chat_template", None)
        if not template or USER in tokenizer.get_vocab():
            return cls()
        return _read(tokenizer)

    def prompt(self, text: str, *, first: bool = True) -> str:
        """A prompt in the project's tokens as this model reads it."""
        opening = self.first if first else self.later
        return text.replace(USER, opening).replace(ASSISTANT, self.assistant)

    def answer(self, text: str) -> str:
        """An answer in the project's tokens as this model writes it."""
        return text.replace(END, self.end)


def _read(tokenizer: Any) -> Turns:
    """The turns of a template, from a conversation of two requests written in it."""
    from jinja2 import TemplateError

    try:
        first, rest = _rendered(tokenizer).split(_ASKED)
        _, rest = rest.split(_SAID)
        between, assistant = rest.split(_ASKED_AGAIN)
        end = _end_token(tokenizer, between)
    except (ValueError, TemplateError) as error:
        raise ChatError(
            "the chat template does not write two requests and an answer one after another, "
            f"the answer with an end token: {error}",
            where=str(getattr(tokenizer, "name_or_path", "")) or "tokenizer",
            remedy="use a model whose template does, or take chat_template out of its tokenizer",
        ) from error
    return Turns(first, between.removeprefix(end), assistant, end)


def _rendered(tokenizer: Any) -> str:
    """On a day that stays the same, for some templates tell today's; no thinking aloud."""
    talk = (("user", _ASKED), ("assistant", _SAID), ("user", _ASKED_AGAIN))
    text: str = tokenizer.apply_chat_template(
        [{"role": role, "content": said} for role, said in talk],
        chat_template=_SAME_DAY + tokenizer.get_chat_template(),
        tokenize=False,
        add_generation_prompt=True,
        enable_thinking=False,
    )
    return text


def _end_token(tokenizer: Any, between: str) -> str:
    """The token that a text begins with; raises ValueError where there is none."""
    tokens = [*tokenizer.get_added_vocab(), *tokenizer.all_special_tokens]
    found = [token for token in tokens if between.startswith(token)]
    if not found:
        raise ValueError(f"no token stands at the start of {between!r}")
    return str(max(found, key=len))
