"""The five numbers from a tokeniser of transformers or tokenizers."""

from __future__ import annotations

import re

from ._inputs import as_int, clipped, described

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

LISTED = 8  # texts that a message names


def numbers(
    tokenizer: Any, k: int, *, eot: int | str, user: int | str, assistant: int | str
) -> tuple[int, int, int, int, int]:
    """Return vocab, k, eot, user and assistant; see `StateTokens.from_tokenizer`."""
    try:
        tokens = tokenizer.get_vocab()  # in both libraries, added tokens included
        vocab = len(tokenizer) if hasattr(tokenizer, "__len__") else tokenizer.get_vocab_size()
    except AttributeError:
        raise TypeError(
            f"tokenizer must be one of transformers or tokenizers, not {described(tokenizer)}: of "
            "another one give the five numbers to StateTokens itself"
        ) from None
    last = max(tokens.values(), default=-1)
    if last >= vocab:
        raise ValueError(
            f"the tokenizer has {vocab} tokens and an id {last}, so there are gaps between its "
            "ids: state ids would be ids of tokens"
        )

    def id_of(name: str, token: int | str) -> int:
        number = as_int(token)
        if number is not None:
            return number
        if not isinstance(token, str):
            raise TypeError(f"{name} must be a text or an id, not {described(token)}")
        if token not in tokens:
            raise ValueError(
                f"{name}: the tokenizer has no token {clipped(token)!r}. {special(tokens)}"
            )
        id: int = tokens[token]
        return id

    return vocab, k, id_of("eot", eot), id_of("user", user), id_of("assistant", assistant)


def special(texts: Iterable[str]) -> str:
    """Say which of the texts look like special tokens, for whoever has to name one."""
    found: list[str] = []
    for text in texts:
        if re.fullmatch(r"<.+>|\[.+\]", text):
            if len(found) == LISTED:
                found.append("...")
                break
            found.append(clipped(text, 24))
    return f"Those that look like special ones: {', '.join(found) or 'none'}"
