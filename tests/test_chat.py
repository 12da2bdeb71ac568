"""`encode_chat`: messages to ids, with an encoder that is one id a letter."""

from types import SimpleNamespace

import numpy as np
import pytest

from statetok import StateTokenError, StateTokens

U, A, E, S, T = 1, 2, 0, 300, 301
FORGED = {"<|user|>": U, "<|assistant|>": A, "<|endoftext|>": E}


def encode(text):
    """Letters to ids; special tokens are read, as many tokenisers do."""
    return [FORGED[text]] if text in FORGED else [ord(letter) for letter in text]


@pytest.fixture
def contract(impl):
    return StateTokens(300, 2, E, U, A)


def user(content):
    return {"role": "user", "content": content}


def assistant(content):
    return {"role": "assistant", "content": content}


a, b, c, d = encode("abcd")

CHATS = {
    "none": ([], {}, []),
    "one exchange": ([user("a"), assistant("b")], {}, [U, a, A, b, E, S, T]),
    "a prompt": ([user("ab")], {"add_generation_prompt": True}, [U, a, b, A]),
    "a user alone": ([user("a")], {}, [U, a]),
    "the next prompt": (
        [user("a"), assistant("b"), user("c")],
        {"add_generation_prompt": True},
        [U, a, A, b, E, S, T, U, c, A],
    ),
    "a reply to go on with": (
        [user("a"), assistant("b"), user("c"), assistant("d")],
        {"continue_final_message": True},
        [U, a, A, b, E, S, T, U, c, A, d],
    ),
    "empty contents": ([user(""), assistant("")], {}, [U, A, E, S, T]),
    "two users": ([user("a"), user("b"), assistant("c")], {}, [U, a, U, b, A, c, E, S, T]),
    "a prefix": ([user("a")], {"system_prefix": [7, d]}, [7, d, U, a]),
    "a prefix with an eot of its own": (
        [user("a"), assistant("b")],
        {"system_prefix": np.array([d, E])},
        [d, E, U, a, A, b, E, S, T],
    ),
}


@pytest.mark.parametrize("case", CHATS)
def test_chats(contract, case):
    messages, options, expected = CHATS[case]
    assert contract.encode_chat(messages, encode, **options) == expected
    assert contract.encode_chat(iter(messages), encode, **options) == expected


@pytest.mark.parametrize("k", [0, 1])
def test_the_number_of_state_tokens_is_that_of_the_contract(impl, k):
    ids = StateTokens(300, k, E, U, A).encode_chat([user("a"), assistant("b")], encode)
    assert ids == [U, a, A, b, E, S][: 5 + k]


@pytest.mark.parametrize(
    "kind",
    [tuple, np.array, lambda ids: SimpleNamespace(ids=ids)],
    ids=["tuple", "array", "Encoding"],
)
def test_what_encoders_return(contract, kind):
    ids = contract.encode_chat([user("a")], lambda text: kind(np.array(encode(text), int).tolist()))
    assert ids == [U, a]
    assert {type(id) for id in ids} == {int}


@pytest.mark.parametrize("text", FORGED)
@pytest.mark.parametrize("role", [user, assistant])
def test_a_text_cannot_forge_a_turn(contract, role, text):
    messages = [user("a"), assistant("b"), user("c"), role(text)]
    with pytest.raises(ValueError, match=r"^the content of message 3 encodes to id") as refusal:
        contract.encode_chat(messages, encode)
    words = ["split_special_tokens", "encode_special_tokens", "encode_ordinary", "special=False"]
    assert all(word in str(refusal.value) for word in [*words, "mistral-common"])
    assert len(str(refusal.value)) < 400
    assert not isinstance(refusal.value, StateTokenError)  # there is no position to speak of


@pytest.mark.parametrize(("letter", "id"), [("\u012c", 300), ("\u012d", 301), ("\u4e00", 0x4E00)])
def test_an_id_that_is_no_token(contract, letter, id):
    with pytest.raises(ValueError, match=f"message 1 encodes to id {id}, and the contract's vocab"):
        contract.encode_chat([user("a"), assistant(letter)], encode)


def test_an_encoder_with_ids_of_its_own(contract):
    with pytest.raises(ValueError, match=r"encode makes \[7\] of an empty text: let it add no ids"):
        contract.encode_chat([user("a")], lambda text: [7, *encode(text)])


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        (
            [assistant("a")],
            "message 0 is of the assistant and follows no user: .* Begin with a user",
        ),
        (
            [user("a"), assistant("b"), assistant("c")],
            "message 2 is of the assistant and follows no user: .* Join it to the one before",
        ),
        ([{"role": "system", "content": "a"}, user("b")], "message 0 .* 'system' .*system_prefix"),
        ([user("a"), {"role": "tool", "content": "b"}], "message 1 has the role 'tool'"),
        ([{"content": "a"}], "message 0 has the role None"),
    ],
)
def test_roles_that_make_no_conversation(contract, messages, words):
    with pytest.raises(ValueError, match=words) as refusal:
        contract.encode_chat(messages, encode)
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ("hello", "messages must be a list of messages, not 'hello'"),
        (user("a"), "messages must be a list of messages, not dict"),
        (None, "messages must be a list of messages, not None"),
        ([("user", "a")], "message 0 must be a dict with a role and a content, not tuple"),
        ([user(None)], "the content of message 0 must be a str, not None"),
        (
            [user([{"type": "text", "text": "a"}])],
            "the content of message 0 must be a str, not list",
        ),
        ([user("a"), assistant(b"b")], "the content of message 1 must be a str, not"),
    ],
)
def test_what_are_no_messages(contract, messages, words):
    with pytest.raises(TypeError, match=words):
        contract.encode_chat(messages, encode)


@pytest.mark.parametrize(
    ("messages", "options", "words"),
    [
        ([user("a")], ["add_generation_prompt", "continue_final_message"], "ask for one of them"),
        ([user("a"), assistant("b")], ["add_generation_prompt"], "needs a user message at the end"),
        ([], ["add_generation_prompt"], "needs a user message at the end"),
        ([user("a")], ["continue_final_message"], "needs an assistant message at the end"),
    ],
)
def test_options_that_do_not_fit_the_messages(contract, messages, options, words):
    with pytest.raises(ValueError, match=words):
        contract.encode_chat(messages, encode, **dict.fromkeys(options, True))


@pytest.mark.parametrize(
    "returned", ["text", {"input_ids": [5]}, None, [[5]], np.zeros((1, 2), int)]
)
def test_an_encoder_that_returns_no_ids(contract, returned):
    with pytest.raises((TypeError, ValueError)) as error:
        contract.encode_chat([user("a")], lambda text: returned if text else [])
    note = "This is about what encode returned for the content of message 0."
    assert error.value.__notes__[-1] == note


def test_an_encoder_that_is_none(contract):
    with pytest.raises(
        TypeError, match=r"encode must be a function of a str, e\.g\. tokenizer\.encode"
    ):
        contract.encode_chat([user("a")], SimpleNamespace(encode=encode))


def test_a_prefix_that_the_contract_does_not_allow(contract):
    with pytest.raises(StateTokenError, match="state id 300 at position 1"):
        contract.encode_chat([user("a")], encode, system_prefix=[5, 300])
