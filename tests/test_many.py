"""Many sequences in one call: `insert_ragged` and `insert_batch`."""

import threading
from itertools import pairwise

import numpy as np
import oracle
import pytest
from conftest import in_eight_threads
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from statetok import StateTokenError, StateTokens

NUMBERS = (100, 2, 0, 1, 2)
ROWS = [[1, 50, 2, 51, 0], [], [7], [1, 2, 1], [1, 2, 0, 100, 101]]
EXPECTED = [
    [1, 50, 2, 51, 0, 100, 101],
    [],
    [7],
    [1, 2, 0, 100, 101, 1],
    [1, 2, 0, 100, 101],
]


@pytest.fixture
def contract(impl):
    return StateTokens(*NUMBERS)


def ragged(rows, dtype=np.int32, offset_dtype=np.int64):
    values = np.array([id for row in rows for id in row], dtype)
    return values, np.cumsum([0, *map(len, rows)]).astype(offset_dtype)


def unragged(values, offsets):
    return [values[begin:end].tolist() for begin, end in pairwise(offsets)]


# -- ragged -----------------------------------------------------------------------------------


@pytest.mark.parametrize("offset_dtype", ["int32", "int64", ">i8"])
@pytest.mark.parametrize("dtype", [*"bBhHiIlLqQ", ">i4"])
def test_rows(contract, dtype, offset_dtype):
    given = ragged(ROWS, dtype, offset_dtype)
    before = [array.copy() for array in given]
    values, offsets = contract.insert_ragged(*given)
    assert unragged(values, offsets) == EXPECTED
    assert offsets[0] == 0
    assert values.dtype == np.dtype(dtype).newbyteorder("=")
    assert offsets.dtype == np.dtype(offset_dtype).newbyteorder("=")
    for array, kept in zip(given, before, strict=True):
        assert array.tolist() == kept.tolist()
        assert not np.shares_memory(array, values)
        assert not np.shares_memory(array, offsets)


@pytest.mark.parametrize("rows", [[], [[]], [[], []]])
def test_no_ids_at_all(contract, rows):
    values, offsets = contract.insert_ragged(*ragged(rows))
    assert values.size == 0
    assert offsets.tolist() == [0] * (len(rows) + 1)


def long_rows(n_rows, seed=0):
    """Rows of up to 400 ids, with exchanges, so many that each thread gets some."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(n_rows):
        prompt, reply = (rng.integers(3, 100, rng.integers(0, 200)).tolist() for _ in range(2))
        rows.append([1, *prompt, 2, *reply, *([0] if rng.random() < 0.8 else [1])])
    return rows


@pytest.mark.parametrize("threads", [1, 2, 3, 7, 1000, None, np.int64(2)])
def test_any_number_of_threads_gives_the_same(contract, threads):
    rows = long_rows(1500)
    values, offsets = contract.insert_ragged(*ragged(rows), threads=threads)
    assert unragged(values, offsets) == [oracle.insert_state_blocks(row, *NUMBERS) for row in rows]


@pytest.mark.parametrize("dtype", [np.uint8, np.int64])
def test_rows_of_control_ids_only(contract, dtype):
    """More edits than may be kept: they are found a second time."""
    rows = [[1, 2, 0, 1, 2, 1]] * 20_000
    values, offsets = contract.insert_ragged(*ragged(rows, dtype), threads=2)
    expected = [1, 2, 0, 100, 101, 1, 2, 0, 100, 101, 1]
    assert values.dtype == dtype
    assert values.tolist() == expected * 20_000
    assert offsets.tolist() == list(range(0, 11 * 20_001, 11))


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.integers(-1, 12), max_size=9), max_size=9), st.integers(1, 4))
def test_ragged_agrees_with_the_oracle_row_by_row(impl, rows, threads):
    numbers = (10, 2, 0, 1, 2)
    expected = [oracle.insert_state_blocks(row, *numbers) for row in rows]
    bad = [row for row, answer in enumerate(expected) if isinstance(answer, str)]
    contract = StateTokens(*numbers)
    if not bad:
        assert unragged(*contract.insert_ragged(*ragged(rows), threads=threads)) == expected
        return
    with pytest.raises(StateTokenError) as refusal:
        contract.insert_ragged(*ragged(rows), threads=threads)
    assert refusal.value.row == bad[0]
    assert str(refusal.value) == expected[bad[0]]


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("bad_rows", [[0], [1499], [700, 750], [20, 1400], [750, 751, 752]])
def test_the_first_bad_row_is_the_one_that_is_reported(contract, threads, bad_rows):
    rows = long_rows(1500)
    for row in bad_rows:
        rows[row] = [5, 6, -100, 7]
    with pytest.raises(StateTokenError) as refusal:
        contract.insert_ragged(*ragged(rows), threads=threads)
    assert str(refusal.value) == "token id -100 at position 2 is negative"
    assert (refusal.value.row, refusal.value.position) == (bad_rows[0], 2)
    assert refusal.value.__notes__[1] == f"This is about row {bad_rows[0]}."


def test_other_faults_name_their_row_too(contract):
    with pytest.raises(ValueError, match="the id at position 1 is 4294967296") as refusal:
        contract.insert_ragged(*ragged([[5], [6, 2**32], [-1]], np.int64))
    assert refusal.value.row == 1
    with pytest.raises(ValueError, match=r"id 128 must be written .* int8") as refusal:
        StateTokens(127, 2, 0, 1, 2).insert_ragged(*ragged([[5], [1, 2, 0], [-1]], np.int8))
    assert refusal.value.row == 1


@pytest.mark.parametrize(
    ("offsets", "words"),
    [
        ([0, 3, 2, 5], "decrease from 3 at position 1 to 2"),
        ([0, 2, 4], "from 0 to 4, and the ids from 0 to 5"),
        ([0, 2, 6], "from 0 to 6, and the ids from 0 to 5"),
        ([1, 5], "from 1 to 5, and the ids from 0 to 5"),
        ([-1, 5], "from -1 to 5"),
        ([0], "from 0 to 0"),
        ([], r"shape \(0,\): n rows have n \+ 1"),
        ([[0, 5]], r"shape \(1, 2\)"),
    ],
)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_bad_offsets(contract, offsets, words, dtype):
    with pytest.raises(ValueError, match=words):
        contract.insert_ragged(np.arange(3, 8), np.array(offsets, dtype))


@pytest.mark.parametrize(
    "offsets", [[0, 5], None, np.array([0.0, 5.0]), np.array([0, 5], np.uint64), range(0, 6, 5)]
)
def test_offsets_of_another_type(contract, offsets):
    with pytest.raises(TypeError, match=r"offsets must be (an array )?of int32 or int64, not "):
        contract.insert_ragged(np.arange(3, 8), offsets)


def test_values_that_are_no_array(contract):
    with pytest.raises(TypeError, match="values must be an array, not list: insert_batch"):
        contract.insert_ragged([1, 2, 0], np.array([0, 3]))


@pytest.mark.parametrize("values", [memoryview(np.arange(3, dtype=np.int32)), np.array([])])
def test_values_that_are_no_integer_array(contract, values):
    with pytest.raises(TypeError, match=r"values must be an integer array, not (memory|ndarr)"):
        contract.insert_ragged(values, np.array([0, len(values)]))


def test_values_of_another_shape(contract):
    with pytest.raises(ValueError, match=r"values has shape \(2, 2\): .*values\.ravel\(\)"):
        contract.insert_ragged(np.zeros((2, 2), int), np.array([0, 2, 4]))


def test_masked_offsets(contract):
    with pytest.raises(TypeError, match=r"offsets must be an array .*, not MaskedArray"):
        contract.insert_ragged(np.arange(3, 8), np.ma.array([0, 5], mask=[0, 1]))


def test_offsets_that_change_meanwhile(contract):
    """Whatever comes of it, nothing outside the arrays is touched and no id is left unset."""
    n = 200_000
    values = np.resize(np.array([1, 2, 0], np.int32), n)
    offsets = np.array([0, n // 2, n])
    done = threading.Event()

    def change():
        while not done.is_set():
            offsets[1] = 0
            offsets[1] = n

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for threads in [1, 2] * 20:
            try:
                result, _ = contract.insert_ragged(values, offsets, threads=threads)
            except (RuntimeError, ValueError):
                continue
            assert set(np.unique(result)) <= {0, 1, 2, 100, 101}
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize(
    ("threads", "error"), [(0, ValueError), (-1, ValueError), ("2", TypeError), (True, TypeError)]
)
def test_bad_threads(contract, threads, error):
    with pytest.raises(error, match=r"^threads "):
        contract.insert_ragged(*ragged(ROWS), threads=threads)


def test_several_callers_at_once(contract):
    rows = long_rows(400)
    given = ragged(rows)
    expected = [oracle.insert_state_blocks(row, *NUMBERS) for row in rows]

    def work():
        assert unragged(*contract.insert_ragged(*given, threads=2)) == expected

    in_eight_threads(work)


# -- with sources -----------------------------------------------------------------------------


@pytest.mark.parametrize("offset_dtype", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64])
def test_sources(contract, dtype, offset_dtype):
    values, offsets = ragged(ROWS, dtype, offset_dtype)
    insertion, new_offsets = contract.insert_ragged_with_sources(values, offsets)
    assert insertion.ids.dtype == dtype
    assert new_offsets.dtype == offset_dtype
    assert unragged(insertion.ids, new_offsets) == EXPECTED
    assert insertion.sources.dtype == np.int64
    assert unragged(insertion.sources, new_offsets) == [
        [0, 1, 2, 3, 4, -1, -1],
        [],
        [5],
        [6, 7, -1, -1, -1, 8],
        [9, 10, 11, 12, 13],
    ]
    assert insertion.carry(values, 99).tolist()[5:9] == [99, 99, 7, 1]


@pytest.mark.parametrize("rows", [long_rows(1500), [[1, 2, 0, 1, 2, 1]] * 20_000, [], [[]]])
@pytest.mark.parametrize("threads", [1, 3])
def test_sources_say_what_was_given_and_what_was_not(contract, rows, threads):
    values, offsets = ragged(rows)
    plain, expected = contract.insert_ragged(values, offsets)
    (ids, sources), new_offsets = contract.insert_ragged_with_sources(
        values, offsets, threads=threads
    )
    assert (ids == plain).all()
    assert (new_offsets == expected).all()
    assert sources[sources >= 0].tolist() == list(range(values.size))
    assert (ids[sources >= 0] == values).all()
    inserted = ids[sources < 0]
    assert ((inserted == 0) | (inserted >= 100)).all()


def test_sources_of_what_is_refused(contract):
    with pytest.raises(StateTokenError, match=r"^token id -1 at position 1 is neg") as refusal:
        contract.insert_ragged_with_sources(*ragged([[5], [6, -1]]))
    assert refusal.value.row == 1


# -- batch ------------------------------------------------------------------------------------


def test_batch(contract):
    assert contract.insert_batch(ROWS) == EXPECTED
    assert contract.insert_batch(iter(ROWS)) == EXPECTED
    assert contract.insert_batch([]) == []
    first, second = contract.insert_batch([(1, 2, 0), np.array([1, 2, 0], np.int16)])
    assert first == [1, 2, 0, 100, 101]
    assert second.dtype == np.int16


@pytest.mark.parametrize(
    ("bad", "error"), [([5, -1], StateTokenError), ([5, None], TypeError), (None, TypeError)]
)
def test_batch_names_the_row(contract, bad, error):
    with pytest.raises(error) as refusal:
        contract.insert_batch([[5], bad, [-1]])
    assert refusal.value.row == 1
    assert refusal.value.__notes__[-1] == "This is about row 1."
