"""Columns of Arrow: each row must be what the list path makes of it, and all else must stay."""

import json
import pickle

import oracle
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from statetok import StateTokenError, StateTokens, arrow

NUMBERS = (100, 2, 0, 1, 2)
ROWS = [[1, 50, 2, 51, 0], None, [], [7], [1, 2, 51, 1], [1, 2, 0, 100, 101]]
EXPECTED = [
    [1, 50, 2, 51, 0, 100, 101],
    None,
    [],
    [7],
    [1, 2, 51, 0, 100, 101, 1],
    [1, 2, 0, 100, 101],
]
INTEGERS = [pa.int8, pa.uint8, pa.int16, pa.uint16, pa.int32, pa.uint32, pa.int64, pa.uint64]


@pytest.fixture
def contract(impl):
    return StateTokens(*NUMBERS)


# -- a column ---------------------------------------------------------------------------------


@pytest.mark.parametrize("integer", INTEGERS)
@pytest.mark.parametrize("kind", [pa.list_, pa.large_list])
def test_column(contract, kind, integer):
    column = pa.array(ROWS, kind(integer()))
    out = arrow.insert(column, contract)
    assert out.to_pylist() == EXPECTED
    assert out.type == column.type
    out.validate(full=True)
    assert column.to_pylist() == ROWS


@pytest.mark.parametrize("start", range(len(ROWS) + 1))
@pytest.mark.parametrize("stop", range(len(ROWS) + 1))
def test_slices(contract, start, stop):
    column = pa.array(ROWS, pa.list_(pa.int32()))[start:stop]
    out = arrow.insert(column, contract)
    assert out.to_pylist() == EXPECTED[start:stop]
    out.validate(full=True)


def test_null_that_has_values_below(contract):
    """A row that is null may still have ids in the buffer: they are no ids of any row."""
    column = pa.ListArray.from_arrays([0, 2, 4], [1, 2, -7, 5], mask=pa.array([False, True]))
    assert arrow.insert(column, contract).to_pylist() == [[1, 2], None]


def test_fixed_size_lists_become_lists(contract):
    column = pa.array([[1, 2, 0], None, [5, 6, 7]], pa.list_(pa.int16(), 3))
    for part, expected in ((column, [[1, 2, 0, 100, 101], None, [5, 6, 7]]), (column[1:2], [None])):
        out = arrow.insert(part, contract)
        assert out.type == pa.list_(pa.int16())
        assert out.to_pylist() == expected


def test_chunks_are_kept(contract):
    column = pa.chunked_array([ROWS[:2], [], ROWS[2:]], pa.list_(pa.int32()))
    out = arrow.insert(column, contract)
    assert isinstance(out, pa.ChunkedArray)
    assert [chunk.to_pylist() for chunk in out.chunks] == [EXPECTED[:2], [], EXPECTED[2:]]
    assert arrow.insert(pa.chunked_array([], column.type), contract).type == column.type


def test_the_name_of_the_items_is_kept(contract):
    type = pa.list_(pa.field("element", pa.int32(), nullable=False, metadata={"a": "b"}))
    out = arrow.insert(pa.array(ROWS, type), contract)
    assert out.type.equals(type, check_metadata=True)
    assert out.to_pylist() == EXPECTED


def test_rows_without_a_type(contract):
    column = pa.array([[], None, []])
    assert column.type == pa.list_(pa.null())
    out = arrow.insert(column, contract)
    assert (out.type, out.to_pylist()) == (column.type, [[], None, []])
    with pytest.raises(ValueError, match=r"^the id at position 0 is null"):
        arrow.insert(pa.array([[], [None]]), contract)


def test_the_input_is_not_copied(contract):
    column = pa.array([list(range(3, 90)) * 100_000], pa.list_(pa.int32()))
    before = pa.total_allocated_bytes()
    arrow.insert(column, contract, threads=1)
    # Arrow has made next to nothing: in are views, and what is out is memory of NumPy.
    assert pa.total_allocated_bytes() - before < 10_000


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.none() | st.lists(st.none() | st.integers(-1, 12), max_size=7), max_size=9),
    st.integers(0, 9),
    st.integers(1, 4),
)
def test_column_agrees_with_the_oracle_row_by_row(impl, rows, cut, threads):
    numbers = (10, 2, 0, 1, 2)
    expected = [answer_to(row, numbers) for row in rows]
    bad = [row for row, answer in enumerate(expected) if isinstance(answer, str)]
    column = pa.chunked_array([rows[:cut], rows[cut:]], pa.list_(pa.int32()))
    if not bad:
        out = arrow.insert(column, StateTokens(*numbers), threads=threads)
        assert out.to_pylist() == expected
        return
    with pytest.raises(ValueError) as refusal:  # noqa: PT011 - the text is compared below
        arrow.insert(column, StateTokens(*numbers), threads=threads)
    assert str(refusal.value) == expected[bad[0]]
    assert refusal.value.row == bad[0]
    assert refusal.value.__notes__[-1] == f"This is about row {bad[0]}."
    assert sum("This is about" in note for note in refusal.value.__notes__) == 1


def answer_to(row, numbers):
    if row is not None and None in row:
        return f"the id at position {row.index(None)} is null"
    return row if row is None else oracle.insert_state_blocks(row, *numbers)


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pa.array([1, 2]), "the column is of type int64, not lists of integers"),
        (pa.array([["a"]]), "the column is of type list<item: string>, not lists of"),
        (pa.array([[1.5]]), "the column is of type list<item: double>, not"),
        (pa.array([[True]]), "the column is of type list<item: bool>, not"),
        (pa.array([[[1]]]), "the column is of type list<item: list<item: int64>>, not"),
        (pa.array([[1]], pa.list_view(pa.int32())), "of type list_view<"),
        ([[1, 2]], "must be an Arrow array, not list"),
        (None, "must be an Arrow array, not None"),
        (pa.table({"a": [[1]]}), "must be an Arrow array, not Table"),
    ],
)
def test_other_types_are_refused(contract, column, words):
    with pytest.raises(TypeError, match=words):
        arrow.insert(column, contract)


def test_ids_that_do_not_fit(contract):
    with pytest.raises(ValueError, match=r"id 128 must be written .* int8") as refusal:
        arrow.insert(pa.array([[5], [1, 2, 0]], pa.list_(pa.int8())), StateTokens(127, 2, 0, 1, 2))
    assert refusal.value.row == 1
    with pytest.raises(ValueError, match="at position 1 is 4294967296: an id must") as refusal:
        arrow.insert(pa.array([[5], [6, 2**32]]), contract)
    assert refusal.value.row == 1


def test_offsets_that_do_not_fit(monkeypatch, contract):
    """Two thousand million ids are too many for a test: a smaller limit stands for 2**31."""
    monkeypatch.setattr(arrow, "OFFSET_MAX", 20)
    column = pa.array([[1, 2, 0]] * 5, pa.list_(pa.int32()))
    with pytest.raises(ValueError, match="25 values in all, too many for their 32-bit offsets"):
        arrow.insert(column, contract)
    large = column.cast(pa.large_list(pa.int32()))
    assert arrow.insert(large, contract).to_pylist() == [[1, 2, 0, 100, 101]] * 5


# -- a table ----------------------------------------------------------------------------------


def table_of(rows, **columns):
    return pa.table({"input_ids": pa.array(rows, pa.list_(pa.int32())), **columns})


def test_table(contract):
    table = table_of(
        ROWS,
        id=pa.array(range(6)),
        labels=pa.array([row and [-100, *row[1:]] for row in ROWS], pa.large_list(pa.int64())),
        attention_mask=pa.array([row and [1] * len(row) for row in ROWS], pa.list_(pa.uint8())),
        text=pa.array(list("abcdef")).dictionary_encode(),
    )
    table = table.select(["id", "labels", "input_ids", "text", "attention_mask"])
    table = table.replace_schema_metadata({"made by": "us"})
    table = pa.concat_tables([table[:3], table[3:]])
    carry = {"labels": -100, "attention_mask": 1}
    out, refused, errors = arrow.insert_table(
        table, contract, carry=carry, assistant_mask="assistant_mask"
    )
    assert (refused, errors) == (0, [])
    assert out.column_names == [*table.column_names, "assistant_mask"]
    assert out["input_ids"].to_pylist() == EXPECTED
    assert out["labels"].to_pylist() == [
        [-100, 50, 2, 51, 0, -100, -100],
        None,
        [],
        [-100],
        [-100, 2, 51, -100, -100, -100, 1],
        [-100, 2, 0, 100, 101],
    ]
    assert out["attention_mask"].to_pylist() == [row and [1] * len(row) for row in EXPECTED]
    yes, no = True, False
    assert out["assistant_mask"].to_pylist() == [
        [no, no, no, yes, yes, no, no],
        None,
        [],
        [no],
        [no, no, yes, yes, no, no, no],
        [no, no, yes, no, no],
    ]
    for name in table.column_names:
        assert out.schema.field(name) == table.schema.field(name)
    assert out.select(["id", "text"]).equals(table.select(["id", "text"]))
    assert out.schema.metadata[b"made by"] == b"us"
    assert json.loads(out.schema.metadata[b"statetok.contract"]) == {
        **{"vocab": 100, "k": 2, "eot": 0, "user": 1, "assistant": 2}
    }
    out.validate(full=True)
    again = arrow.insert_table(out, contract, carry=carry).table
    assert again.equals(out, check_metadata=True)


def test_a_table_of_another_contract(contract):
    out = arrow.insert_table(table_of(ROWS), contract).table
    other = StateTokens(200, 2, 0, 1, 2)
    with pytest.raises(ValueError, match=r"another contract, StateTokens\(vocab=100, .*200"):
        arrow.insert_table(out, other)
    unknown = out.replace_schema_metadata({"statetok.contract": "{}"})
    with pytest.raises(ValueError, match="a contract has the fields"):
        arrow.insert_table(unknown, contract)


@pytest.mark.parametrize("rows", [[], [[]], [None, None]])
def test_a_table_without_ids(contract, rows):
    out = arrow.insert_table(
        table_of(rows, labels=pa.array(rows, pa.list_(pa.int32()))),
        contract,
        carry={"labels": 0},
        assistant_mask="mask",
    ).table
    assert out["input_ids"].to_pylist() == out["labels"].to_pylist() == rows
    assert out["mask"].to_pylist() == rows


@pytest.mark.parametrize(
    ("values", "type", "fill", "expected"),
    [
        ([0.5, None, 2.5], pa.float32(), 0.25, [0.5, None, 2.5, 0.25, 0.25]),
        (["a", None, "c"], pa.string(), "", ["a", None, "c", "", ""]),
        ([True, False, None], pa.bool_(), True, [True, False, None, True, True]),
        ([[1], [], None], pa.list_(pa.int8()), None, [[1], [], None, None, None]),
        ([True, None, False], pa.bool_(), 0, [True, None, False, False, False]),
        ([1, 2, 3], pa.int8(), None, [1, 2, 3, None, None]),
        ([1, 2, 3], pa.uint64(), 2**64 - 1, [1, 2, 3, 2**64 - 1, 2**64 - 1]),
        ([1, 2, 3], pa.float64(), float("inf"), [1, 2, 3, float("inf"), float("inf")]),
    ],
)
def test_carried_values_of_every_type(contract, values, type, fill, expected):
    table = table_of([[1, 2, 0]], x=pa.array([values], pa.list_(type)))
    out = arrow.insert_table(table, contract, carry={"x": fill}).table
    assert out["x"].to_pylist() == [expected]
    assert out["x"].type == pa.list_(type)


@pytest.mark.parametrize(
    ("type", "fill"),
    [
        *[(pa.uint8(), each) for each in (-100, 256, 1.5, "1", [1], float("nan"))],
        *[(pa.float32(), each) for each in (1e40, "x")],
        *[(pa.bool_(), each) for each in (2, "x")],
        (pa.string(), 1),
    ],
)
def test_a_fill_that_does_not_fit(contract, type, fill):
    table = table_of([[]], x=pa.array([[]], pa.list_(type)))
    with pytest.raises(ValueError, match=r"^the column 'x' holds \w+, which cannot hold the fill"):
        arrow.insert_table(table, contract, carry={"x": fill})


BAD = [[1, 2, 0], [5, -1], [], [7, None, -1], [1, 2], [5, 6]]
BAD_LABELS = [[1, 2, 3], [4, 5], None, [6, 7, 8], [9], [1, 2]]


def bad_table():
    labels = pa.array(BAD_LABELS, pa.list_(pa.int32()))
    return table_of(BAD, labels=labels, id=pa.array(range(6)))


def test_bad_rows_raise(contract):
    with pytest.raises(StateTokenError, match=r"^token id -1 at position 1 is neg") as refusal:
        arrow.insert_table(bad_table(), contract, carry={"labels": 0})
    assert (refusal.value.row, refusal.value.position) == (1, 1)
    with pytest.raises(ValueError, match=r"^the id at position 1 is null") as refusal:
        arrow.insert_table(bad_table()[2:], contract, carry={"labels": 0})
    assert refusal.value.row == 1
    with pytest.raises(ValueError, match=r"^'labels' has 1 values, and 'input_ids' has 2 ids: ea"):
        arrow.insert_table(bad_table()[4:], contract, carry={"labels": 0})


@pytest.mark.parametrize("batch", [1, 2, 6])
def test_bad_rows_are_dropped_or_null(contract, batch):
    table = pa.Table.from_batches(bad_table().to_batches(batch))
    options = {"carry": {"labels": 0}, "assistant_mask": "mask"}
    out = arrow.insert_table(table, contract, on_error="drop", **options)
    kept = [[1, 2, 0, 100, 101], [], [5, 6]]
    labels = [[1, 2, 3, 0, 0], None, [1, 2]]
    mask = [[False, False, True, False, False], [], [False, False]]
    assert out.table.to_pydict() == {
        **{"input_ids": kept, "labels": labels, "id": [0, 2, 5], "mask": mask}
    }
    assert out.refused == 3
    assert [error.row for error in out.errors] == [1, 3, 4]
    assert [str(error)[:33] for error in out.errors] == [
        "token id -1 at position 1 is nega",
        "the id at position 1 is null",
        "'labels' has 1 values, and 'input",
    ]
    out = arrow.insert_table(table, contract, on_error="null", **options)
    assert out.refused == 3
    for name, (first, third, last) in (("input_ids", kept), ("labels", labels), ("mask", mask)):
        assert out.table[name].to_pylist() == [first, None, third, None, None, last]
    assert out.table["id"].to_pylist() == [0, 1, 2, 3, 4, 5]
    out.table.validate(full=True)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.lists(st.none() | st.integers(-1, 6), max_size=6),
            st.sampled_from([0, 0, 0, 1, -1]),
        ),
        max_size=12,
    ),
    st.integers(1, 12),
)
def test_dropping_agrees_with_the_list_path(impl, rows_and_longer, batch):
    contract = StateTokens(5, 1, 0, 1, 2)
    rows = [row for row, _ in rows_and_longer]
    labels = [list(range(10, 10 + len(row) + longer)) for row, longer in rows_and_longer]
    kept, masks, kept_labels, bad = [], [], [], []
    for number, (row, beside) in enumerate(zip(rows, labels, strict=True)):
        try:
            insertion = contract.insert_with_sources(row)
            kept_labels.append(insertion.carry(beside, -100))
            kept.append(insertion.ids)
            masks.append(contract.assistant_mask(insertion.ids))
        except (ValueError, TypeError):
            bad.append(number)
    table = table_of(rows, labels=pa.array(labels, pa.list_(pa.int16())))
    table = pa.Table.from_batches(table.to_batches(batch), table.schema)
    options = {"carry": {"labels": -100}, "assistant_mask": "mask"}
    out = arrow.insert_table(table, contract, on_error="drop", **options)
    assert out.table.to_pydict() == {"input_ids": kept, "labels": kept_labels, "mask": masks}
    assert out.refused == len(bad)
    assert [error.row for error in out.errors] == bad[:10]


def test_many_bad_rows(contract):
    """All are found, ten are named; every other row is bad, which is as bad as it gets."""
    n = 20_000
    out = arrow.insert_table(table_of([[5], [-1]] * n), contract, on_error="drop")
    assert out.table["input_ids"].to_pylist() == [[5]] * n
    assert out.refused == n
    assert [error.row for error in out.errors] == list(range(1, 20, 2))


def test_rows_that_may_not_be_null_may_be_if_they_are_refused(contract):
    schema = pa.schema([pa.field("input_ids", pa.list_(pa.int32()), nullable=False)])
    table = table_of([[5], [-1]]).cast(schema)
    out = arrow.insert_table(table, contract, on_error="null").table
    assert out.schema.field("input_ids").nullable
    assert out["input_ids"].to_pylist() == [[5], None]
    assert not arrow.insert_table(table[:1], contract).table.schema.field("input_ids").nullable


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"column": "ids"}, ValueError, "no column 'ids'; its columns: 'input_ids', 'x', 'x', 'n'"),
        ({"column": "x"}, ValueError, "2 columns 'x'; its columns"),
        ({"column": "n"}, TypeError, "'n' is of type int64, not lists of integers: cast it"),
        ({"carry": {"y": 0}}, ValueError, "no column 'y'"),
        ({"carry": {"n": 0}}, TypeError, "'n' is of type int64, not lists: cast it"),
        ({"carry": {"input_ids": 0}}, ValueError, "'input_ids' is the column of the ids"),
        ({"assistant_mask": "n"}, ValueError, "has a column 'n' already"),
        ({"on_error": "skip"}, ValueError, "on_error must be .* not 'skip'"),
        ({"threads": 0}, ValueError, "threads is 0"),
    ],
)
def test_bad_options(contract, options, error, words):
    lists = pa.array([[1]])
    columns = [lists, lists, lists, pa.array([1])]
    table = pa.Table.from_arrays(columns, ["input_ids", "x", "x", "n"])
    with pytest.raises(error, match=words):
        arrow.insert_table(table, contract, **options)


def test_what_is_no_table(contract):
    batch = pa.record_batch({"input_ids": [[1]]})
    with pytest.raises(TypeError, match=r"not RecordBatch: of batches, pass pyarrow\.Table\.from"):
        arrow.insert_table(batch, contract)


def test_a_type_too_narrow_for_the_state_ids():
    """No row can be at fault for it, so none is dropped for it."""
    table = pa.table({"input_ids": pa.array([[1, 2, 0], [5]], pa.list_(pa.uint16()))})
    contract = StateTokens(65_530, 8, 0, 1, 2)
    with pytest.raises(ValueError, match="uint16, which cannot hold the state ids up to 65537"):
        arrow.insert_table(table, contract, on_error="drop")
    assert arrow.insert_table(table, StateTokens(65_530, 6, 0, 1, 2)).table.num_rows == 2


# -- for engines that map ----------------------------------------------------------------------


def test_map_arrow(contract):
    table = bad_table()
    options = {"carry": {"labels": 0}, "assistant_mask": "mask", "on_error": "drop"}
    expected = arrow.insert_table(table, contract, **options).table
    assert contract.map_arrow(table, **options).equals(expected, check_metadata=True)
    again = pickle.loads(pickle.dumps(contract.map_arrow))
    assert again(table, "input_ids", **options).equals(expected)
