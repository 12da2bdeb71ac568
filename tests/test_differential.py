"""Both implementations against the naive oracle: the same ids, or the same refusal."""

import inspect
import itertools
import types

import numpy as np
import oracle
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import statetok._core
import statetok.twin
from statetok import StateTokenError

VOCAB, EOT, USER, ASSISTANT, TEXT, OTHER_TEXT = 10, 0, 1, 2, 3, 9  # 9: the last one below vocab
# Every kind of id there is: control, text, each state id of k = 2, past those, negative.
ALPHABET = (USER, ASSISTANT, EOT, TEXT, OTHER_TEXT, VOCAB, VOCAB + 1, VOCAB + 2, -1)


def outcome(function, ids, *numbers):
    """What `function` makes of the ids: a list, or the text of its refusal."""
    try:
        return function(ids, *numbers)
    except StateTokenError as error:
        return str(error)


def assert_agrees(function, k, lengths):
    """Compare `function` with the oracle on every sequence of these lengths."""
    numbers = (VOCAB, k, EOT, USER, ASSISTANT)
    sequences = (itertools.product(ALPHABET, repeat=length) for length in lengths)
    for ids in map(list, itertools.chain.from_iterable(sequences)):
        assert outcome(function, ids, *numbers) == oracle.insert_state_blocks(ids, *numbers), ids


@pytest.mark.parametrize("k", [0, 1, 2])
def test_every_sequence(impl, k):
    assert_agrees(impl.insert_state_blocks, k, range(7))


# -- the suite can fail ----------------------------------------------------------------------

# One defect each, planted in the source of the twin: what stands there, what is put in its place.
DEFECTS = {
    "a user alone is a reply": ("if phase == REPLY:", "if phase != NONE:"),
    "an assistant alone opens a reply": ("if phase == USER:", "if True:"),
    "an eot does not end the exchange": ("phase = NONE\n            out", "out"),
    "a new user does not start afresh": ("phase = USER\n", "pass\n"),
    "an early stop gets no eot": ("out.append(eot)\n", "pass\n"),
    "an early stop gets no block": ("out.extend(block)\n            phase", "phase"),
    "an eot gets no block": ("else:\n                    out.extend(block)", "pass"),
    "a given block is doubled": ("i += k\n", "i += k; out.extend(block)\n"),
    "the end of a given block is not checked": ("in range(k):", "in range(k - 1):"),
    "a cut block is taken as it is": ("i + 1 + j >= n or", "i + 1 + j < n and"),
    "no eot needs a reply": ("closes = phase == REPLY", "closes = True"),
    "minus one is let through": ("if id < 0:", "if id < -1:"),
    "the first state id is let through": (
        "if id >= vocab:\n            raise",
        "if id > vocab:\n            raise",
    ),
    "positions count from 1": ("at position {i} is negative", "at position {i + 1} is negative"),
}


def twin_with(was, becomes):
    source = inspect.getsource(statetok.twin)
    assert source.count(was) == 1, f"{was!r} stands {source.count(was)} times in the twin"
    planted = types.ModuleType("statetok.planted")
    planted.__package__ = "statetok"  # for its relative imports
    exec(source.replace(was, becomes), vars(planted))
    return planted.insert_state_blocks


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_is_caught(defect):
    planted = twin_with(*DEFECTS[defect])
    with pytest.raises(AssertionError):
        assert_agrees(planted, 2, range(6))


def test_without_a_defect_the_same_check_passes():
    assert_agrees(twin_with("i += k\n", "i += k\n"), 2, range(6))


# -- long sequences that look like conversations ----------------------------------------------


@st.composite
def conversations(draw):
    """The numbers of a contract, and the ids of a conversation with a few things gone wrong."""
    vocab = draw(st.integers(4, 131072))
    k = draw(st.integers(0, 5))
    eot, user, assistant = draw(
        st.lists(st.integers(0, vocab - 1), min_size=3, max_size=3, unique=True)
    )
    block = list(range(vocab, vocab + k))
    text = st.lists(st.integers(0, vocab - 1), max_size=40)
    slip = st.sampled_from([-1, -100, vocab, vocab + k - 1, vocab + k, eot, user, assistant])
    ids = draw(text)
    for _ in range(draw(st.integers(0, 8))):
        ids += [user, *draw(text), assistant, *draw(text)]
        ids += draw(st.sampled_from([[], [eot], [eot], [eot, *block], [eot, *block[:-1]]]))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        ids.insert(draw(st.integers(0, len(ids))), draw(slip))
    return (vocab, k, eot, user, assistant), ids


@settings(
    max_examples=500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(conversations())
def test_conversations(impl, conversation):
    numbers, ids = conversation
    expected = oracle.insert_state_blocks(ids, *numbers)
    assert outcome(impl.insert_state_blocks, ids, *numbers) == expected
    array = outcome(impl.insert_state_blocks, np.array(ids, np.int32), *numbers)
    assert (array if isinstance(array, str) else array.tolist()) == expected
    if isinstance(expected, list):
        assert impl.insert_state_blocks(expected, *numbers) == expected  # nothing is doubled


# -- where the comment is silent, the header itself is the authority ---------------------------


def both(ids, *numbers):
    return [
        outcome(module.insert_state_blocks, ids, *numbers)
        for module in (statetok._core, statetok.twin)
    ]


@settings(max_examples=500, deadline=None)
@given(
    st.lists(st.integers(-2, 6), max_size=12),
    st.tuples(st.integers(-2, 5), st.integers(-1, 3), *[st.integers(-2, 6)] * 3),
)
def test_numbers_of_no_model(ids, numbers):
    """Negative vocab and k, control ids that are equal or no ids: both do what the header does."""
    cpp, python = both(ids, *numbers)
    assert cpp == python


@settings(deadline=None)
@given(
    st.lists(st.sampled_from([1, 2, 3, 2**31 - 3, 2**31 - 2, 2**31 - 1, -(2**31)]), max_size=8),
    st.integers(0, 3),
)
def test_the_ends_of_32_bits(ids, k):
    cpp, python = both(ids, min(2**31 - k, 2**31 - 1), k, 1, 2, 3)
    assert cpp == python


@pytest.mark.parametrize("position", [0, 1, 8190, 8191, 8192, 9999])
@pytest.mark.parametrize("bad", [-1, 131072, 131076])
def test_position_in_a_long_sequence(impl, position, bad):
    ids = [7] * 10_000
    ids[position] = bad
    for given_ids in (ids, np.array(ids, np.int64)):
        with pytest.raises(StateTokenError) as refusal:
            impl.insert_state_blocks(given_ids, 131072, 4, 2, 3, 4)
        assert refusal.value.position == position
