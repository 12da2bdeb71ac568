"""From messages to ids: the control ids are placed here, and never come out of a text."""

from __future__ import annotations

from ._inputs import clipped, described, plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from .contract import StateTokens

#: How text is kept from being read as tokens, for the error that asks for it.
_PARSING_OFF = (
    "Do not read special tokens in it: split_special_tokens=True (transformers), "
    "encode_special_tokens = True (tokenizers), encode_ordinary (tiktoken), special=False "
    "(llama-cpp-python), tokenizer.encode (mistral-common)"
)


def encode_chat(
    contract: StateTokens,
    messages: Iterable[Any],
    encode: Callable[[str], Any],
    add_generation_prompt: bool,
    continue_final_message: bool,
    system_prefix: Sequence[int],
) -> list[int]:
    """Return the ids of a chat without state blocks; see `StateTokens.encode_chat`."""
    if add_generation_prompt and continue_final_message:
        raise ValueError(
            "add_generation_prompt begins a reply and continue_final_message goes on with one: "
            "ask for one of them"
        )
    if not callable(encode):
        raise TypeError(
            f"encode must be a function of a str, e.g. tokenizer.encode, not {described(encode)}"
        )
    turns = [_read(message, number) for number, message in enumerate(_listed(messages))]
    ids = list(system_prefix)
    if extra := _ids(encode(""), "an empty text"):
        raise ValueError(
            f"encode makes {clipped(str(extra))} of an empty text: let it add no ids of its own, "
            "e.g. add_special_tokens=False in transformers, add_bos=False in llama-cpp-python"
        )
    before = None
    for number, (role, content) in enumerate(turns):
        if role == "assistant" and before != "user":
            raise ValueError(
                f"message {number} is of the assistant and follows no user: the engine would see "
                "no reply in it. "
                + ("Join it to the one before" if before else "Begin with a user message")
            )
        ids.append(contract.user if role == "user" else contract.assistant)
        ids += _text(contract, encode(content), f"the content of message {number}")
        if role == "assistant" and not (continue_final_message and number == len(turns) - 1):
            ids.append(contract.eot)
        before = role
    if add_generation_prompt:
        if before != "user":
            raise ValueError("add_generation_prompt needs a user message at the end")
        ids.append(contract.assistant)
    if continue_final_message and before != "assistant":
        raise ValueError("continue_final_message needs an assistant message at the end")
    return ids


def _listed(messages: Any) -> list[Any]:
    from collections.abc import Mapping

    if isinstance(messages, (str, bytes, Mapping)) or not hasattr(messages, "__iter__"):
        raise TypeError(f"messages must be a list of messages, not {described(messages)}")
    return list(messages)


def _read(message: Any, number: int) -> tuple[str, str]:
    from collections.abc import Mapping

    if not isinstance(message, Mapping):
        raise TypeError(
            f"message {number} must be a dict with a role and a content, not {described(message)}"
        )
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant"):
        remedy = "user and assistant are the only ones"
        if role in ("system", "developer"):
            remedy = "give its ids, encoded as the model was trained, as system_prefix"
        raise ValueError(f"message {number} has the role {described(role)}: {remedy}")
    if not isinstance(content, str):
        raise TypeError(f"the content of message {number} must be a str, not {described(content)}")
    return role, content


def _text(contract: StateTokens, encoded: Any, what: str) -> list[int]:
    """Return the ids of a text, none of which may have a meaning in the contract."""
    ids = _ids(encoded, what)
    controls = {contract.eot: "eot", contract.user: "user", contract.assistant: "assistant"}
    for id in ids:
        if not 0 <= id < contract.vocab:
            raise ValueError(
                f"{what} encodes to id {id}, and the contract's vocab is {contract.vocab}: is "
                "this the tokeniser of the model?"
            )
        if id in controls:
            raise ValueError(
                f"{what} encodes to id {id}, which is {controls[id]}: text must not make turns. "
                + _PARSING_OFF
            )
    return ids


def _ids(encoded: Any, what: str) -> list[int]:
    """Return what an encoder made of a text as a list."""
    try:
        given, _ = plain(getattr(encoded, "ids", encoded))  # of an Encoding of tokenizers
    except (TypeError, ValueError) as error:
        error.add_note(f"This is about what encode returned for {what}.")
        raise
    ids: list[int] = given if isinstance(given, list) else given.tolist()
    return ids
