"""State blocks in columns of Arrow: lists of ids, and tables with what stands beside them.

Needs pyarrow: ``pip install 'statetok[arrow]'``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ._inputs import clipped, described, in_row, thread_count
from .contract import StateTokens
from .positions import mask_of_rows

__all__ = ["InsertedTable", "insert", "insert_table"]

#: The key of a schema's metadata that says with which contract a table was made.
CONTRACT_KEY = b"statetok.contract"
ERRORS = 10  # refused rows that a result names
OFFSET_MAX = 2**31 - 1  # of a list; a large_list has 64-bit offsets

OnError = Literal["raise", "null", "drop"]


def insert(column: Any, contract: StateTokens, *, threads: int | None = None) -> Any:
    """Insert the state blocks into each list of a column.

    Parameters
    ----------
    column : pyarrow.ListArray, LargeListArray, FixedSizeListArray or ChunkedArray of such
        Rows of ids of any integer type; a row may be null or empty, the column a slice.
    contract : StateTokens
        The contract of the model.
    threads : int, optional
        As for `StateTokens.insert_ragged`.

    Returns
    -------
    pyarrow.Array or ChunkedArray
        A column of the same type, except that lists of a fixed size become lists, with the same
        rows null and as many chunks.

    Raises
    ------
    StateTokenError
        If an id is not allowed where it stands, in the first such row: ``error.row`` is its index
        in the whole column, ``error.position`` the index in it.
    ValueError
        If an id of a row is null or needs more than 32 bits, or an id to be written does not fit
        the type of the ids; with ``error.row``. If the lists of the result need 64-bit offsets.
    TypeError
        If the column does not hold lists of integers.
    """
    chunked = isinstance(column, pa.ChunkedArray)
    if not chunked and not isinstance(column, pa.Array):
        raise TypeError(f"column must be an Arrow array, not {described(column)}")
    to = _lists("the column", column.type, of_ids=True)
    threads = thread_count(threads)
    done = []
    first_row = 0
    for chunk in column.chunks if chunked else [column]:
        rows = _Rows(chunk, "column")
        made = _insert(rows, rows.faults(), contract, threads, False, _raise, first_row)
        done.append(_list_array(to, made.offsets, rows.typed(made.ids), rows.null))
        first_row += len(chunk)
    return pa.chunked_array(done, to) if chunked else done[0]


class InsertedTable(NamedTuple):
    """What `insert_table` returns.

    Attributes
    ----------
    table : pyarrow.Table
        The table with its state blocks.
    refused : int
        How many rows the contract refused.
    errors : list of ValueError
        The errors of the first ten of them, each with ``row`` and, about an id, ``position``.
    """

    table: pa.Table
    refused: int
    errors: list[ValueError]


def insert_table(
    table: pa.Table,
    contract: StateTokens,
    column: str = "input_ids",
    *,
    carry: Mapping[str, Any] | None = None,
    assistant_mask: str | None = None,
    on_error: OnError = "raise",
    threads: int | None = None,
) -> InsertedTable:
    """Insert the state blocks into a column of a table, and bring its other columns in line.

    The contract is written into the metadata of the schema as ``statetok.contract``, so the table
    says how it was made; doing it again with the same contract changes nothing.

    Parameters
    ----------
    table : pyarrow.Table
        Columns that are not named below stay as they are.
    contract : StateTokens
        The contract of the model.
    column : str
        The column with the ids, as `insert` takes it.
    carry : mapping of str to scalar, optional
        Columns of lists that are as long as those of the ids, each with the value for ids that
        are inserted, e.g. ``{"labels": -100, "attention_mask": 1}``.
    assistant_mask : str, optional
        The name of a column to add: lists of bool, `StateTokens.assistant_mask` of each row.
    on_error : "raise", "null" or "drop"
        What becomes of a row that is refused, or whose lists are not equally long: an error,
        null in the columns above, or left out.
    threads : int, optional
        As for `StateTokens.insert_ragged`.

    Returns
    -------
    InsertedTable
        ``(table, refused, errors)``.

    Raises
    ------
    StateTokenError, ValueError, TypeError
        As `insert` raises them, unless `on_error` says else. If a column is missing, is there
        twice or is no column of lists, the type of the ids cannot hold the state ids, a fill does
        not fit its column, or the table was made with another contract.
    """
    if not isinstance(table, pa.Table):
        raise TypeError(
            f"table must be a pyarrow.Table, not {described(table)}: of batches, pass "
            "pyarrow.Table.from_batches(batches)"
        )
    plan = TablePlan(
        contract, column, dict(carry or {}), assistant_mask, on_error, thread_count(threads)
    )
    schema = plan.schema(table.schema)
    refused = Refused(on_error)
    batches = []
    first_row = 0
    for batch in table.to_batches():
        batches.append(plan.batch(batch, schema, refused, first_row)[0])
        first_row += batch.num_rows
    return InsertedTable(pa.Table.from_batches(batches, schema), refused.count, refused.errors)


# -- a table, batch by batch -----------------------------------------------------------------


@dataclass
class Refused:
    """The rows that were refused so far."""

    on_error: OnError
    count: int = 0
    errors: list[ValueError] = field(default_factory=list)

    def __call__(self, error: ValueError) -> None:
        if self.on_error == "raise":
            raise error
        self.count += 1
        if len(self.errors) < ERRORS:
            self.errors.append(error.with_traceback(None))


@dataclass(frozen=True)
class TablePlan:
    """What `insert_table` is to do with tables of one schema."""

    contract: StateTokens
    column: str = "input_ids"
    carry: dict[str, Any] = field(default_factory=dict)
    assistant_mask: str | None = None
    on_error: OnError = "raise"
    threads: int = 1

    def __post_init__(self) -> None:
        if self.on_error not in ("raise", "null", "drop"):
            raise ValueError(
                f'on_error must be "raise", "null" or "drop", not {described(self.on_error)}'
            )
        if self.column in self.carry:
            raise ValueError(f"{self.column!r} is the column of the ids: it cannot be carried too")

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema of the result, or say what is wrong with this one."""
        made_with = (schema.metadata or {}).get(CONTRACT_KEY)
        if made_with is not None and StateTokens.from_json(made_with) != self.contract:
            raise ValueError(
                f"the table was made with another contract, {StateTokens.from_json(made_with)}, "
                f"not with {self.contract}"
            )
        to = _lists(_named(self.column), _field(schema, self.column).type, of_ids=True)
        if not pa.types.is_null(to.value_type):
            check_width(_named(self.column), to.value_type.to_pandas_dtype(), self.contract)
        for name, fill in self.carry.items():
            _fill(name, _lists(_named(name), _field(schema, name).type).value_type, fill)
        for name in (self.column, *self.carry):
            index = schema.get_field_index(name)
            new = schema.field(index).with_type(_list_type(schema.field(index).type))
            schema = schema.set(index, new.with_nullable(new.nullable or self.on_error == "null"))
        if self.assistant_mask is not None:
            if self.assistant_mask in schema.names:
                raise ValueError(f"the table has a column {clipped(self.assistant_mask)!r} already")
            schema = schema.append(pa.field(self.assistant_mask, _like(to, pa.bool_())))
        metadata = {**(schema.metadata or {}), CONTRACT_KEY: self.contract.to_json().encode()}
        return schema.with_metadata(metadata)

    def batch(
        self, batch: pa.RecordBatch, schema: pa.Schema, refused: Refused, first_row: int
    ) -> tuple[pa.RecordBatch, Any]:
        """Return `batch`, whose first row is number `first_row` of the table, as `schema`.

        And an array of bool: which of its rows were refused.
        """
        rows = _Rows(batch.column(self.column), self.column)
        beside = {name: _Rows(batch.column(name), name) for name in self.carry}
        faults = rows.faults() | {
            row: error for each in beside.values() for row, error in each.unlike(rows).items()
        }
        bad = np.zeros(len(rows.null), bool)

        def refuse(error: ValueError) -> None:
            refused(error)
            bad[error.row - first_row] = True  # type: ignore[attr-defined]

        made = _insert(
            rows, faults, self.contract, self.threads, bool(self.carry), refuse, first_row
        )
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))

        def add(name: str, values: pa.Array, null: Any) -> None:
            columns[name] = _list_array(schema.field(name).type, made.offsets, values, null | bad)

        add(self.column, rows.typed(made.ids), rows.null)
        for name, each in beside.items():
            fill = _fill(name, each.values.type, self.carry[name])
            add(name, each.carried(rows, made, fill), each.null)
        if self.assistant_mask is not None:
            mask = mask_of_rows(made.ids, made.offsets, self.contract)
            add(self.assistant_mask, pa.array(mask), rows.null)
        out = pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
        if self.on_error == "drop" and bad.any():
            out = out.filter(pa.array(~bad))
        return out, bad


def check_width(what: str, dtype: Any, contract: StateTokens) -> None:
    """Refuse a type that cannot hold the state ids.

    In front, as it is the fault of no row: each one with an exchange would be refused.
    """
    last = contract.vocab + contract.k - 1
    if contract.k and last > np.iinfo(dtype).max:
        raise ValueError(
            f"{what} is of {np.dtype(dtype)}, which cannot hold the state ids up to {last}: "
            "cast it first"
        )


def _field(schema: pa.Schema, name: str) -> pa.Field:
    found = schema.get_all_field_indices(name)
    if len(found) != 1:
        shown = ", ".join(repr(clipped(each, 20)) for each in schema.names[:10]) or "none"
        there = "no column" if not found else f"{len(found)} columns"
        raise ValueError(f"the table has {there} {clipped(name)!r}; its columns: {shown}")
    return schema.field(found[0])


def _fill(name: str, type: pa.DataType, fill: Any) -> pa.Scalar:
    """Return `fill` as a value of the column `name`, refusing what that cannot hold."""
    if fill is None:
        return pa.scalar(None, type)
    try:
        # Arrow takes 1.5 for an int8, and no 1 for a bool.
        made = pa.scalar(fill).cast(type) if pa.types.is_boolean(type) else pa.scalar(fill, type)
        kept = made.as_py() == fill
        if pa.types.is_floating(type):  # 0.1 is another number in 32 bits; 1e40 is none
            kept = math.isfinite(made.as_py()) == math.isfinite(fill)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        kept = False
    if not kept:
        raise ValueError(
            f"{_named(name)} holds {type}, which cannot hold the fill {described(fill)}"
        )
    return made


# -- lists -----------------------------------------------------------------------------------


def _named(name: str) -> str:
    return f"the column {clipped(name)!r}"


def _lists(what: str, type: pa.DataType, *, of_ids: bool = False) -> Any:
    """Return the type of the result for a column of `type`, which must be one of lists."""
    if isinstance(type, (pa.ListType, pa.LargeListType, pa.FixedSizeListType)):
        value = type.value_type
        # Rows that are all empty have no type of their own: list<null>.
        if not of_ids or pa.types.is_integer(value) or pa.types.is_null(value):
            return _list_type(type)
    remedy = "lists of integers" if of_ids else "lists"
    raise TypeError(f"{what} is of type {clipped(str(type))}, not {remedy}: cast it first")


def _list_type(type: Any) -> Any:
    return pa.list_(type.value_field) if isinstance(type, pa.FixedSizeListType) else type


def _like(type: pa.DataType, value: pa.DataType) -> pa.DataType:
    return pa.large_list(value) if isinstance(type, pa.LargeListType) else pa.list_(value)


class _Rows:
    """The rows of a list array: all values one after the other, and where each row begins."""

    def __init__(self, array: Any, name: str) -> None:
        self.name = name
        # Not .values and .offsets: those of a slice are of the whole, and a null may have values.
        self.values = array.flatten()
        lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
        self.offsets = np.zeros(len(array) + 1, np.int64)
        np.cumsum(lengths, out=self.offsets[1:])
        self.null = array.is_null().to_numpy(zero_copy_only=False)

    @property
    def ids(self) -> Any:
        values = self.values
        if pa.types.is_null(values.type):
            values = values.cast(pa.int32())
        return (values.fill_null(0) if values.null_count else values).to_numpy()

    def typed(self, ids: Any) -> pa.Array:
        # What has no type holds no ids.
        return pa.nulls(0) if pa.types.is_null(self.values.type) else pa.array(ids)

    def faults(self) -> dict[int, ValueError]:
        """Return the error of each row in which an id is null."""
        if not self.values.null_count:
            return {}
        nulls = np.flatnonzero(self.values.is_null().to_numpy(zero_copy_only=False))
        rows, first = np.unique(np.searchsorted(self.offsets, nulls, "right") - 1, True)
        positions = nulls[first] - self.offsets[rows]
        return {
            int(row): ValueError(f"the id at position {position} is null")
            for row, position in zip(rows, positions, strict=True)
        }

    def unlike(self, ids: _Rows) -> dict[int, ValueError]:
        """Return the error of each row that is not as long as that of the ids."""
        mine, theirs = np.diff(self.offsets), np.diff(ids.offsets)
        return {
            int(row): ValueError(
                f"{clipped(self.name)!r} has {mine[row]} values, and {clipped(ids.name)!r} has "
                f"{theirs[row]} ids: each id needs one value"
            )
            for row in np.flatnonzero(mine != theirs)
        }

    def carried(self, ids: _Rows, made: _Inserted, fill: pa.Scalar) -> pa.Array:
        """Return the values in line with what was made of `ids`."""
        places = made.sources
        if not np.array_equal(self.offsets, ids.offsets):  # behind a row that is refused for it
            ahead = self.offsets[:-1] - ids.offsets[:-1]
            places = places + np.repeat(ahead, np.diff(made.offsets))
        places = np.where(made.sources < 0, len(self.values), places)
        filled = pa.concat_arrays([self.values, pa.array([fill.as_py()], self.values.type)])
        return filled.take(pa.array(places))


def _list_array(type: Any, offsets: Any, values: pa.Array, null: Any) -> pa.Array:
    large = isinstance(type, pa.LargeListType)
    if not large and offsets[-1] > OFFSET_MAX:
        raise ValueError(
            f"the lists have {offsets[-1]} values in all, too many for their 32-bit offsets: "
            "cast the column to large_list, or pass fewer rows at a time"
        )
    cls = pa.LargeListArray if large else pa.ListArray
    ends = pa.array(offsets if large else offsets.astype(np.int32))
    mask = pa.array(null) if null.any() else None
    return cls.from_arrays(ends, values, type=type, mask=mask)


# -- rows ------------------------------------------------------------------------------------


class _Inserted(NamedTuple):
    ids: Any
    offsets: Any  # int64; a row that was refused is empty
    sources: Any  # places in the values of the rows, or None


def _raise(error: ValueError) -> None:
    raise error


def _insert(
    rows: _Rows,
    faults: dict[int, ValueError],
    contract: StateTokens,
    threads: int,
    sources: bool,
    refuse: Callable[[ValueError], None],
    first_row: int,
) -> _Inserted:
    """Insert into the rows that can be; `refuse` the others, those of `faults` among them.

    A refusal costs no more than the rows that it lets through: the next call takes no more than
    these, and while all goes well always twice as many. So rows that are all bad take no longer
    than a few times as many good ones.
    """
    values, offsets = rows.ids, rows.offsets
    n = offsets.size - 1
    known = [*sorted(faults.items(), reverse=True)]  # the next one last
    lengths = np.zeros(n, np.int64)
    ids, places = [values[:0]], [np.empty(0, np.int64)]
    begin, size = 0, n
    while begin < n:
        stop = min(begin + size, n)
        if known and known[-1][0] <= stop:
            stop, error = known[-1]
            if begin == stop:
                known.pop()
                refuse(_at_row(error, first_row + begin))
                begin, size = begin + 1, max(size, 1)
                continue
        given = values[offsets[begin] : offsets[stop]], offsets[begin : stop + 1] - offsets[begin]
        try:
            if sources:
                insertion, ends = contract.insert_ragged_with_sources(*given, threads=threads)
                new, found = insertion
                found[found >= 0] += offsets[begin]
                places.append(found)
            else:
                new, ends = contract.insert_ragged(*given, threads=threads)
        except ValueError as refusal:
            if not hasattr(refusal, "row"):
                raise
            size = refusal.row
            known.append((begin + size, refusal))
        else:
            ids.append(new)
            lengths[begin:stop] = np.diff(ends)
            begin, size = stop, 2 * (stop - begin)
    ends = np.zeros(n + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    return _Inserted(_joined(ids), ends, _joined(places) if sources else None)


def _joined(parts: list[Any]) -> Any:
    return parts[1] if len(parts) == 2 else np.concatenate(parts)


def _at_row(error: ValueError, row: int) -> ValueError:
    if hasattr(error, "row"):  # counted from another one
        error.__notes__.pop()
    in_row(error, row)
    return error
