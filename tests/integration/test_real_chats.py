"""Every conversation of chitchat-dataset, in the chat template of mistral-common.

What is expected is counted from the messages; of the ids, only what the template promises is
used: an eot after every reply, and nowhere else.
"""

import json
from functools import partial
from importlib.resources import files
from itertools import groupby
from typing import NamedTuple

import numpy as np
import pytest

from statetok import StateTokens, _core, twin

INSTALL = "needs real conversations: pip install mistral-common chitchat-dataset"
pytest.importorskip("mistral_common", reason=INSTALL)
pytest.importorskip("chitchat_dataset", reason=INSTALL)

# mistral-common's tekken tokeniser: </s>, [INST] and [/INST] are 2, 3 and 4.
VOCAB, K, EOT, USER, ASSISTANT = CONTRACT = 131072, 4, 2, 3, 4
BLOCK = [131072, 131073, 131074, 131075]

# The data does not say who is the user. Each answer is a shape that servers see: the model is
# asked, or it speaks first. The one makes the last message a reply where the other does not.
FIRST_SPEAKERS = ("user", "assistant")


class Chat(NamedTuple):
    name: str
    utterances: int
    replies: int  # each ends an exchange: see `messages_of`
    ends_with_reply: bool
    ids: list[int]
    messages: list[tuple[str, str]]

    @property
    def as_rendered(self) -> list[tuple[str, str]]:
        """The messages as the template takes them: it drops the space at the end of a reply."""
        return [
            (role, text.rstrip() if role == "assistant" else text) for role, text in self.messages
        ]

    @property
    def without_eots(self) -> list[int]:
        """The ids as a server has them that stopped every reply before its eot."""
        return [id for id in self.ids if id != EOT]

    @property
    def with_blocks(self) -> list[int]:
        return [given for id in self.ids for given in ([id, *BLOCK] if id == EOT else [id])]

    @property
    def with_last_reply_open(self) -> list[int]:
        """What early-stopped replies become: a last one has no `user` after it to close it."""
        end = len(self.with_blocks) - (1 + K if self.ends_with_reply else 0)
        return self.with_blocks[:end]


def messages_of(turns: list[list[dict[str, str]]], first: str) -> list[tuple[str, str]]:
    """Return the turns as (role, text), as the template renders them.

    - Twelve turns hold no text. A chat template refuses an empty reply, so they are left out.
    - That leaves the same sender twice in a row. The template renders such a run as one message
      and one eot, so it is joined here already, where the replies are counted.
    - A chat must start with the user, so an assistant that speaks first answers an empty
      message. With that, every assistant message is a reply and ends one exchange.
    """
    second = {"user": "assistant", "assistant": "user"}[first]
    opener = turns[0][0]["sender"]
    spoken = [
        (first if turn[0]["sender"] == opener else second, " ".join(u["text"] for u in turn))
        for turn in turns
    ]
    runs = groupby((message for message in spoken if message[1]), key=lambda message: message[0])
    messages = [(role, "\n\n".join(text for _, text in run)) for role, run in runs]
    return messages if messages[0][0] == "user" else [("user", ""), *messages]


@pytest.fixture(scope="module", params=FIRST_SPEAKERS, ids=lambda role: f"{role}-first")
def chats(request, render) -> list[Chat]:
    data = json.loads(files("chitchat_dataset").joinpath("dataset.json").read_bytes())
    out = []
    for name, conversation in data.items():
        turns = conversation["messages"]
        messages = messages_of(turns, request.param)
        roles = [role for role, _ in messages]
        out.append(
            Chat(
                name,
                utterances=sum(map(len, turns)),
                replies=roles.count("assistant"),
                ends_with_reply=roles[-1] == "assistant",
                ids=render(messages),
                messages=messages,
            )
        )
    return out


@pytest.fixture
def insert(impl):
    return lambda ids: impl.insert_state_blocks(ids, *CONTRACT)


# Each test gathers the names of the chats that are wrong: a failure shows which, and pytest does
# not set out to explain how two lists of 26,000 ids differ.


def test_the_counts_are_those_of_the_data(chats, request):
    """Guard the other tests against data that is not there, or not understood."""
    first = request.node.callspec.params["chats"]
    assert len(chats) == 7168  # this and the next are what the data's own page says
    assert sum(chat.utterances for chat in chats) == 258_145
    # Together all 138,737 turns, but for 12 without text and 9 joined to the one before.
    assert sum(chat.replies for chat in chats) == {"user": 66_843, "assistant": 71_873}[first]
    assert sum(chat.ends_with_reply for chat in chats) == {"user": 2137, "assistant": 5031}[first]


def test_the_template_has_the_shape_of_the_contract(chats):
    wrong = [
        chat.name
        for chat in chats
        if chat.ids.count(EOT) != chat.replies
        or chat.ids.count(USER) != chat.replies + (not chat.ends_with_reply)
        or chat.ids.count(ASSISTANT) != chat.ids.count(USER)
        or max(chat.ids) >= VOCAB
    ]
    assert not wrong


@pytest.mark.parametrize("given", ["ids", "without_eots", "with_blocks"])
def test_the_implementations_agree(chats, given):
    wrong = [
        chat.name
        for chat in chats
        if _core.insert_state_blocks(getattr(chat, given), *CONTRACT)
        != twin.insert_state_blocks(getattr(chat, given), *CONTRACT)
    ]
    assert not wrong


def test_every_reply_earns_one_block(chats, insert):
    results = [insert(chat.ids) for chat in chats]
    assert not [
        chat.name
        for chat, result in zip(chats, results, strict=True)
        if [result.count(id) for id in BLOCK] != [chat.replies] * K or result != chat.with_blocks
    ]


def test_inserting_again_changes_nothing(chats, insert):
    results = [(chat.name, insert(chat.ids)) for chat in chats]
    assert not [name for name, result in results if insert(result) != result]


def test_strip_gives_the_template_back(chats, insert):
    strip = StateTokens(*CONTRACT).strip
    assert not [chat.name for chat in chats if strip(insert(chat.ids)) != chat.ids]


def test_replies_that_stopped_early_are_closed_by_the_next_user(chats, insert):
    wrong = []
    for chat in chats:
        result = insert(chat.without_eots)
        closed = chat.replies - chat.ends_with_reply  # nothing follows a last reply: still open
        if (
            [result.count(id) for id in (EOT, *BLOCK)] != [closed] * (1 + K)
            or result != chat.with_last_reply_open
            or insert(result) != result
        ):
            wrong.append(chat.name)
    assert not wrong


def test_an_array_gets_the_same_ids(chats, insert):
    wrong = []
    for chat in chats:
        result = insert(np.array(chat.ids, np.int32))
        if result.dtype != np.int32 or result.tolist() != insert(chat.ids):
            wrong.append(chat.name)
    assert not wrong


# -- what is derived -------------------------------------------------------------------------


@pytest.fixture
def contract(impl):
    return StateTokens(*CONTRACT)


def test_turn_by_turn_is_as_in_one(chats, contract):
    wrong = []
    for chat in chats:
        stream, out = contract.stream(), []
        for turn in contract.turns(chat.ids):
            prompt, last = chat.ids[turn.start : turn.stop - 1], chat.ids[turn.stop - 1]
            out += stream.push(prompt) + stream.push(last)
        stream.finish()
        if out != chat.with_blocks or stream.position != len(chat.ids):
            wrong.append(chat.name)
    assert not wrong


def test_stopped_replies_are_closed_when_they_stop_or_by_the_next_user(chats, contract):
    wrong = []
    for chat in chats:
        at_once, later, stopped, out = contract.stream(), contract.stream(), [], []
        for turn in contract.turns(chat.without_eots):
            ids = chat.without_eots[turn.start : turn.stop]
            out += later.push(ids)
            stopped += at_once.push(ids) + (
                at_once.close_turn() if turn.role == "assistant" else []
            )
        # A chat that ends with a user ends with a reply without text, and that is closed too.
        closed = chat.with_blocks if chat.ends_with_reply else [*chat.with_blocks, EOT, *BLOCK]
        if out != chat.with_last_reply_open or stopped != closed:
            wrong.append(chat.name)
    assert not wrong


def test_encode_chat_writes_what_the_template_writes(chats, contract, tekken):
    encode = partial(tekken.encode, bos=False, eos=False)
    wrong = []
    for chat in chats:
        messages = [{"role": role, "content": text} for role, text in chat.as_rendered]
        ids = contract.encode_chat(
            messages,
            encode,
            add_generation_prompt=not chat.ends_with_reply,
            system_prefix=[tekken.bos_id],
        )
        if ids != chat.with_blocks:
            wrong.append(chat.name)
    assert not wrong


def test_the_mask_covers_the_replies(chats, contract, tekken):
    encode = partial(tekken.encode, bos=False, eos=False)
    wrong = []
    for chat in chats:
        replies = [text for role, text in chat.as_rendered if role == "assistant"]
        mask = contract.assistant_mask(np.array(chat.with_blocks))
        if mask.sum() != sum(len(encode(text)) + 1 for text in replies):  # and the eot of each
            wrong.append(chat.name)
    assert not wrong
