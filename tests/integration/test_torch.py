"""A tensor in, a tensor out: the torch row of what goes in and what comes out."""

import os
import subprocess
import sys
import types

import pytest

from statetok import StateTokenError, StateTokens

torch = pytest.importorskip("torch", reason="needs tensors: pip install torch")

# Small enough for int8: the last state id is 103.
CONTRACT = VOCAB, K, EOT, USER, ASSISTANT = 100, 4, 2, 3, 4
GIVEN = [USER, 50, ASSISTANT, 51, EOT, USER, 52]
EXPECTED = [USER, 50, ASSISTANT, 51, EOT, 100, 101, 102, 103, USER, 52]

INTEGERS = [
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.fixture
def insert(impl):
    return lambda ids, *contract: impl.insert_state_blocks(ids, *(contract or CONTRACT))


def assert_is_tensor(result, dtype, ids):
    assert type(result) is torch.Tensor
    assert (result.dtype, result.device.type, result.tolist()) == (dtype, "cpu", ids)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_every_integer_dtype_comes_back(insert, dtype):
    assert_is_tensor(insert(torch.tensor(GIVEN, dtype=dtype)), dtype, EXPECTED)


@pytest.mark.parametrize("k", [0, 4])
@pytest.mark.parametrize("ids", [[], GIVEN, [7, 8]], ids=["empty", "chat", "text"])
def test_the_result_shares_no_memory(insert, k, ids):
    given = torch.tensor(ids, dtype=torch.int32)
    result = insert(given, VOCAB, k, EOT, USER, ASSISTANT)
    kept = result.tolist()
    given.fill_(9)
    assert result.tolist() == kept
    result.fill_(8)
    assert given.tolist() == [9] * len(ids)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_a_view_is_read_through_its_strides(insert, dtype):
    spread = torch.tensor([id for given in GIVEN for id in (given, 77)], dtype=dtype)[::2]
    column = torch.tensor([[77, given] for given in GIVEN], dtype=dtype)[:, 1]
    for ids in (spread, column):
        assert not ids.is_contiguous()
        assert_is_tensor(insert(ids), dtype, EXPECTED)
    one_id_many_times = torch.tensor([USER], dtype=dtype).expand(3)  # of stride 0
    assert_is_tensor(insert(one_id_many_times), dtype, [USER] * 3)


def test_a_lazily_negated_view_is_read_by_its_values(insert):
    lazy = torch.tensor([-id for id in GIVEN])._neg_view()
    assert lazy.is_neg()
    assert_is_tensor(insert(lazy), torch.int64, EXPECTED)


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS], ids=str)
def test_empty_comes_back_empty(insert, dtype):
    given = torch.tensor([], dtype=dtype)
    result = insert(given)
    assert_is_tensor(result, dtype, [])
    assert result is not given


def test_what_torch_makes_of_an_empty_list_is_empty(insert):
    """torch.tensor([]) has the default dtype, which models in half precision change."""
    for dtype in (torch.float32, torch.bfloat16):
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            assert_is_tensor(insert(torch.tensor([])), dtype, [])
        finally:
            torch.set_default_dtype(before)


def test_a_default_device_does_not_move_the_result(insert):
    given, empty = torch.tensor(GIVEN), torch.tensor([])
    with torch.device("meta"):
        assert_is_tensor(insert(given), torch.int64, EXPECTED)
        assert_is_tensor(insert(empty), torch.float32, [])


def test_a_parameter_and_inference_mode(insert):
    given = torch.nn.Parameter(torch.tensor(GIVEN), requires_grad=False)
    assert_is_tensor(insert(given), torch.int64, EXPECTED)
    with torch.inference_mode():
        assert_is_tensor(insert(torch.tensor(GIVEN)), torch.int64, EXPECTED)


@pytest.mark.parametrize(
    ("ids", "shape"),
    [
        (torch.tensor(3), "()"),
        (torch.tensor([GIVEN, GIVEN]), "(2, 7)"),
        (torch.tensor([GIVEN]), "(1, 7)"),
        (torch.zeros((0, 7), dtype=torch.int64), "(0, 7)"),
        (torch.zeros((1, 0)), "(1, 0)"),
        (torch.tensor([GIVEN]).to_sparse(), "(1, 7)"),
    ],
    ids=["0-d", "2-D", "one row", "no row", "empty row", "sparse"],
)
def test_another_shape_is_refused(insert, ids, shape):
    with pytest.raises(ValueError, match="pass one sequence") as caught:
        insert(ids)
    assert f"shape {shape}:" in str(caught.value)


@pytest.mark.filterwarnings("ignore:.*nested tensor:UserWarning")
def test_a_nested_tensor_is_refused_for_its_shape(insert):
    """Its ids are many sequences, and it has no to_dense()."""
    ragged = torch.nested.nested_tensor(
        [torch.tensor([3, 4]), torch.tensor([3])], layout=torch.jagged
    )
    with pytest.raises(ValueError, match="pass one sequence"):
        insert(ragged)


@pytest.mark.parametrize("dtype", [torch.bool, *FLOATS, torch.complex64], ids=str)
def test_another_dtype_is_refused(insert, dtype):
    with pytest.raises(TypeError, match="must have an integer dtype") as caught:
        insert(torch.ones(3, dtype=dtype))
    assert str(dtype) in str(caught.value)
    assert "astype" not in str(caught.value)  # which a tensor does not have


def test_the_remedy_for_floats_works(insert):
    ids = torch.tensor(GIVEN, dtype=torch.float32)
    with pytest.raises(TypeError, match=r"ids\.to\(torch\.int64\)"):
        insert(ids)
    assert_is_tensor(insert(ids.to(torch.int64)), torch.int64, EXPECTED)


def test_a_mask_is_refused_by_name(insert):
    with pytest.raises(TypeError, match="mask"):
        insert(torch.tensor([True, False]))
    with pytest.raises(TypeError, match="mask"):
        insert(torch.tensor([], dtype=torch.bool))


@pytest.mark.parametrize("ids", [GIVEN, []], ids=["chat", "empty"])
def test_another_device_is_refused(insert, ids):
    with pytest.raises(TypeError, match=r"on meta: pass ids\.cpu\(\)"):
        insert(torch.tensor(ids, device="meta"))


def test_a_sparse_tensor_is_refused(insert):
    ids = torch.tensor(GIVEN).to_sparse()
    with pytest.raises(TypeError, match=r"sparse_coo: pass ids\.to_dense\(\)"):
        insert(ids)
    assert_is_tensor(insert(ids.to_dense()), torch.int64, EXPECTED)


@pytest.mark.parametrize(
    ("dtype", "vocab", "too_large"),
    [
        (torch.int8, 126, 128),
        (torch.uint8, 254, 256),
        (torch.int16, 2**15 - 2, 2**15),
        (torch.uint16, 2**16 - 2, 2**16),
    ],
    ids=str,
)
def test_an_id_that_does_not_fit_is_refused(insert, dtype, vocab, too_large):
    ids = torch.tensor(GIVEN, dtype=dtype)
    with pytest.raises(ValueError, match="does not fit") as caught:
        insert(ids, vocab, K, EOT, USER, ASSISTANT)
    assert f"id {too_large} " in str(caught.value)
    assert str(dtype).removeprefix("torch.") in str(caught.value)
    assert "astype" not in str(caught.value)
    # One block fewer fits, and text alone writes nothing that would not.
    assert insert(ids, vocab, 2, EOT, USER, ASSISTANT).tolist()[5:7] == [vocab, vocab + 1]
    assert_is_tensor(insert(ids[5:], vocab, K, EOT, USER, ASSISTANT), dtype, [USER, 52])


@pytest.mark.parametrize(
    ("dtype", "value"),
    [(torch.int64, 2**31), (torch.int64, -(2**31) - 1), (torch.uint64, 2**64 - 1)],
    ids=str,
)
def test_an_id_of_more_than_32_bits_is_refused(insert, dtype, value):
    ids = torch.tensor([USER, 50, value], dtype=dtype)
    for given in (ids, list(ids)):
        with pytest.raises(ValueError, match=f"position 2 is {value}: .* 32 bits"):
            insert(given)


def test_the_refusal_of_the_header_comes_through(insert):
    with pytest.raises(StateTokenError, match="token id -100 at position 1 is negative") as caught:
        insert(torch.tensor([USER, -100]))
    assert caught.value.position == 1


# -- tensors inside a list ---------------------------------------------------------------------


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("kind", [list, tuple])
def test_single_ids_as_tensors(insert, kind, dtype):
    result = insert(kind(torch.tensor(GIVEN, dtype=dtype)))
    assert result == EXPECTED
    assert {type(id) for id in result} == {int}


@pytest.mark.parametrize(
    "element",
    [
        torch.tensor(True),  # Tensor.__index__ makes this 1,
        torch.tensor([50]),  # and this 50
        torch.tensor([True]),
        torch.tensor(50.0),
        torch.tensor([50, 51]),
        torch.tensor([]),
        torch.tensor(50, device="meta"),
    ],
    ids=lambda element: f"{element.dtype}-{tuple(element.shape)}-{element.device}",
)
def test_what_is_no_id_is_refused(insert, element):
    with pytest.raises(TypeError, match="the id at position 1 must be an int") as caught:
        insert([USER, element])
    assert str(element.dtype) in str(caught.value)
    assert ("pass one sequence at a time" in str(caught.value)) == (element.ndim > 0)


def test_a_tensor_as_a_number_of_the_contract(insert):
    eot = torch.tensor(EOT)
    assert insert(GIVEN, VOCAB, K, eot, USER, ASSISTANT) == EXPECTED
    for no_id in (torch.tensor(True), torch.tensor([EOT]), torch.tensor(2.0)):
        with pytest.raises(TypeError, match=r"eot must be an int, not .*torch\."):
            insert(GIVEN, VOCAB, K, no_id, USER, ASSISTANT)


# -- the rest of the public face ---------------------------------------------------------------


def test_strip_gives_tensors_back():
    strip = StateTokens(*CONTRACT).strip
    for dtype in INTEGERS:
        assert_is_tensor(strip(torch.tensor(EXPECTED, dtype=dtype)), dtype, GIVEN)
    given = torch.tensor(GIVEN)
    strip(given).fill_(9)
    assert given.tolist() == GIVEN
    assert_is_tensor(strip(torch.tensor([])), torch.float32, [])


def test_statetok_does_not_import_torch():
    code = (
        "import sys, statetok; statetok.insert_state_blocks((3, 50, 4, 2), 100, 4, 2, 3, 4); "
        "print('torch' in sys.modules, 'numpy' in sys.modules)"
    )
    for implementation in ("cpp", "python"):
        shown = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "STATETOK_IMPLEMENTATION": implementation},
            capture_output=True,
            text=True,
            check=True,
        )
        assert shown.stdout == "False False\n"


def test_torch_half_imported_is_no_trouble(insert, monkeypatch):
    """While another thread imports torch, sys.modules holds a module without its names."""
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    assert insert(tuple(GIVEN)) == EXPECTED
    with pytest.raises(TypeError, match="must be an int, not None"):
        insert([None])


# -- what stands where, and turn by turn -------------------------------------------------------


@pytest.fixture
def contract(impl):
    return StateTokens(*CONTRACT)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_sources_and_what_they_carry(contract, dtype):
    insertion = contract.insert_with_sources(torch.tensor(GIVEN, dtype=dtype))
    assert_is_tensor(insertion.ids, dtype, EXPECTED)
    assert_is_tensor(insertion.sources, torch.int64, [0, 1, 2, 3, 4, -1, -1, -1, -1, 5, 6])
    labels = insertion.carry(torch.arange(7), fill=-100)
    assert_is_tensor(labels, torch.int64, [0, 1, 2, 3, 4, *[-100] * 4, 5, 6])
    rows = insertion.carry(torch.ones(7, 2, dtype=torch.bfloat16), fill=0.1)
    assert (rows.shape, rows.dtype) == ((11, 2), torch.bfloat16)
    assert rows[5:9].eq(torch.tensor(0.1, dtype=torch.bfloat16)).all()
    assert insertion.carry([*"abcdefg"], fill=None)[4:6] == ["e", None]
    assert contract.insert_with_sources(GIVEN).carry(torch.arange(7), -100).equal(labels)


def test_carry_stays_on_the_device(contract):
    carried = contract.insert_with_sources(GIVEN).carry(torch.empty(7, device="meta"), 0.0)
    assert (carried.device.type, carried.shape) == ("meta", (11,))


@pytest.mark.parametrize(
    ("dtype", "fill"), [(torch.uint8, -100), (torch.int64, 0.5), (torch.bool, -100)], ids=str
)
def test_carry_refuses_a_fill_that_does_not_fit(contract, dtype, fill):
    with pytest.raises(ValueError, match="cannot hold it"):
        contract.insert_with_sources(GIVEN).carry(torch.zeros(7, dtype=dtype), fill)


def test_the_mask_is_a_tensor(contract):
    mask = contract.assistant_mask(torch.tensor(EXPECTED))
    assert_is_tensor(mask, torch.bool, [False] * 3 + [True] * 2 + [False] * 6)
    assert contract.turns(torch.tensor(EXPECTED)) == contract.turns(EXPECTED)
    contract.check(torch.tensor(EXPECTED))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_a_stream_gives_tensors_back(contract, dtype):
    stream = contract.stream()
    assert_is_tensor(stream.push(torch.tensor(GIVEN[:4], dtype=dtype)), dtype, GIVEN[:4])
    assert stream.push(torch.tensor(EOT, dtype=dtype)) == EXPECTED[4:9]
    assert_is_tensor(stream.push(torch.tensor(GIVEN[5:], dtype=dtype)), dtype, GIVEN[5:])
    assert_is_tensor(stream.push(torch.tensor([])), torch.float32, [])
