"""The header's comment, clause by clause, with the answers worked out by hand."""

import pytest

from statetok import StateTokenError

U, A, E = 1, 2, 0  # user, assistant, eot
S, T = 10, 11  # the two state ids of vocab = 10, k = 2
NUMBERS = (10, 2, E, U, A)

INSERTED = {
    "nothing": ([], []),
    "text only": ([5, 6], [5, 6]),
    "an eot that closes an exchange": ([U, 5, A, 6, E], [U, 5, A, 6, E, S, T]),
    "empty turns": ([U, A, E], [U, A, E, S, T]),
    "two exchanges": ([U, A, E, U, A, E], [U, A, E, S, T, U, A, E, S, T]),
    "a reply that stopped early": ([U, 5, A, 6, U, 7], [U, 5, A, 6, E, S, T, U, 7]),
    "an open reply at the end stays open": ([U, 5, A, 6], [U, 5, A, 6]),
    "a prompt that awaits its reply": ([U, 5, A], [U, 5, A]),
    "a block given is kept": ([U, A, E, S, T, 5], [U, A, E, S, T, 5]),
    "a block given at the end is kept": ([U, A, E, S, T], [U, A, E, S, T]),
    "one of two blocks given": ([U, A, E, S, T, U, A, E], [U, A, E, S, T, U, A, E, S, T]),
    "an eot without an exchange": ([E, 5, E], [E, 5, E]),
    "an eot after a user alone": ([U, 5, E], [U, 5, E]),
    "an assistant without a user": ([A, 5, E, A, U], [A, 5, E, A, U]),
    "an assistant after an exchange": ([U, A, E, A, E], [U, A, E, S, T, A, E]),
    "a second eot": ([U, A, E, E], [U, A, E, S, T, E]),
    "a second assistant": ([U, A, 5, A, E], [U, A, 5, A, E, S, T]),
    "a second user": ([U, 5, U, A, E], [U, 5, U, A, E, S, T]),
    "text in front, between and behind": (
        [5, U, A, E, 6, U, A, E, 7],
        [5, U, A, E, S, T, 6, U, A, E, S, T, 7],
    ),
}

REFUSED = {
    "a negative id": ([5, -1], "token id -1 at position 1 is negative", 1),
    "a state id in text": (
        [5, 6, S],
        "state id 10 at position 2 is not part of a complete state block directly after an "
        "<|endoftext|> that ends an assistant reply",
        2,
    ),
    "a block after an eot that closes nothing": (
        [U, E, S, T],
        "state id 10 at position 2 is not part of a complete state block directly after an "
        "<|endoftext|> that ends an assistant reply",
        2,
    ),
    "a block a second time": (
        [U, A, E, S, T, S, T],
        "state id 10 at position 5 is not part of a complete state block directly after an "
        "<|endoftext|> that ends an assistant reply",
        5,
    ),
    "a block that is cut": (
        [U, A, E, S],
        "the state block after the <|endoftext|> at position 2 is not the 2 ids 10 .. 11 in order",
        2,
    ),
    "a block out of order": (
        [U, A, E, T, S],
        "the state block after the <|endoftext|> at position 2 is not the 2 ids 10 .. 11 in order",
        2,
    ),
    "an id past the state ids": (
        [12],
        "state id 12 at position 0 is not part of a complete state block directly after an "
        "<|endoftext|> that ends an assistant reply",
        0,
    ),
}


@pytest.mark.parametrize("case", INSERTED)
def test_inserted(impl, case):
    ids, expected = INSERTED[case]
    assert impl.insert_state_blocks(ids, *NUMBERS) == expected


@pytest.mark.parametrize("case", REFUSED)
def test_refused(impl, case):
    ids, text, position = REFUSED[case]
    with pytest.raises(StateTokenError) as refusal:
        impl.insert_state_blocks(ids, *NUMBERS)
    assert str(refusal.value) == text
    assert refusal.value.position == position


@pytest.mark.parametrize("k", [0, -1])
def test_a_model_without_state_tokens(impl, k):
    ids = [U, 5, A, 6, E, -7]  # not even the negative id is refused
    assert impl.insert_state_blocks(ids, 10, k, E, U, A) == ids
    with pytest.raises(StateTokenError) as refusal:
        impl.insert_state_blocks([5, 10], 10, k, E, U, A)
    assert str(refusal.value) == (
        "token id 10 at position 1 is past the vocabulary (10) and the model has no state tokens"
    )
    assert refusal.value.position == 1


def test_the_numbers_by_keyword(impl):
    ids = [U, A, E]
    numbers = {"assistant": A, "user": U, "eot": E, "k": 2, "vocab": 10}
    assert impl.insert_state_blocks(ids=ids, **numbers) == [U, A, E, S, T]
