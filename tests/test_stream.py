"""`Stream`: however a sequence is cut, the pushes joined are the one-shot answer."""

import copy
import inspect
import os
import pickle
import subprocess
import sys
from functools import cache

import numpy as np
import oracle
import pytest
from conftest import IMPLEMENTATIONS, STREAMS, in_eight_threads
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_differential import ALPHABET, conversations

import statetok
from statetok import StateTokenError, StateTokens

U, A, E, S, T = 1, 2, 0, 10, 11  # user, assistant, eot, and the two state ids


@pytest.fixture
def contract(impl):
    return StateTokens(10, 2, E, U, A)


@pytest.fixture
def stream(contract):
    return contract.stream()


def test_the_stream_under_test_is_that_of_the_implementation(impl, stream):
    """Without this, `impl` could be asked for and never used."""
    assert isinstance(stream, impl.StreamBase)


# -- the law ----------------------------------------------------------------------------------


@cache
def one_shot(ids, k):
    return oracle.insert_state_blocks(list(ids), 10, k, E, U, A)


def ended(stream):
    """What `finish` says: nothing, or the text of its refusal."""
    try:
        return stream.finish()
    except StateTokenError as error:
        return str(error)


def assert_every_cut(stream, k, length, before=(), returned=(), piece=(), refused=False):
    """Push every piece that begins with `piece`, and every next one behind those that are taken.

    No sequence gets longer than `length` ids, nor longer by more than one id than is refused.
    """
    for id in ALPHABET:
        longer = (*piece, id)
        ids = (*before, *longer)
        expected = one_shot(ids, k)
        then = stream.copy()
        refusal = None
        try:
            out = [*returned, *then.push(list(longer) if piece else id)]
        except StateTokenError as error:
            refusal = error
        if refusal:
            assert str(refusal) == expected, (before, longer)
            assert f"position {refusal.position} " in expected
            assert then.__getstate__() == stream.__getstate__()
            # No block has begun that the next pieces may complete.
            rest = [(*ids, *range(S + given, S + k)) for given in range(1, k)]
            assert all(isinstance(one_shot(whole, k), str) for whole in rest), (before, longer)
        else:
            refused_at_the_end = ended(then)
            assert (refused_at_the_end or out) == expected, (before, longer)
            assert (then.pending > 0) == (refused_at_the_end is not None)
            assert then.position == len(ids)
        if len(ids) < length:
            if not refusal:
                assert_every_cut(then, k, length, ids, out)
            if not refused:
                assert_every_cut(stream, k, length, before, returned, longer, bool(refusal))


@pytest.mark.parametrize(("k", "length"), [(0, 4), (1, 5), (2, 6), (3, 5)])
def test_every_cut_of_every_sequence(impl, k, length):
    assert_every_cut(StateTokens(10, k, E, U, A).stream(), k, length)


@settings(
    max_examples=500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(conversations(), st.data())
def test_conversations_in_pieces(impl, conversation, data):
    numbers, ids = conversation
    stream = StateTokens(*numbers).stream()
    out = []
    try:
        while ids[stream.position :]:
            piece = ids[stream.position :][: data.draw(st.integers(0, 60))]
            kinds = [piece, tuple(piece), np.array(piece, np.int64), np.array(piece, np.int32)]
            pushed = stream.push(data.draw(st.sampled_from(kinds + piece[:1])))
            out += list(pushed)
        stream.finish()
    except StateTokenError as error:
        out = str(error)
    assert out == oracle.insert_state_blocks(ids, *numbers)


DEFECTS = {
    "a block given is not swallowed": ("out[self._old : end]", "out[len(self._before) : end]"),
    "a reply is not seen to be open": ("end -= 1 + k", "end -= 0"),
    "an open user is forgotten": ("(user,) if instead", "() if instead"),
    "a begun block may follow any eot": ("out[-1] < vocab", "False"),
    "a begun block is taken for granted": ("self._begun(asked)", "0"),
    "a block may follow any eot": ("if inserts else ()", ""),
    "text changes nothing behind an eot": ("< 3 else 0", "< 4 else 0"),
    "positions count in the piece": ("self._position - self._ahead)", "0)"),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_is_caught(defect):
    was, becomes = DEFECTS[defect]
    source = inspect.getsource(statetok.stream)
    assert source.count(was) == 1, f"{was!r} stands {source.count(was)} times in the stream"
    planted = {"__name__": "statetok.planted", "__package__": "statetok"}
    exec(source.replace(was, becomes), planted)
    with pytest.raises((AssertionError, IndexError)):
        assert_every_cut(planted["Stream"](StateTokens(10, 2, E, U, A)), 2, 5)


# -- what a server does -----------------------------------------------------------------------


def test_a_conversation_as_a_server_has_it(stream):
    assert stream.push([U, 5, A]) == [U, 5, A]
    assert stream.push(6) == [6]
    assert stream.push(E) == [E, S, T]
    assert stream.push([U, 7, A]) == [U, 7, A]
    assert stream.push(8) == [8]  # and it ran into a limit
    assert stream.push([U, 9, A]) == [E, S, T, U, 9, A]
    assert stream.position == 12


def test_close_turn_brings_forward_what_the_next_user_would_call_for(stream):
    stream.push([U, 5, A, 6])
    assert stream.close_turn() == [E, S, T]
    assert stream.close_turn() == []
    assert stream.position == 4  # the eot was not pushed
    later = stream.copy()
    assert stream.push([U, 7]) == [U, 7]
    assert later.push([S, T, U, 7]) == [U, 7]  # the block, given back
    with pytest.raises(StateTokenError, match="token id -1 at position 6 is negative"):
        stream.push(-1)


@pytest.mark.parametrize(
    "ids", [[], [5], [U], [U, 5], [A, 5], [U, A, E], [U, A, E, S], [U, A, E, 5], [U, E]], ids=str
)
def test_close_turn_of_no_open_reply(stream, ids):
    stream.push(ids)
    before = stream.__getstate__()
    assert stream.close_turn() == []
    assert stream.__getstate__() == before


def test_a_model_without_state_tokens_gets_nothing_from_close_turn(impl):
    stream = StateTokens(10, 0, E, U, A).stream()
    assert stream.push([U, A, 5]) == [U, A, 5]
    assert stream.close_turn() == []  # its header inserts no eot either
    assert stream.push([E, U]) == [E, U]


def test_a_block_given_in_pieces_is_swallowed(stream):
    assert stream.push([U, A, E]) == [U, A, E, S, T]
    assert stream.push(S) == []
    assert stream.pending == 1
    assert stream.push([T, U]) == [U]
    assert stream.pending == 0


def test_half_a_block(stream):
    stream.push([5, U, A])
    assert stream.push([E, S]) == [E, S, T]
    text = (
        "the state block after the <|endoftext|> at position 3 is not the 2 ids 10 .. 11 in order"
    )
    with pytest.raises(StateTokenError) as refusal:
        stream.finish()
    assert (str(refusal.value), refusal.value.position) == (text, 3)
    with pytest.raises(StateTokenError) as refusal:
        stream.push(5)
    assert (str(refusal.value), refusal.value.position) == (text, 3)
    stream.push(T)
    stream.finish()


def test_a_refusal_leaves_the_stream_as_it_was(stream):
    stream.push([U, 5, A, 6])
    for bad in (-100, [7, 8, S], (7, E, S, S), [E, "x"], [[7]], None, "ids", np.array([[7]])):
        with pytest.raises((ValueError, TypeError)):
            stream.push(bad)
    assert stream.position == 4
    assert stream.push([7, E]) == [7, E, S, T]


def test_positions_count_from_the_beginning_of_the_stream(stream):
    stream.push(list(range(3, 8)))
    for ids in (
        [7, "x"],
        (7, "x"),
        [7, 2**40],
        np.array([7, 2**40]),
        [7, -100],
        np.array([7, -100]),
    ):
        with pytest.raises((ValueError, TypeError), match="at position 6"):
            stream.push(ids)
    with pytest.raises(StateTokenError) as refusal:
        stream.push(-100)
    assert refusal.value.position == 5
    assert "-100 marks ignored labels" in refusal.value.__notes__[0]

    class Odd:
        def __index__(self):
            raise RuntimeError("odd")

    with pytest.raises(RuntimeError, match="odd") as error:
        stream.push([7, Odd()])
    assert error.value.__notes__ == ["This is from the id at position 6."]


# -- kinds ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int64", "uint64", ">i4"])
def test_an_array_comes_back_as_one(stream, dtype):
    for piece, expected in (([U, 5, A, 6], [U, 5, A, 6]), ([7, E], [7, E, S, T]), ([], [])):
        out = stream.push(np.array(piece, dtype))
        assert type(out) is np.ndarray
        assert out.dtype == np.dtype(dtype).newbyteorder("=")
        assert out.tolist() == expected


def test_a_block_that_does_not_fit_the_array(impl):
    stream = StateTokens(255, 4, E, U, A).stream()
    stream.push(np.array([U, A], np.uint8))
    with pytest.raises(ValueError, match="id 256 must be written"):
        stream.push(np.array([E], np.uint8))
    assert stream.push(np.array([E], np.uint16)).tolist() == [E, 255, 256, 257, 258]
    # What is in front of the array need not fit it.
    wide = StateTokens(1000, 1, E, 998, 999).stream()
    wide.push([998, 999])
    assert wide.push(np.array([7], np.uint8)).tolist() == [7]


@pytest.mark.parametrize("one", [np.int64(5), np.uint8(5), np.array(5)])
def test_other_single_integers(stream, one):
    out = stream.push(one)
    assert out == [5]
    assert type(out[0]) is int


def test_ids_that_were_given_are_the_same_objects(impl):
    stream = StateTokens(100_000, 1, 0, 1, 2).stream()
    ids = [1, int("70000"), 2, int("80000")]
    out = stream.push(ids) + stream.push(ids[1])
    assert [id(a) for a in out] == [id(b) for b in [*ids, ids[1]]]


@pytest.mark.parametrize("bad", [True, 5.0, "5", None, {5}, 2**31, -(2**31) - 1])
def test_what_is_no_id(stream, bad):
    with pytest.raises((TypeError, ValueError)) as error:
        stream.push(bad)
    assert len(str(error.value)) < 300


# -- the object -------------------------------------------------------------------------------


def test_a_copy_goes_its_own_way(stream):
    stream.push([U, 5, A, 6, E])
    for other in (stream.copy(), copy.copy(stream), copy.deepcopy(stream)):
        assert other.push(S) == []
        assert (other.position, other.pending) == (6, 1)
    assert (stream.position, stream.pending) == (5, 0)


def test_it_pickles(stream):
    stream.push([U, 5, A, 6])
    again = pickle.loads(pickle.dumps(stream))
    assert type(again) is type(stream)
    assert again.contract == stream.contract
    assert again.position == 4
    assert again.push(U) == [E, S, T, U]
    assert repr(again).startswith("<Stream at position 5 of StateTokens(vocab=10, k=2")


def test_a_pickle_of_one_implementation_is_good_for_the_other():
    """As when a server without a compiler takes over what another one saved."""
    made = []
    for implementation in IMPLEMENTATIONS:
        code = (
            "import pickle, statetok, sys; "
            "stream = statetok.StateTokens(10, 2, 0, 1, 2).stream(); stream.push([1, 5, 2, 6]); "
            "sys.stdout.buffer.write(pickle.dumps(stream, 4))"
        )
        environment = {**os.environ, "STATETOK_IMPLEMENTATION": implementation}
        ran = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, check=True
        )
        made.append(ran.stdout)
        assert pickle.loads(ran.stdout).push(U) == [E, S, T, U]
    assert made[0] == made[1]


def test_the_state_is_not_for_others_to_change(stream):
    with pytest.raises(AttributeError):
        stream.position = 7
    with pytest.raises(AttributeError):
        stream.other = 7


def test_both_say_the_same_of_push():
    cpp, python = (module.StreamBase.push for module in IMPLEMENTATIONS.values())
    assert inspect.signature(cpp) == inspect.signature(inspect.unwrap(python)).replace(
        parameters=[
            parameter.replace(annotation=inspect.Parameter.empty)
            for parameter in inspect.signature(python).parameters.values()
        ],
        return_annotation=inspect.Signature.empty,
    )
    assert inspect.getdoc(cpp) == inspect.getdoc(python)


def test_used_from_many_threads_it_does_not_crash(stream):
    def work():
        for _ in range(2000):
            stream.push([U, 5, A])
            stream.push(6)
            stream.push(E)

    in_eight_threads(work)
    assert stream.push([7]) == [7]


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_what_was_never_set_up_raises(implementation):
    stream = STREAMS[implementation].__new__(STREAMS[implementation])
    with pytest.raises(AttributeError):
        stream.push(5)
