"""Sources, missing blocks, turns and the assistant mask, with the answers worked out by hand."""

import itertools
import math
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from test_differential import ALPHABET, conversations, outcome

import statetok
from statetok import Insertion, StateTokenError, StateTokens, Turn

U, A, E, S, T = 1, 2, 0, 10, 11  # user, assistant, eot, and the two state ids
KINDS = {"list": list, "tuple": tuple, "array": np.array, "int8": lambda ids: np.array(ids, "i1")}


@pytest.fixture
def contract(impl):
    return StateTokens(10, 2, E, U, A)


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


def same_kind(result, given_ids):
    return type(result) is (np.ndarray if isinstance(given_ids, np.ndarray) else list)


# -- sources ----------------------------------------------------------------------------------

INSERTED = [
    ([], [], []),
    ([U, 5], [U, 5], [0, 1]),
    ([U, A, E], [U, A, E, S, T], [0, 1, 2, -1, -1]),
    ([U, A, E, S, T], [U, A, E, S, T], [0, 1, 2, 3, 4]),
    ([U, A, 5, U, A, E], [U, A, 5, E, S, T, U, A, E, S, T], [0, 1, 2, -1, -1, -1, 3, 4, 5, -1, -1]),
]


@pytest.mark.parametrize(("ids", "out", "sources"), INSERTED)
def test_sources(contract, kind, ids, out, sources):
    given_ids = kind(ids)
    insertion = contract.insert_with_sources(given_ids)
    assert isinstance(insertion, Insertion)
    assert list(insertion.ids) == out
    assert list(insertion.sources) == sources
    assert same_kind(insertion.ids, given_ids)
    assert same_kind(insertion.sources, given_ids)
    if isinstance(given_ids, np.ndarray) and ids:
        assert (insertion.ids.dtype, insertion.sources.dtype) == (given_ids.dtype, np.int64)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(conversations())
def test_sources_say_where_every_id_comes_from(impl, conversation):
    numbers, ids = conversation
    contract = StateTokens(*numbers)
    expected = outcome(contract.insert, ids)
    for given_ids in (ids, np.array(ids, np.int32)):
        insertion = outcome(contract.insert_with_sources, given_ids)
        if isinstance(expected, str):
            assert insertion == expected
            continue
        assert list(insertion.ids) == expected
        kept = [source for source in insertion.sources if source >= 0]
        assert kept == list(range(len(ids)))
        carried = insertion.carry(given_ids, fill=-7)
        assert all(a == b for a, b in zip(carried, expected, strict=True) if a != -7)
        assert list(carried).count(-7) == len(expected) - len(ids)


def test_carry(contract, kind):
    insertion = contract.insert_with_sources(kind([U, A, 5, U]))  # E, S and T before the last
    assert insertion.carry([7, 8, 9, 4], -100) == [7, 8, 9, -100, -100, -100, 4]
    assert insertion.carry(("a", "b", "c", "d"), None) == ["a", "b", "c", None, None, None, "d"]
    assert insertion.carry(range(4), 0) == [0, 1, 2, 0, 0, 0, 3]
    for dtype in ("int64", "int8", "float32", "float64"):
        carried = insertion.carry(np.array([7, 8, 9, 4], dtype), -100)
        assert carried.dtype == dtype
        assert carried.tolist() == [7, 8, 9, -100, -100, -100, 4]
    mask = insertion.carry(np.array([True, False, True, True]), False)
    assert mask.tolist() == [True, False, True, False, False, False, True]
    rows = insertion.carry(np.arange(8.0).reshape(4, 2), math.nan)
    assert rows.shape == (7, 2)
    assert rows[[0, 1, 2, 6]].tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert np.isnan(rows[3:6]).all()


def test_carry_gives_new_values(contract):
    insertion = contract.insert_with_sources(np.array([5, 6]))
    labels = np.array([1, 2])
    assert not np.shares_memory(insertion.carry(labels, 0), labels)
    plain = [1, 2]
    assert insertion.carry(plain, 0) is not plain


def test_carry_of_what_only_looks_like_an_array(contract):
    class Column:  # a column of a table: its [] may look values up by their name
        shape = (4,)

        def __getitem__(self, key):
            raise KeyError(key)

        def __array__(self, dtype=None, copy=None):
            return np.array([7, 8, 9, 4])

    carried = contract.insert_with_sources([U, A, 5, U]).carry(Column(), 0)
    assert carried.tolist() == [7, 8, 9, 0, 0, 0, 4]


@pytest.mark.parametrize(
    ("values", "fill", "words"),
    [
        ([1, 2, 3], 0, "there are 3 values and 4 ids: each id needs one value"),
        (np.zeros((5, 4)), 0, "there are 5 values and 4 ids"),
        (np.array(7), 0, "there are 0 values and 4 ids"),
        (np.zeros(4, np.uint8), -100, r"fill is -100 \(int\): values of uint8 cannot hold it"),
        (np.zeros(4, np.int64), 0.5, "fill is 0.5"),
        (np.zeros(4, bool), -100, "fill is -100"),
    ],
)
def test_what_cannot_be_carried(contract, values, fill, words):
    with pytest.raises(ValueError, match=words):
        contract.insert_with_sources([U, A, 5, U]).carry(values, fill)


@pytest.mark.parametrize(
    ("values", "fill"),
    [("abcd", 0), (None, 0), ({1, 2}, 0), ([1] * 4, [0]), ([1] * 4, np.zeros(1))],
)
def test_what_is_no_value(contract, values, fill):
    with pytest.raises(TypeError, match="must be"):
        contract.insert_with_sources([U, A, 5, U]).carry(values, fill)


# -- check ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ids", "position", "words"),
    [
        ([U, A, E], 2, "the state block after the <|endoftext|> at position 2 is missing"),
        ([U, A, E, 5], 2, "the state block after the <|endoftext|> at position 2 is missing"),
        ([U, A, E, U, A, E, S, T], 2, "the state block after the <|endoftext|> at position 2 is m"),
        ([U, A, 5, U], 3, "the reply before the <|user|> at position 3 lacks its <|endoftext|>"),
        ([U, A, E, S], 2, "the state block after the <|endoftext|> at position 2 is not the 2 ids"),
        ([U, A, E, T, S], 2, "the state block after the <|endoftext|> at position 2 is not"),
        ([U, A, E, U, S], 2, "the state block after the <|endoftext|> at position 2 is missing"),
        ([U, A, 5, U, -1], 3, "the reply before the <|user|> at position 3 lacks"),
        ([U, S, A, E], 1, "state id 10 at position 1 is not part of"),
        ([5, -100], 1, "token id -100 at position 1 is negative"),
    ],
)
def test_check_refuses_at_the_first_place(contract, kind, ids, position, words):
    with pytest.raises(StateTokenError, match=f"^{re.escape(words)}") as refusal:
        contract.check(kind(ids))
    assert refusal.value.position == position


def test_check_takes_what_insert_returns(contract):
    for n in range(6):
        for ids in map(list, itertools.product(ALPHABET, repeat=n)):
            out = outcome(contract.insert, ids)
            if isinstance(out, str) or out != ids:
                with pytest.raises(StateTokenError):
                    contract.check(ids)
            if isinstance(out, list):
                contract.check(out)


def test_check_of_a_model_without_state_tokens(impl):
    contract = StateTokens(10, 0, E, U, A)
    contract.check([U, A, 5, U, A, E])
    with pytest.raises(StateTokenError, match="token id 10 at position 0 is past the vocabulary"):
        contract.check([10])


# -- turns ------------------------------------------------------------------------------------

TURNS = {
    "nothing": ([], []),
    "text": ([5, 6], [(None, 0, 2, False)]),
    "a prompt": ([U, 5, A], [("user", 0, 2, True), ("assistant", 2, 3, False)]),
    "a user alone": ([U, 5], [("user", 0, 2, False)]),
    "an exchange with its block": (
        [U, 5, A, 6, E, S, T],
        [("user", 0, 2, True), ("assistant", 2, 7, True)],
    ),
    "an exchange without": ([U, 5, A, 6, E], [("user", 0, 2, True), ("assistant", 2, 5, True)]),
    "text around": (
        [5, U, A, E, S, T, 6, U],
        [
            (None, 0, 1, False),
            ("user", 1, 2, True),
            ("assistant", 2, 6, True),
            (None, 6, 7, False),
            ("user", 7, 8, False),
        ],
    ),
    "a reply that stopped early": (
        [U, A, 5, U, A],
        [
            ("user", 0, 1, True),
            ("assistant", 1, 3, False),
            ("user", 3, 4, True),
            ("assistant", 4, 5, False),
        ],
    ),
    "two users": (
        [U, 5, U, A],
        [("user", 0, 2, False), ("user", 2, 3, True), ("assistant", 3, 4, False)],
    ),
    "a second assistant is text": (
        [U, A, 5, A, 6, E, S, T],
        [("user", 0, 1, True), ("assistant", 1, 8, True)],
    ),
    "an assistant and an eot of no exchange": ([A, 5, E, 6], [(None, 0, 4, False)]),
    "an eot after a user": ([U, 5, E, 6], [("user", 0, 3, False), (None, 3, 4, False)]),
}


@pytest.mark.parametrize("case", TURNS)
def test_turns(contract, kind, case):
    ids, expected = TURNS[case]
    found = contract.turns(kind(ids))
    assert found == expected
    assert all(isinstance(turn, Turn) for turn in found)


def test_turns_refuses_what_insert_refuses(contract, kind):
    with pytest.raises(StateTokenError, match="position 1 is not part of"):
        contract.turns(kind([U, S]))


# -- the assistant mask -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ids", "mask"),
    [
        ([], ""),
        ([5, U, 6, A], "...."),
        ([U, A, 5, E, S, T, U, A, 6], "..xx....x"),
        ([U, A, E, S, T], "..x.."),
        ([U, A, 5, A, E, S, T, 7, A, E], "..xxx....."),
        ([U, E, A, 5], "...."),
    ],
)
def test_assistant_mask(contract, kind, ids, mask):
    given_ids = kind(ids)
    result = contract.assistant_mask(given_ids)
    assert same_kind(result, given_ids)
    assert "".join("x" if reply else "." for reply in result) == mask
    assert {type(reply) for reply in result} <= {bool, np.bool_}


def test_assistant_mask_without_state_tokens(impl):
    mask = StateTokens(10, 0, E, U, A).assistant_mask([U, A, 5, E, U, A, 6, U, A, 7])
    assert mask == [False, False, True, True, False, False, True, False, False, True]


@pytest.mark.parametrize("ids", [[U, A, E], [U, A, 5, U], [U, A, E, S], [S]], ids=str)
def test_assistant_mask_refuses_what_check_refuses(contract, kind, ids):
    with pytest.raises(StateTokenError) as by_check:
        contract.check(kind(ids))
    with pytest.raises(StateTokenError) as refusal:
        contract.assistant_mask(kind(ids))
    assert str(refusal.value) == str(by_check.value)


# -- all of them ------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["insert_with_sources", "check", "turns", "assistant_mask"])
@pytest.mark.parametrize(
    "bad", [None, "ids", 5, [5.0], [[5]], {"input_ids": [5]}, np.zeros((1, 2))]
)
def test_what_is_no_sequence_of_ids(contract, method, bad):
    with pytest.raises((TypeError, ValueError)) as error:
        getattr(contract, method)(bad)
    with pytest.raises(type(error.value)) as by_insert:
        contract.insert(bad)
    assert str(error.value) == str(by_insert.value)


def test_the_edits_come_from_the_implementation_under_test(impl):
    assert statetok.contract.insert_with_edits is impl.insert_with_edits
