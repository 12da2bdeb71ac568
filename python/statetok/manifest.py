"""A directory converted file by file, with a manifest by which it is taken up again."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from . import HEADER_SHA256, __version__
from ._inputs import thread_count
from .corpus import Advance, Convert, CorpusError, Counts, in_order
from .files import TEMPORARY, replaced

__all__ = ["MANIFEST", "convert_directory"]

#: The file of a directory's manifest: a line that says how, then one for each file.
MANIFEST = "statetok-manifest.jsonl"


def convert_directory(
    sources: Mapping[str, Path], out: Path, convert: Convert, advance: Advance
) -> Counts:
    """Convert files into a directory, except those that its manifest says are done.

    Parameters
    ----------
    sources : mapping of str to path
        The files, by their names in the directory.
    out : path
        The directory; if it is there and not empty, it must have a manifest of the same kind.
    convert : Convert
        How.
    advance : callable
        Is told the bytes that were read.

    Returns
    -------
    Counts
        The sum for all files, those that were done before too.

    Raises
    ------
    CorpusError
        If a file cannot be converted, or the directory is of another conversion.
    OSError
        If a file cannot be read or written.
    """
    out.mkdir(parents=True, exist_ok=True)
    with _locked(out):
        head = _head(convert)
        done = _done(out, head, sources)
        for left in out.rglob(TEMPORARY):  # of a run that was killed
            left.unlink()
        path = out / MANIFEST
        lines = [head, *(done[name] for name in sorted(done))]
        _replace(path, lines)
        with open(path, "ab") as manifest:
            todo = []
            for name in sorted(sources):
                if name in done:
                    advance(sources[name].stat().st_size)
                else:
                    todo.append((name, sources[name]))
            for entry in _converted(todo, out, convert, advance):
                done[entry["file"]] = entry
                manifest.write(_line(entry))
                manifest.flush()
                os.fsync(manifest.fileno())
        lines = [head, *(done[name] for name in sorted(done))]
        if path.read_bytes() != b"".join(map(_line, lines)):  # a file was done again
            _replace(path, lines)
    total = Counts()
    for entry in done.values():
        total += Counts(**{name: entry[name] for name in asdict(total)})
    return total


def _converted(
    todo: list[tuple[str, Path]], out: Path, convert: Convert, advance: Advance
) -> Iterator[dict[str, Any]]:
    """Convert the files, several at a time on many cores, and yield their entries in order."""
    failed = threading.Event()

    def going_on(size: float) -> None:
        if failed.is_set():
            raise CorpusError("another file could not be converted")
        advance(size)

    def work(name: str, source: Path) -> dict[str, Any]:
        before = _identity(source)
        target = out / name
        target.parent.mkdir(parents=True, exist_ok=True)
        counts = convert(source, target, going_on)
        if _identity(source) != before:
            target.unlink()
            raise CorpusError(f"{source}: the file changed while it was read")
        with open(target, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            size = os.fstat(file.fileno()).st_size
        return {
            "file": name,
            **asdict(counts),
            "bytes": size,
            "sha256": digest,
            "input": before,
        }

    # Each file has a thread that reads ahead and one that writes.
    with ThreadPoolExecutor(max(thread_count(None) // 2, 1)) as pool:
        try:
            yield from in_order(pool, work, todo)
        finally:
            failed.set()
            pool.shutdown(cancel_futures=True)


def _head(convert: Convert) -> dict[str, Any]:
    plan = convert.plan
    options = {
        **{name: getattr(plan, name) for name in ("column", "carry", "assistant_mask", "on_error")},
        "dtype": convert.dtype,
    }
    return {
        "contract": json.loads(plan.contract.to_json()),
        "header_sha256": HEADER_SHA256,
        "options": options,
        "statetok": __version__,
        "pyarrow": pa.__version__,
    }


def _done(out: Path, head: dict[str, Any], sources: Mapping[str, Path]) -> dict[str, Any]:
    """Return the entries of the manifest that still hold."""
    path = out / MANIFEST
    if not path.exists():
        if any(each for each in out.iterdir() if not each.match(TEMPORARY)):
            raise CorpusError(f"{out}: not empty, and without a manifest: give another directory")
        return {}
    try:
        # Without what is behind the last end of a line: it was written when the run was killed.
        entries = [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]
        there, *entries = entries
        done = {entry["file"]: entry for entry in entries}
        for entry in entries:
            entry["bytes"], entry["input"], Counts(**{n: entry[n] for n in asdict(Counts())})
    except (ValueError, KeyError, TypeError) as error:
        raise CorpusError(f"{path}: no manifest of ours ({error})") from None
    unlike = [name for name in head if there.get(name) != head[name]]
    if unlike:
        name = unlike[0]
        raise CorpusError(
            f"{out}: was begun with another {name}, {there.get(name)}, not {head[name]}: "
            "give another directory"
        )
    gone = [name for name in done if name not in sources]
    if gone:
        raise CorpusError(f"{out}: has {gone[0]}, which is no longer among the inputs")
    return {
        name: entry
        for name, entry in done.items()
        if entry["input"] == _identity(sources[name])
        and (out / name).is_file()
        and (out / name).stat().st_size == entry["bytes"]
    }


def _identity(source: Path) -> dict[str, int]:
    found = source.stat()
    return {"bytes": found.st_size, "mtime_ns": found.st_mtime_ns}


def _line(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry).encode() + b"\n"


def _replace(path: Path, lines: list[dict[str, Any]]) -> None:
    with replaced(path) as file:
        file.writelines(map(_line, lines))


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Keep other runs out of a directory, where the system can lock one."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise CorpusError(f"{directory}: another run is at work in it") from None
    finally:
        os.close(descriptor)
