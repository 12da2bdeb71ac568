"""What goes in and what comes out, row by row; and what is refused, in which words."""

import array
import collections
import decimal
import enum
import fractions
import gc
import inspect
import pickle
import subprocess
import sys
import threading
import types
import unittest.mock

import numpy as np
import pytest
from conftest import IMPLEMENTATIONS, in_eight_threads
from hypothesis import given
from hypothesis import strategies as st

NUMBERS = (100, 2, 0, 1, 2)  # vocab, k, eot, user, assistant
IDS = [1, 50, 2, 51, 0, 1]
EXPECTED = [1, 50, 2, 51, 0, 100, 101, 1]

INTEGERS = "bBhHiIlLqQ"
HUGE = 10**5000  # more digits than Python turns into text


@pytest.fixture
def insert(impl):
    return lambda ids: impl.insert_state_blocks(ids, *NUMBERS)


# -- lists and other sequences ----------------------------------------------------------------


class Unlisted(collections.abc.Sequence):
    """A sequence that is nothing else."""

    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class ListKind(list):
    pass


class Token(enum.IntEnum):
    EOT, USER, ASSISTANT = 0, 1, 2


class Indexed:
    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


SEQUENCES = {
    "list": list,
    "tuple": tuple,
    "array.array": lambda ids: array.array("i", ids),
    "memoryview": lambda ids: memoryview(array.array("q", ids)),
    "deque": collections.deque,
    "UserList": collections.UserList,
    "Sequence": Unlisted,
    "list subclass": ListKind,
}


@pytest.mark.parametrize("make", SEQUENCES.values(), ids=SEQUENCES)
def test_sequences_give_a_list_of_ints(insert, make):
    ids = make(IDS)
    result = insert(ids)
    assert type(result) is list
    assert result == EXPECTED
    assert {type(id) for id in result} == {int}
    assert list(ids) == IDS


def test_range(insert):
    assert insert(range(2, -1, -1)) == [2, 1, 0]
    assert insert(range(0)) == []


@pytest.mark.parametrize("make", [Token, np.int64, np.uint8, Indexed, np.array])
def test_other_integers_come_back_as_ints(insert, make):
    result = insert([make(1), 50, make(2), 51, make(0), 1])
    assert result == EXPECTED
    assert {type(id) for id in result} == {int}


def test_ids_that_were_given_are_the_same_objects(impl):
    ids = [1, int("70000"), 2, int("70001"), 0, int("100000"), int("100001"), int("70002"), 1]
    ids += [2, int("70003"), 1]
    result = impl.insert_state_blocks(ids, 100_000, 2, 0, 1, 2)
    assert result == [*ids[:-1], 0, 100_000, 100_001, 1]
    kept = [*result[: len(ids) - 1], result[-1]]
    assert [id(a) for a in kept] == [id(b) for b in ids]


@pytest.mark.parametrize("ids", [[], [5, 6]])
@pytest.mark.parametrize("make", [list, np.array], ids=["list", "ndarray"])
def test_the_result_is_never_the_input(impl, make, ids):
    given = make(ids)
    for k in (0, 2):
        assert impl.insert_state_blocks(given, 100, k, 0, 1, 2) is not given


# -- arrays -----------------------------------------------------------------------------------


def layouts(ids, dtype):
    plain = np.array(ids, dtype)
    read_only = plain.copy()
    read_only.flags.writeable = False
    unaligned = np.frombuffer(b"x" + plain.tobytes(), np.uint8)[1:].view(dtype)
    table = np.zeros((len(ids), 3), dtype)
    table[:, 1] = ids
    swapped = plain.astype(plain.dtype.newbyteorder("S"))
    return {
        "plain": plain,
        "strided": np.repeat(plain, 2)[::2],
        "reversed": plain[::-1].copy()[::-1],
        "column": table[:, 1],
        "read-only": read_only,
        "byte-swapped": swapped,
        "byte-swapped and reversed": swapped[::-1].copy()[::-1],
        "unaligned": unaligned,
        "fortran": np.asfortranarray(plain),
        "subclass": plain.view(np.recarray),
    }


@pytest.mark.parametrize("layout", layouts([0], np.int64))
@pytest.mark.parametrize("code", INTEGERS)
def test_arrays(insert, code, layout):
    ids = layouts(IDS, code)[layout]
    before = ids.tobytes()
    result = insert(ids)
    assert type(result) is np.ndarray
    assert result.dtype == np.dtype(code)
    assert result.dtype.isnative
    assert result.tolist() == EXPECTED
    assert result.flags.c_contiguous
    assert result.flags.writeable
    assert not np.shares_memory(result, ids)
    assert ids.tobytes() == before


def test_memmap(insert, tmp_path):
    np.array(IDS, np.uint16).tofile(tmp_path / "ids.bin")
    result = insert(np.memmap(tmp_path / "ids.bin", np.uint16, "r"))
    assert type(result) is np.ndarray
    assert result.dtype == np.uint16
    assert result.tolist() == EXPECTED


@pytest.mark.parametrize("code", [*INTEGERS, "d", "f"])
def test_empty_arrays(insert, code):
    result = insert(np.array([], code))
    assert result.shape == (0,)
    assert result.dtype == np.dtype(code)


@pytest.mark.parametrize(
    ("dtype", "vocab", "unfit"),
    [("int8", 127, 128), ("uint8", 255, 256), ("int16", 32766, 32768), ("uint16", 65535, 65536)],
)
def test_an_id_that_does_not_fit_the_dtype(impl, dtype, vocab, unfit):
    ids = np.array([1, 2, 0], dtype)
    with pytest.raises(ValueError, match=f"id {unfit} must be written .* dtype of ids, {dtype}"):
        impl.insert_state_blocks(ids, vocab, 3, 0, 1, 2)
    # Nothing has to be written, so nothing is wrong.
    assert impl.insert_state_blocks(ids[:2], vocab, 3, 0, 1, 2).tolist() == [1, 2]


def test_a_negative_eot_does_not_fit_an_unsigned_dtype(impl):
    for dtype in ("uint8", "uint64"):
        ids = np.array([1, 2, 1], dtype)
        with pytest.raises(ValueError, match=f"id -5 must be written .* {dtype}"):
            impl.insert_state_blocks(ids, 100, 2, -5, 1, 2)


# -- refused: what it is ----------------------------------------------------------------------


class BatchEncoding(collections.UserDict):
    """A mapping, as transformers' class of this name is."""


class Encoding:
    ids = IDS


class Foreign:
    """An array of another library."""

    def __array__(self, dtype=None, copy=None):
        return np.array(IDS)


WRONG_TYPES = {
    "dict": ({"input_ids": IDS}, 'batch\\["input_ids"\\]'),
    "BatchEncoding": (BatchEncoding(input_ids=IDS), 'batch\\["input_ids"\\]'),
    "Encoding": (Encoding(), r"\.ids"),
    "foreign array": (Foreign(), r"numpy\.asarray"),
    "str": ("text", "not 'text' .str.: encode"),
    "bytes": (b"\1\2", "bytes.*numpy.frombuffer"),
    "bytearray": (bytearray(b"\1\2"), "bytearray.*numpy.frombuffer"),
    "bytes in a memoryview": (memoryview(b"\1\2"), "memoryview.*numpy.frombuffer"),
    "set": ({1, 2}, "not set: pass list"),
    "generator": ((id for id in IDS), "not generator: pass list"),
    "None": (None, "not None: pass a list"),
    "int": (5, "not 5 .int.: pass a list"),
    "numpy int": (np.int64(5), "not 5 .int64.: pass a list"),
    "memoryview of another byte order": (
        memoryview(np.arange(3, dtype=">i4")),
        "memoryview.*numpy.frombuffer",
    ),
    "memoryview of floats": (memoryview(np.arange(3.0)), "memoryview.*numpy.frombuffer"),
    "bool": (True, "not True .bool.: pass a list"),
    "float": (5.5, "not 5.5 .float.: pass a list"),
    "class": (int, "not type"),
    "float array": (np.array([1.0]), "integer dtype, not float64: .*astype"),
    "bool array": (np.array([True]), "integer dtype, not bool: was a mask"),
    "object array": (np.array([1], object), r"integer dtype, not object: .*tolist"),
    "str array": (np.array(["a"]), "integer dtype, not <U1"),
    "record array": (np.zeros(1, [("a", int)]), "integer dtype"),
    "masked array": (np.ma.array([1, 2], mask=[0, 1]), r"masked.*compressed"),
}


@pytest.mark.parametrize(("ids", "words"), WRONG_TYPES.values(), ids=WRONG_TYPES)
def test_wrong_types(insert, ids, words):
    with pytest.raises(TypeError, match=words) as refusal:
        insert(ids)
    assert len(str(refusal.value)) < 300


WRONG_ELEMENTS = {
    "bool": (True, "True .bool."),
    "numpy bool": (np.True_, r"True \(bool"),
    "float": (1.0, "1.0 .float."),
    "numpy float": (np.float32(1), r"1.0 \(float32\)$"),
    "0-d float array": (np.array(1.5), r"1.5 \(ndarray\)$"),
    "complex": (1j, "1j .complex."),
    "decimal": (decimal.Decimal("1.5"), "1.5 .Decimal."),
    "a fraction of many digits": (fractions.Fraction(HUGE, 3), "Fraction$"),
    "bytes": (b"1", "bytes"),
    "None": (None, "None"),
    "str": ("1" * 1000, "str"),
    "list": ([1], "list: pass one sequence at a time"),
    "array": (np.array([1, 2]), "ndarray: pass one sequence at a time"),
    "array of one": (np.array([1]), "ndarray: pass one sequence at a time"),
    "object": (object(), "object"),
    "a long name": (type("Name" * 1000, (), {})(), "Name"),
}


@pytest.mark.parametrize(("element", "words"), WRONG_ELEMENTS.values(), ids=WRONG_ELEMENTS)
@pytest.mark.parametrize("make", [list, tuple])
def test_wrong_elements(insert, make, element, words):
    with pytest.raises(TypeError, match=f"the id at position 3 must be .*{words}") as refusal:
        insert(make([5, 6, 7, element]))
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize("shape", [(), (1, 4), (4, 1), (2, 3, 4), (0, 3)])
def test_other_shapes(insert, shape):
    with pytest.raises(ValueError, match="one sequence") as refusal:
        insert(np.zeros(shape, int))
    assert str(shape) in str(refusal.value)


def test_a_table_in_a_memoryview(insert):
    with pytest.raises(ValueError, match=r"shape \(2, 3\)"):
        insert(memoryview(np.zeros((2, 3), np.int32)))


@pytest.mark.parametrize(
    "value", [2**31, -(2**31) - 1, 2**32 + 5, 2**63, -(2**70), HUGE], ids=lambda v: f"{v:x}"[:20]
)
@pytest.mark.parametrize("make", [list, tuple, lambda ids: np.array(ids, object).tolist()])
def test_ids_that_need_more_than_32_bits(insert, make, value):
    with pytest.raises(ValueError, match=r"the id at position 2 is .*32 bits") as refusal:
        insert(make([5, 6, value, 7]))
    shown = str(value) if abs(value) < 2**100 else "an integer of 16610 bits"
    assert f" is {shown}: " in str(refusal.value)
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("int64", 2**31), ("int64", -(2**31) - 1), ("uint32", 2**31), ("uint64", 2**64 - 1)],
)
def test_array_ids_that_need_more_than_32_bits(insert, dtype, value):
    with pytest.raises(ValueError, match=f"the id at position 2 is {value}: .*32 bits"):
        insert(np.array([5, 6, value, 7], dtype))


# -- the numbers of the contract --------------------------------------------------------------

NAMES = ("vocab", "k", "eot", "user", "assistant")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        (True, TypeError, "True .bool."),
        (np.True_, TypeError, "bool"),
        (2.0, TypeError, "2.0 .float."),
        (np.float32(2.7), TypeError, "2.7 .float32."),
        (np.array([2]), TypeError, "ndarray"),
        (None, TypeError, "None"),
        (2**31, ValueError, "2147483648: it must fit in 32 bits"),
        (-(2**31) - 1, ValueError, "-2147483649: it must fit in 32 bits"),
        (HUGE, ValueError, "an integer of 16610 bits: it must fit"),
    ],
    ids=lambda value: f"{value:x}"[:20] if type(value) is int else None,
)
def test_numbers_that_are_refused(impl, name, value, error, words):
    numbers = dict(zip(NAMES, NUMBERS, strict=True)) | {name: value}
    words = words.replace("|", r"\|")
    with pytest.raises(error, match=f"^{name} (must be an int, not|is) .*{words}") as refusal:
        impl.insert_state_blocks(IDS, **numbers)
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize("several", [[2, 7], (2,), {2, 7}, np.array([2, 7])])
@pytest.mark.parametrize("name", ["eot", "user", "assistant"])
def test_several_ids_where_one_is_needed(impl, name, several):
    numbers = dict(zip(NAMES, NUMBERS, strict=True)) | {name: several}
    with pytest.raises(TypeError, match=f"^{name} must be .*: one id is needed; of several end"):
        impl.insert_state_blocks(IDS, **numbers)


def test_a_text_where_an_id_is_needed(impl):
    with pytest.raises(TypeError, match=r"^user must be .*'<\|user\|>' \(str\): look the id"):
        impl.insert_state_blocks(IDS, 100, 2, 0, "<|user|>", 2)


@pytest.mark.parametrize(
    ("arguments", "keywords", "words"),
    [
        ((IDS, 100, 2, 0, 1), {}, "missing 1 required positional argument: 'assistant'"),
        ((), {}, "missing 6 required positional arguments"),
        ((IDS, *NUMBERS, 7), {}, "takes 6 positional arguments but 7 were given"),
        ((IDS, 100, 2), {"eos": 0, "user": 1, "assistant": 2}, "unexpected keyword .* 'eos'"),
        ((IDS, *NUMBERS), {"k": 2}, "multiple values for argument 'k'"),
    ],
)
def test_a_call_that_does_not_fit_the_signature(impl, arguments, keywords, words):
    with pytest.raises(TypeError, match=rf"^insert_state_blocks\(\).*{words}") as refusal:
        impl.insert_state_blocks(*arguments, **keywords)
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize("make", [np.int64, np.uint8, Indexed])
def test_numbers_of_any_integer_type(impl, make):
    assert impl.insert_state_blocks(IDS, *map(make, NUMBERS)) == EXPECTED


def test_the_last_state_id_must_fit_32_bits(impl):
    k = 3
    top = 2**31 - k  # vocab + k = 2**31, so the last state id is the largest int there is
    assert impl.insert_state_blocks([1, 2, 0], top, k, 0, 1, 2)[-1] == 2**31 - 1
    with pytest.raises(ValueError, match=r"^vocab \+ k is 2147483646 \+ 3: the last state id"):
        impl.insert_state_blocks([1, 2, 0], top + 1, k, 0, 1, 2)
    # Without state ids there is no last one.
    assert impl.insert_state_blocks([5], 2**31 - 1, -(2**31), 0, 1, 2) == [5]


# -- likely causes ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("k", "id", "cause"),
    [
        (2, -100, "labels"),
        (2, 102, "padded row"),
        (0, 100, "padded row"),
        (2, 5 + 2**32 * 6, "halves are 5 and 6"),
    ],
)
def test_a_likely_cause_is_a_note(impl, k, id, cause):
    for ids in ([5, id], np.array([5, id])):
        with pytest.raises(ValueError) as refusal:  # noqa: PT011 (the texts are tested above)
            impl.insert_state_blocks(ids, 100, k, 0, 1, 2)
        (note,) = refusal.value.__notes__
        assert cause in note
        assert cause not in str(refusal.value)


@pytest.mark.parametrize("ids", [[5, -1], [5, 100], [1, 2, 0, 101]])
def test_no_cause_is_made_up(impl, ids):
    with pytest.raises(ValueError) as refusal:  # noqa: PT011
        impl.insert_state_blocks(ids, *NUMBERS)
    assert not hasattr(refusal.value, "__notes__")


# -- objects that misbehave, memory, threads --------------------------------------------------


def test_a_list_changed_while_it_is_read(insert):
    class Clearing:
        def __index__(self):
            ids.clear()
            gc.collect()
            return 50

    ids = [1, Clearing(), 2, 51, 0, 1]
    assert insert(ids) == EXPECTED
    assert ids == []


def test_a_list_that_grows_while_it_is_read(insert):
    class Growing:
        def __index__(self):
            ids.append(Growing())
            return 50

    ids = [1, Growing(), 2]
    assert insert(ids) == [1, 50, 2]


def test_an_error_of_the_objects_own_is_not_hidden(insert):
    class Broken:
        def __index__(self):
            raise RuntimeError("my own")

    with pytest.raises(RuntimeError, match="my own") as raised:
        insert([5, Broken()])
    assert raised.value.__notes__ == ["This is from the id at position 1."]


@given(st.text(max_size=100), st.text(min_size=1, max_size=100))
def test_texts_of_others_are_shown_printable_and_short(text, name):
    kind = type(name.replace("\0", "0").encode("utf-8", "replace").decode(), (), {})
    for impl in IMPLEMENTATIONS.values():
        for ids in (text, [text], kind(), [kind()]):
            with pytest.raises(TypeError) as refusal:
                impl.insert_state_blocks(ids, *NUMBERS)
            assert str(refusal.value).isprintable()
            assert len(str(refusal.value)) < 300


@pytest.mark.parametrize("module", ["numpy", "torch", "numpy.ma"])
@pytest.mark.parametrize("stub", [types.ModuleType("stub"), unittest.mock.MagicMock()])
def test_a_module_that_is_not_there_yet(insert, monkeypatch, module, stub):
    """As while another thread imports it, or where a test has put a mock in its place."""
    array_of_ids = np.array(IDS)
    monkeypatch.setitem(sys.modules, module, stub)
    assert insert(tuple(IDS)) == EXPECTED
    assert insert(collections.deque(IDS)) == EXPECTED
    if module != "numpy":
        assert insert(array_of_ids).tolist() == EXPECTED


def test_a_class_that_is_named_like_numpys(insert):
    assert insert(type("numpy.ndarray", (list,), {})(IDS)) == EXPECTED


@pytest.mark.parametrize(
    "ids",
    [
        [1, int("70000"), 2, int("70001"), 0, int("70002")],
        [1, int("70000"), -1, int("70001")],
        [1, int("70000"), 2, None, int("70001")],
        [1, int("70000"), 2**40, int("70001")],
    ],
    ids=["accepted", "refused", "not an int", "too wide"],
)
def test_reference_counts_are_what_they_were(impl, ids):
    def counts():
        return [sys.getrefcount(id) for id in ids if id is not None and id > 256]

    before = counts()
    for _ in range(100):
        try:
            result = impl.insert_state_blocks(ids, 100_000, 2, 0, 1, 2)
        except (TypeError, ValueError):
            result = None
        del result
    assert counts() == before


def test_out_of_memory_is_a_memory_error(impl):
    """In a process of its own, which may not have more than 1 GiB."""
    pytest.importorskip("resource", reason="needs a POSIX system")
    program = f"""
import resource
from {impl.__name__} import insert_state_blocks
resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
try:
    insert_state_blocks([1, 2, 0], 100, 2**30, 0, 1, 2)
except MemoryError:
    print("MemoryError")
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ran.stdout, ran.stderr) == ("MemoryError\n", "")


def test_eight_threads_on_one_list_and_one_array(impl):
    exchange = [1, *range(3, 90), 2, *range(3, 90), 0]
    ids = exchange * 500  # long enough for the lock to be given up
    expected = [*exchange, 100, 101] * 500
    array_of_ids = np.array(ids, np.int32)

    def work():
        for _ in range(5):
            assert impl.insert_state_blocks(ids, *NUMBERS) == expected
            assert impl.insert_state_blocks(array_of_ids, *NUMBERS).tolist() == expected

    in_eight_threads(work)


def test_eight_threads_on_one_list_of_control_ids(impl):
    """All of it goes to the header, which works without the lock."""
    ids = [1, 2, 0] * 30_000
    expected = [1, 2, 0, 100, 101] * 30_000

    def work():
        assert impl.insert_state_blocks(ids, *NUMBERS) == expected

    in_eight_threads(work)


def test_a_list_changed_by_another_thread(impl):
    ids = [1, *range(3, 90), 2, *range(3, 90), 0] * 100
    done = threading.Event()

    def change():
        while not done.is_set():
            ids.append(ids.pop(0))

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(50):
            assert len(impl.insert_state_blocks(ids, *NUMBERS)) >= 17600 - 1
    finally:
        done.set()
        thread.join()


def test_a_thread_at_work_when_the_process_ends():
    """A daemon thread that comes for the lock then must not take the process down with it."""
    program = """
import queue, threading, time, numpy
from statetok._core import insert_state_blocks
ids, work = numpy.full(200_000, 50), queue.SimpleQueue()
def serve():
    while work.get():
        insert_state_blocks(ids, 131072, 4, 2, 3, 4)
for _ in range(4):
    threading.Thread(target=serve, daemon=True).start()
for _ in range(4000):
    work.put(True)
time.sleep(0.05)
"""
    for _ in range(3):
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert (ran.returncode, ran.stderr) == (0, "")


def test_the_function_pickles(impl):
    again = pickle.loads(pickle.dumps(impl.insert_state_blocks))
    assert again is impl.insert_state_blocks


def test_both_show_the_same_signature_and_docstring():
    cpp, python = (module.insert_state_blocks for module in IMPLEMENTATIONS.values())
    assert inspect.getdoc(cpp) == inspect.getdoc(python)
    assert [(p.name, p.kind, p.default) for p in inspect.signature(cpp).parameters.values()] == [
        (p.name, p.kind, p.default) for p in inspect.signature(python).parameters.values()
    ]
    assert isinstance(cpp, types.BuiltinFunctionType)
    assert isinstance(python, types.FunctionType)
