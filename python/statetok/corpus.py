"""Files of a corpus, of any size: read, rewritten and put in place piece by piece.

Every format is read into pieces that fit in memory, each piece goes through `TablePlan`, a line of
JSON or a `Stream`, and is written before the next but one is read.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ._inputs import thread_count
from .arrow import Refused, TablePlan, check_width
from .contract import StateTokens
from .files import replaced
from .jsonl import REFUSALS, list_in, parsed, reason, written

__all__ = ["Convert", "CorpusError", "Counts", "format_of"]

SLICE = 16 * 2**20  # bytes of columns that are worked on at a time
GROUP = 64 * 2**20  # bytes of a row group or record batch; a larger one is split
LINES = 2**20  # bytes of lines for one task
FEW = 2**23  # bytes of lines that take no longer than the start of processes
IDS = 2**22  # ids of a raw stream at a time
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
#: What reading and writing a file raises; the last if a process of the pool was killed.
FAULTS = (OSError, pa.ArrowException, *REFUSALS, OverflowError, BrokenExecutor)

Advance = Callable[[float], None]


class CorpusError(Exception):
    """A file that cannot be converted: which, where in it, and why."""


@dataclass
class Counts:
    """What was done to a file."""

    rows: int = 0
    ids_in: int = 0
    ids_out: int = 0
    blocks: int = 0
    closed_early: int = 0
    refused: int = 0

    def __str__(self) -> str:
        return (
            f"{self.rows:,} rows, {self.ids_in:,} ids in, {self.ids_out:,} out, {self.blocks:,} "
            f"blocks, {self.closed_early:,} replies closed early"
        )

    def __iadd__(self, other: Counts) -> Counts:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
        return self

    def ids(self, before: Any, after: Any, contract: StateTokens) -> None:
        """Count the ids of rows that were accepted, and of what was made of them."""
        self.ids_in += before.size
        self.ids_out += after.size
        if contract.k:
            self.blocks += int(np.count_nonzero(after == contract.vocab))
            ends = [int(np.count_nonzero(ids == contract.eot)) for ids in (before, after)]
            self.closed_early += ends[1] - ends[0]


@dataclass
class Convert:
    """How files are converted, and what with.

    Parameters
    ----------
    plan : TablePlan
        What is done to a table; of lines the same, by the same names.
    dtype : str, optional
        The type of the ids in raw files, which do not say it.
    """

    plan: TablePlan
    dtype: str | None = None
    workers: Executor | None = None  # for lines; what pyarrow and we do is done in threads
    split: list[str] = field(default_factory=list)  # what could not be kept, to be said at the end
    faults: list[str] = field(default_factory=list)  # of rows that were refused

    def __call__(self, source: Path, target: Path, advance: Advance = lambda _: None) -> Counts:
        """Convert one file and put the result in place; nothing is there if that fails."""
        convert = FORMATS[format_of(source)]
        where = str(source)
        try:
            with replaced(target) as out:
                return convert(self, source, out, advance)
        except FAULTS as error:
            if getattr(error, "filename", None) in (where, str(target)):
                raise
            raise CorpusError(f"{where}: {reason(error)}") from error

    # -- tables ------------------------------------------------------------------------------

    def _tables(
        self,
        source: Path,
        schema: pa.Schema,
        groups: Iterable[Iterable[pa.RecordBatch]],
        counts: Counts,
    ) -> Iterator[pa.Table]:
        """Yield what becomes of each group of batches, and count."""
        refused = Refused(self.plan.on_error)
        first_row = 0
        for group in groups:
            made = []
            for batch in group:
                try:
                    out, bad = self.plan.batch(batch, schema, refused, first_row)
                except FAULTS as error:
                    raise CorpusError(row_fault(source, error)) from error
                first_row += batch.num_rows
                kept = batch.filter(pa.array(~bad)) if bad.any() else batch
                before, after = (_ids(each, self.plan.column) for each in (kept, out))
                counts.ids(before, after, self.plan.contract)
                made.append(out)
            yield pa.Table.from_batches(made, schema)
        counts.rows = first_row
        counts.refused = refused.count
        self.faults += [row_fault(source, error) for error in refused.errors]

    def _parquet(self, source: Path, out: IO[bytes], advance: Advance) -> Counts:
        counts = Counts()
        # buffer_size: or a row group's bytes are read all at once.
        with pq.ParquetFile(source, buffer_size=2**20) as file:
            size = source.stat().st_size
            schema = self.plan.schema(file.schema_arrow)
            rows = max(file.metadata.num_rows, 1)
            tables = self._tables(source, schema, self._row_groups(file, source), counts)
            with pq.ParquetWriter(out, schema, **_parquet_options(file, schema)) as writer:
                for table in ahead(tables):
                    if table.num_rows:
                        writer.write_table(table, row_group_size=table.num_rows)
                    advance(size * table.num_rows / rows)
        return counts

    def _row_groups(self, file: pq.ParquetFile, source: Path) -> Iterator[Iterator[pa.RecordBatch]]:
        for number in range(file.num_row_groups):
            group = file.metadata.row_group(number)
            # Dictionaries and runs may make it much smaller than it is in memory.
            values = sum(group.column(i).num_values for i in range(group.num_columns))
            size = max(group.total_byte_size, 8 * values, 1)
            rows = max(group.num_rows * SLICE // size, 1)
            name = f"{source}: row group {number}"
            batches = _named(file.iter_batches(rows, row_groups=[number]), name)
            yield from self._pieces(batches, size, name)

    def _ipc(self, source: Path, out: IO[bytes], advance: Advance) -> Counts:
        counts = Counts()
        with pa.OSFile(str(source)) as file:
            if file.read(6) == b"ARROW1":
                reader = pa.ipc.open_file(file)
                batches = map(reader.get_batch, range(reader.num_record_batches))
                new = pa.ipc.new_file
            else:
                file.seek(0)
                reader = pa.ipc.open_stream(file)
                batches = iter(reader)
                new = pa.ipc.new_stream
            schema = self.plan.schema(reader.schema)

            def groups() -> Iterator[Iterator[pa.RecordBatch]]:
                for number, batch in enumerate(_named(batches, f"{source}: a record batch")):
                    rows = max(batch.num_rows * SLICE // max(batch.nbytes, 1), 1)
                    starts = range(0, batch.num_rows, rows)
                    slices = (batch.slice(start, rows) for start in starts)
                    yield from self._pieces(
                        slices, batch.nbytes, f"{source}: record batch {number}"
                    )

            at = 0
            with new(out, schema) as writer:
                for table in ahead(self._tables(source, schema, groups(), counts)):
                    for batch in table.combine_chunks().to_batches():
                        writer.write_batch(batch)
                    advance(file.tell() - at)
                    at = file.tell()
        return counts

    def _pieces(
        self, batches: Iterator[pa.RecordBatch], size: int, name: str
    ) -> Iterator[Iterator[pa.RecordBatch]]:
        """Yield the batches of a group, in several pieces if it is too large for one."""
        if size <= GROUP:
            yield batches
            return
        self.split.append(name)
        piece: list[pa.RecordBatch] = []
        for batch in batches:
            piece.append(batch)
            if sum(each.nbytes for each in piece) + SLICE > GROUP:
                yield iter(piece)
                piece = []
        yield iter(piece)

    # -- lines -------------------------------------------------------------------------------

    def _lines(self, source: Path, out: IO[bytes], advance: Advance) -> Counts:
        counts = Counts()
        codec = COMPRESSIONS.get(source.suffix)
        size = source.stat().st_size
        with pa.OSFile(str(source)) as raw:
            text = pa.CompressedInputStream(raw, codec) if codec else raw
            tasks = ((self.plan, codec, first, block) for first, block in blocks_of_lines(text))
            at = 0
            for lines, done, faults in in_order(self.workers, _convert_lines, tasks):
                if faults and self.plan.on_error == "raise":
                    raise CorpusError(f"{source}:{faults[0]}")
                out.write(lines)
                counts += done
                self.faults += [f"{source}:{fault}" for fault in faults]
                del self.faults[REMEMBERED:]
                advance(min(raw.tell(), size) - at)
                at = min(raw.tell(), size)
        return counts

    # -- raw ids -----------------------------------------------------------------------------

    def _raw(self, source: Path, out: IO[bytes], advance: Advance) -> Counts:
        if self.dtype is None:
            raise ValueError("a raw file does not say what its ids are: give their dtype")
        dtype = np.dtype(self.dtype).newbyteorder("<")
        size = source.stat().st_size
        if size % dtype.itemsize:
            raise ValueError(
                f"{size} bytes are no whole number of ids of {dtype.itemsize} bytes each: is the "
                "dtype right, and the file whole?"
            )
        with open(source, "rb") as file:
            return self._stream(_arrays(file, dtype), dtype, out, advance)

    def _npy(self, source: Path, out: IO[bytes], advance: Advance) -> Counts:
        with open(source, "rb") as file:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0
            if version != (1, 0):
                read = np.lib.format.read_array_header_2_0
            shape, _, dtype = read(file)
            if len(shape) != 1 or dtype.kind not in "iu":
                raise ValueError(
                    f"an array of {dtype} and shape {shape} is no sequence of ids: it must have "
                    "one dimension and an integer dtype"
                )
            begin = file.tell()
            there = source.stat().st_size - begin
            if there != shape[0] * dtype.itemsize:
                raise ValueError(
                    f"the header says {shape[0]} ids of {dtype.itemsize} bytes, and {there} bytes "
                    "follow: the file is not whole"
                )
            header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False}
            # NumPy leaves room in it for a number that grows.
            np.lib.format.write_array_header_1_0(out, header | {"shape": (0,)})
            begin = out.tell()
            counts = self._stream(_arrays(file, dtype), dtype, out, advance)
            out.seek(0)
            np.lib.format.write_array_header_1_0(out, header | {"shape": (counts.ids_out,)})
            if out.tell() != begin:
                raise RuntimeError("the header of an .npy file did not keep its length")
        return counts

    def _stream(
        self, arrays: Iterator[Any], dtype: Any, out: IO[bytes], advance: Advance
    ) -> Counts:
        check_width("the file", dtype, self.plan.contract)
        counts = Counts(rows=1)
        stream = self.plan.contract.stream()

        def made() -> Iterator[tuple[Any, Any]]:
            for array in arrays:
                yield array, stream.push(array)

        for before, after in ahead(made()):
            counts.ids(before, after, self.plan.contract)
            out.write(after.astype(dtype, copy=False).data)
            advance(before.nbytes)
        stream.finish()
        return counts


FORMATS: dict[str | None, Callable[[Convert, Path, IO[bytes], Advance], Counts]] = {
    ".parquet": Convert._parquet,
    ".arrow": Convert._ipc,
    ".feather": Convert._ipc,
    ".jsonl": Convert._lines,
    ".jsonl.gz": Convert._lines,
    ".jsonl.zst": Convert._lines,
    ".bin": Convert._raw,
    ".npy": Convert._npy,
}
REMEMBERED = 100  # refused rows of all files that are named


def format_of(path: Path) -> str | None:
    """Return the end of a file's name that says its format, or ``None`` if it is no corpus."""
    return next((end for end in FORMATS if end and path.name.endswith(end)), None)


def row_fault(source: Path, error: Exception) -> str:
    row = getattr(error, "row", None)
    return f"{source}: {reason(error)}" if row is None else f"{source}, row {row}: {reason(error)}"


def _ids(batch: pa.RecordBatch, column: str) -> Any:
    return batch.column(column).flatten().to_numpy(zero_copy_only=False)


def _named(batches: Iterator[pa.RecordBatch], name: str) -> Iterator[pa.RecordBatch]:
    """Yield the batches; if they cannot be read, say which ones."""
    try:
        yield from batches
    except (pa.ArrowException, OSError) as error:
        raise CorpusError(f"{name} cannot be read: {error}") from error


def _arrays(file: IO[bytes], dtype: Any) -> Iterator[Any]:
    while (array := np.fromfile(file, dtype, IDS)).size:
        yield array


def _parquet_options(file: pq.ParquetFile, schema: pa.Schema) -> dict[str, Any]:
    """Return what a writer needs to compress and encode each column as it is in `file`."""
    if not file.num_row_groups:
        return {}
    group = file.metadata.row_group(0)
    given = [group.column(i) for i in range(group.num_columns)]
    # Columns keep their order, so their leaves do, but the names of lists' items may change.
    empty = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), empty)
    leaves = pq.ParquetFile(pa.BufferReader(empty.getvalue())).schema
    paths = [leaves.column(i).path for i in range(len(leaves))]
    given += given[:1] * (len(paths) - len(given))  # a mask that is added
    codecs = [each.compression.lower().removesuffix("_raw") for each in given]
    return {
        "compression": dict(zip(paths, codecs, strict=True)),
        "use_dictionary": [
            path for path, each in zip(paths, given, strict=True) if each.has_dictionary_page
        ],
        "sorting_columns": group.sorting_columns or None,
    }


# -- lines, in processes ---------------------------------------------------------------------


def blocks_of_lines(text: Any) -> Iterator[tuple[int, bytes]]:
    """Yield whole lines, about as many bytes as a task should have, and the number of the first."""
    first, rest = 1, b""
    while block := text.read(LINES):
        whole, newline, after = block.rpartition(b"\n")
        if not newline:
            rest += block
            continue
        lines = rest + whole + newline
        yield first, lines
        first += lines.count(b"\n")
        rest = after
    if rest:
        yield first, rest


def _convert_lines(
    plan: TablePlan, codec: str | None, first: int, block: bytes
) -> tuple[bytes, Counts, list[str]]:
    """Convert lines; return them, what was done, and the faults of those that were refused."""
    counts = Counts()
    out: list[bytes] = []
    faults: list[str] = []
    for number, line in enumerate(block.split(b"\n"), first):
        if not line.strip():
            continue
        counts.rows += 1
        record = None
        try:
            record = parsed(line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line)
            out.append(written(_convert_record(plan, record, counts)))
        except REFUSALS as error:
            counts.refused += 1
            if len(faults) < REMEMBERED:
                faults.append(f"{number}: {reason(error)}")
            if plan.on_error == "raise":
                break
            if plan.on_error == "null":
                out.append(written(_nulled(plan, record)))
    lines = b"".join(out)
    if codec:  # each block on its own: together they are a file, and each was made on some core
        buffer = pa.BufferOutputStream()
        with pa.CompressedOutputStream(buffer, codec) as stream:
            stream.write(lines)
        lines = buffer.getvalue().to_pybytes()
    return lines, counts, faults


def _convert_record(plan: TablePlan, record: Any, counts: Counts) -> Any:
    ids = list_in(record, plan.column)
    beside: dict[str, Any] = {}
    if ids is None:  # as in a table: nothing, which is no fault
        out = None
    elif plan.carry:
        insertion = plan.contract.insert_with_sources(ids)
        out = insertion.ids
        for name, fill in plan.carry.items():
            if not isinstance(record, dict):
                raise TypeError(f"a line that is a list has no field {name[:40]!r}")
            beside[name] = insertion.carry(list_in(record, name), fill)
    else:
        out = plan.contract.insert(ids)
    if plan.assistant_mask is not None:
        if not isinstance(record, dict):
            raise TypeError(f"a line that is a list has no room for {plan.assistant_mask[:40]!r}")
        if plan.assistant_mask in record:
            raise ValueError(f"the object has a field {plan.assistant_mask[:40]!r} already")
        beside[plan.assistant_mask] = out if out is None else plan.contract.assistant_mask(out)
    if out is not None:
        contract = plan.contract
        counts.ids_in += len(ids)
        counts.ids_out += len(out)
        if contract.k:
            counts.blocks += out.count(contract.vocab)
            counts.closed_early += out.count(contract.eot) - ids.count(contract.eot)
    return record | {plan.column: out} | beside if isinstance(record, dict) else out


def _nulled(plan: TablePlan, record: Any) -> Any:
    if not isinstance(record, dict):
        return None
    names = [plan.column, *plan.carry]
    if plan.assistant_mask is not None:
        names.append(plan.assistant_mask)
    return record | dict.fromkeys(names)


# -- several things at once ------------------------------------------------------------------


def ahead(items: Iterable[Any]) -> Iterator[Any]:
    """Yield the items, each of them made in a thread while the one before it is in use."""
    end = object()
    iterator = iter(items)
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(next, iterator, end)
        while (item := following.result()) is not end:
            following = pool.submit(next, iterator, end)
            yield item


def in_order(
    pool: Executor | None, work: Callable[..., Any], tasks: Iterable[tuple[Any, ...]]
) -> Iterator[Any]:
    """Yield what `work` makes of each task, in their order, with few of them under way."""
    if pool is None:
        yield from (work(*task) for task in tasks)
        return
    waiting: deque[Any] = deque()
    for task in tasks:
        waiting.append(pool.submit(work, *task))
        if len(waiting) > 2 * thread_count(None):
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


@contextmanager
def processes_for(paths: Iterable[Path]) -> Iterator[Executor | None]:
    """Yield a pool with a process for each core, if there are lines enough to need them."""
    lines = [path for path in paths if FORMATS[format_of(path)] is Convert._lines]
    size = sum(path.stat().st_size for path in lines)
    if size < FEW or thread_count(None) == 1:
        yield None
        return
    # spawn: a fork of a process with threads, which pyarrow has, may hang.
    pool = ProcessPoolExecutor(thread_count(None), get_context("spawn"), _with_parent)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _with_parent() -> None:
    """Let a worker end when its parent does, killed or not, and leave Ctrl-C to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        parent = parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
