"""`StateTokens`: the numbers, the object, its sequences."""

import copy
import json
import pickle
import weakref

import numpy as np
import pytest

import statetok
from statetok import StateTokenError, StateTokens

NUMBERS = {"vocab": 100, "k": 2, "eot": 0, "user": 1, "assistant": 2}


@pytest.fixture
def contract(impl):  # impl: what its insert calls
    return StateTokens(**NUMBERS)


# -- the object -------------------------------------------------------------------------------


def test_a_value_that_does_not_change():
    contract = StateTokens(100, 2, 0, 1, 2)
    assert contract == StateTokens(**NUMBERS)
    assert hash(contract) == hash(StateTokens(**NUMBERS))
    assert contract != StateTokens(**NUMBERS | {"k": 3})
    assert contract != (100, 2, 0, 1, 2)
    assert repr(contract) == "StateTokens(vocab=100, k=2, eot=0, user=1, assistant=2)"
    assert eval(repr(contract)) == contract
    for again in (pickle.loads(pickle.dumps(contract)), copy.deepcopy(contract)):
        assert again == contract
    with pytest.raises(AttributeError, match="cannot be changed"):
        contract.k = 3
    with pytest.raises(AttributeError, match="cannot be changed"):
        del contract.k
    with pytest.raises(AttributeError):
        contract.other = 3


def test_a_second_init_changes_nothing():
    contract = StateTokens(**NUMBERS)
    contract.__init__(200, 2, 0, 1, 2)
    assert contract == StateTokens(**NUMBERS)


def test_what_else_an_object_can():
    contract = StateTokens(**NUMBERS)
    assert weakref.ref(contract)() is contract
    kind = type("Mine", (StateTokens,), {})
    assert repr(kind(**NUMBERS)).startswith("Mine(vocab=100, ")


def test_numbers_become_plain_ints():
    contract = StateTokens(**{name: np.int64(number) for name, number in NUMBERS.items()})
    assert {type(getattr(contract, name)) for name in NUMBERS} == {int}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"vocab": 0}, "vocab is 0: it must be at least 1"),
        ({"vocab": -5}, "vocab is -5: it must be at least 1"),
        ({"k": -1}, "k is -1: it must be at least 0"),
        ({"eot": 100}, "eot is 100: it must be an id from 0 to 99"),
        ({"user": -1}, "user is -1: it must be an id from 0 to 99"),
        ({"assistant": 101}, "assistant is 101: it must be an id from 0 to 99"),
        ({"eot": 1}, "three different ids"),
        ({"user": 2}, "three different ids"),
        ({"assistant": 0}, "three different ids"),
        ({"vocab": 2**31 - 1}, r"vocab \+ k"),
        ({"k": 2**31}, "k is 2147483648: it must fit in 32 bits"),
    ],
)
def test_numbers_that_belong_to_no_model(change, words):
    with pytest.raises(ValueError, match=words):
        StateTokens(**NUMBERS | change)


def test_numbers_at_the_limits():
    assert StateTokens(3, 0, 0, 1, 2).state_ids == range(3, 3)
    assert StateTokens(2**31 - 2, 2, 0, 1, 2).state_ids[-1] == 2**31 - 1


@pytest.mark.parametrize("value", [True, 2.0, "2", None, [2]])
def test_numbers_that_are_no_ints(value):
    with pytest.raises(TypeError, match="k must be an int"):
        StateTokens(**NUMBERS | {"k": value})


# -- JSON -------------------------------------------------------------------------------------


def test_json():
    contract = StateTokens(**NUMBERS)
    assert json.loads(contract.to_json()) == NUMBERS
    assert StateTokens.from_json(contract.to_json()) == contract
    assert StateTokens.from_json(json.dumps(NUMBERS, indent=2).encode()) == contract


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Expecting value"),
        ("[1, 2]", "a contract is a JSON object, not list"),
        ("{}", "the fields vocab, k, eot, user, assistant, once each; found: none"),
        (json.dumps({"vocab": 100}), "found: vocab$"),
        (json.dumps(NUMBERS | {"pad": 7}), "found: vocab, k, eot, user, assistant, pad"),
        (json.dumps(NUMBERS)[:-1] + ', "k": 3}', "once each; found: .*, k$"),
        (json.dumps(NUMBERS | {"k": -1}), "k is -1"),
        (json.dumps({"a" * 1000: 1}), "found: a{20}$"),
        ('{"\\ud800\\u001b": 1}', r"found: \\ud800\\x1b$"),
        ("[" * 200_000, "this is nested"),
        ('{"vocab":' * 200_000, "this is nested"),
    ],
)
def test_json_that_is_no_contract(text, words):
    with pytest.raises(ValueError, match=words) as refusal:
        StateTokens.from_json(text)
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize("value", ["2.0", "true", '"2"', "null", "[2]", "{}"])
def test_json_numbers_that_are_no_ints(value):
    text = json.dumps(NUMBERS).replace('"k": 2', f'"k": {value}')
    with pytest.raises(TypeError, match="k must be an int"):
        StateTokens.from_json(text)


# -- state ids --------------------------------------------------------------------------------


def test_state_ids():
    contract = StateTokens(**NUMBERS)
    assert contract.state_ids == range(100, 102)
    assert [id for id in range(-5, 110) if contract.is_state_id(id)] == [100, 101]
    assert contract.is_state_id(np.int64(101))
    assert not StateTokens(**NUMBERS | {"k": 0}).is_state_id(100)
    assert not contract.is_state_id(10**100)
    for other in (100.5, "100", None, True, np.array([100])):
        with pytest.raises(TypeError, match="an id must be an int, not"):
            contract.is_state_id(other)


# -- insert and strip -------------------------------------------------------------------------


def test_insert_passes_the_numbers_on_in_order(contract):
    assert contract.insert([1, 50, 2, 51, 1]) == [1, 50, 2, 51, 0, 100, 101, 1]
    result = contract.insert(np.array([1, 2, 0], np.int16))
    assert result.dtype == np.int16
    assert result.tolist() == [1, 2, 0, 100, 101]


def test_the_implementation_under_test_is_the_one_that_is_called(impl, monkeypatch):
    """Without this, `impl` could be asked for and never used."""
    assert (statetok.contract.bind, statetok.contract.insert_ragged) == (
        impl.bind,
        impl.insert_ragged,
    )
    monkeypatch.setattr(statetok.contract, "bind", lambda *numbers: lambda ids: (ids, numbers))
    assert StateTokens(**NUMBERS).insert([5]) == ([5], (100, 2, 0, 1, 2))


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([], []),
        ([1, 2, 0, 100, 101, 1], [1, 2, 0, 1]),
        ([101, 99, 100, 0], [99, 0]),  # anywhere, in any order
        ([100, 101], []),
    ],
)
def test_strip(ids, expected):
    contract = StateTokens(**NUMBERS)
    assert contract.strip(ids) == expected
    assert contract.strip(tuple(ids)) == expected
    for dtype in ("int8", "uint8", "int32", "uint64", ">i4"):
        result = contract.strip(np.array(ids, dtype))
        assert type(result) is np.ndarray
        assert result.dtype == np.dtype(dtype).newbyteorder("=")
        assert result.tolist() == expected


def test_strip_returns_the_same_objects():
    ids = [1, int("70000"), 2, 0, 100_000]
    result = StateTokens(100_000, 1, 0, 1, 2).strip(ids)
    assert [id(a) for a in result] == [id(b) for b in ids[:-1]]


def test_strip_never_returns_the_input():
    contract = StateTokens(**NUMBERS)
    ids = np.array([5, 6])
    assert not np.shares_memory(contract.strip(ids), ids)
    plain = [5, 6]
    assert contract.strip(plain) is not plain


def test_strip_undoes_insert_but_for_the_closing_eot(contract):
    assert contract.strip(contract.insert([1, 5, 2, 6, 0, 7])) == [1, 5, 2, 6, 0, 7]
    assert contract.strip(contract.insert([1, 5, 2, 6, 1, 7])) == [1, 5, 2, 6, 0, 1, 7]


@pytest.mark.parametrize("make", [list, np.array])
@pytest.mark.parametrize(
    ("ids", "position", "text"),
    [
        ([5, 102, -1], 1, "token id 102 at position 1 is neither below vocab (100) nor one of"),
        ([5, 101, -1], 2, "token id -1 at position 2 is negative"),
    ],
)
def test_strip_refuses_ids_that_are_not_the_models(make, ids, position, text):
    with pytest.raises(StateTokenError) as refusal:
        StateTokens(**NUMBERS).strip(make(ids))
    assert refusal.value.position == position
    assert str(refusal.value).startswith(text)


def test_strip_knows_an_id_that_needs_more_than_32_bits():
    for ids in ([-1, 2**40], np.array([-1, 2**40])):  # this first, as in insert
        with pytest.raises(ValueError, match=r"at position 1 is 1099511627776: .*32 bits"):
            StateTokens(**NUMBERS).strip(ids)


def test_strip_of_a_model_without_state_tokens():
    contract = StateTokens(**NUMBERS | {"k": 0})
    assert contract.strip([5, 99]) == [5, 99]
    with pytest.raises(StateTokenError) as refusal:
        contract.strip([100])
    assert "padded row" in refusal.value.__notes__[0]


# -- the error --------------------------------------------------------------------------------


def test_the_error_pickles_with_all_it_says(contract):
    with pytest.raises(StateTokenError) as refusal:
        contract.insert([5, -100])
    error = refusal.value
    error.row = 7
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is StateTokenError
    assert str(again) == "token id -100 at position 1 is negative"
    assert (again.position, again.row) == (1, 7)
    assert again.__notes__ == error.__notes__
    assert isinstance(again, ValueError)
