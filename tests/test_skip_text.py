"""Skipping text gives the header's answer: in every lane of every scan, at every edge.

The scans that this machine has are reached through a small library compiled here, so that a
defect can be planted in a copy of the source: a suite that cannot fail proves nothing.
"""

import ctypes
import itertools
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import oracle
import pytest

from statetok import StateTokenError

ROOT = Path(__file__).parents[1]
SCANS = (
    ["plain", "neon"] if platform.machine() in ("aarch64", "arm64") else ["plain", "sse2", "avx2"]
)
NUMBERS = VOCAB, K, EOT, USER, ASSISTANT = (10, 2, 3, 1, 2)
TEXT = 9  # the last id below vocab
OF_INTEREST = (USER, ASSISTANT, EOT, VOCAB, VOCAB + 1, VOCAB + 2, -1, -(2**31), 2**31 - 1)


def edge_cases():
    """Sequences with one id, or one exchange, at every place where a scan could slip."""
    lengths = (1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 1023, 1024, 1025, 1056, 1057)
    for length in lengths:
        places = {
            *range(min(length, 64 if length < 1000 else 2)),
            *range(max(length - 34, 0), length),
        }
        for place in sorted(places):
            for id in OF_INTEREST:
                ids = [TEXT] * length
                ids[:2] = (USER, ASSISTANT)[:length]
                ids[place] = id
                yield ids
            ids = [TEXT] * length
            exchange = [USER, ASSISTANT, EOT]  # ends there, with a block and without one
            yield [*ids[:place], *exchange, *ids[place:]]
            yield [*ids[:place], *exchange, VOCAB, VOCAB + 1, *ids[place:]]
            yield [*ids[:place], *exchange, TEXT, VOCAB, VOCAB + 1, *ids[place:]]
            yield [*ids[:place], USER, ASSISTANT, *ids[place:], USER]
    # Both kinds of edits in one sequence.
    closed, stopped = [USER, ASSISTANT, EOT], [USER, ASSISTANT]
    yield from (
        [*closed, *stopped, *closed, *closed],
        [*stopped, *closed, *stopped, *stopped, USER],
    )
    # Few ids of interest and then many, and the other way round, at every edge of a piece.
    dense = [USER, ASSISTANT, EOT] * 400
    for length in (1, 127, 128, 129, 1023, 1024, 1025, 2500):
        sparse = [TEXT] * length
        yield from ([*sparse, *dense], [*dense, *sparse, USER], [*dense, -1, *sparse])
        yield [*dense[:48], *sparse, *dense[:1024], *sparse, *closed]


def short_cases():
    alphabet = (USER, ASSISTANT, EOT, TEXT, VOCAB, VOCAB + 1, VOCAB + 2, -1)
    for length in range(5):
        yield from map(list, itertools.product(alphabet, repeat=length))


@pytest.fixture(scope="module")
def cases():
    return [
        (ids, oracle.insert_state_blocks(ids, *NUMBERS))
        for ids in itertools.chain(short_cases(), edge_cases())
    ]


# -- each scan --------------------------------------------------------------------------------


class Library:
    """The harness, compiled with the source in `folder`."""

    def __init__(self, folder):
        compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
        if compiler is None or sys.platform == "win32":
            pytest.skip("needs a C++ compiler with g++'s options on PATH: install g++ or clang")
        path = folder / "harness.so"
        subprocess.run(
            [
                *(compiler, "-std=c++17", "-O0", "-fwrapv", "-shared", "-fPIC"),
                *("-iquote", folder, "-isystem", ROOT / "src"),
                *(ROOT / "tests/skip_text_harness.cpp", "-o", path),
            ],
            check=True,
        )
        self._library = ctypes.CDLL(str(path))
        self._library.insert_with.restype = ctypes.c_long
        self._out = (ctypes.c_int * 100_000)()
        self._text = ctypes.create_string_buffer(300)

    def has(self, scan):
        return bool(self._library.has_scan(scan.encode()))

    def insert(self, scan, ids, numbers):
        given = (ctypes.c_int * len(ids))(*ids)
        five = (ctypes.c_int * 5)(*numbers)
        n = self._library.insert_with(
            scan.encode(), given, ctypes.c_long(len(ids)), five, self._out, self._text
        )
        return self._out[:n] if n >= 0 else self._text.value.decode()


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sound")
    shutil.copy(ROOT / "src/skip_text.h", folder)
    return Library(folder)


def assert_agrees(library, scans, cases):
    for scan, (ids, expected) in itertools.product(scans, cases):
        assert library.insert(scan, ids, NUMBERS) == expected, ids


@pytest.mark.parametrize("scan", SCANS)
def test_scan(library, scan, cases):
    if not library.has(scan):
        pytest.skip(f"this processor has no {scan}")
    assert_agrees(library, [scan], cases)


# What stands in skip_text.h, and what is put in its place.
DEFECTS = {
    "a lane is read twice (sse2)": ("of_interest(ids + i + 12)", "of_interest(ids + i + 8)"),
    "a lane is read twice (avx2)": ("of_interest(ids + i + 24)", "of_interest(ids + i + 16)"),
    "a lane lands on another (avx2)": ("of_interest(ids + i + 8) << 8", "of_interest(ids + i + 8)"),
    "the rest starts too late": ("scan_from(i, count, ids", "scan_from(i + 1, count, ids"),
    "the first state id is text (sse2)": ("_mm_set1_epi32(c.vocab)", "_mm_set1_epi32(c.vocab + 1)"),
    "the first state id is text (avx2)": (
        "_mm256_set1_epi32(c.vocab)",
        "_mm256_set1_epi32(c.vocab + 1)",
    ),
    "a negative id is text (sse2)": ("_mm_or_si128(control, past), id)", "control, past)"),
    "a negative id is text (avx2)": ("_mm256_or_si256(control, past), id)", "control, past)"),
    "an assistant is text (sse2)": ("_mm_cmpeq_epi32(id, assistant)", "_mm_cmpeq_epi32(id, user)"),
    "an assistant is text (all)": ("id == c.assistant ||", ""),
    "only the first hit counts": ("for (; mask != 0; mask &= mask - 1)", "if (mask != 0)"),
    "text that parts is left out": ("        *id++ = text;\n", ""),
    "text before dense ids is left out": ("skip_to(first, text);", "next_ = first;"),
    "each piece starts at 0": ("place = first + hits[h];", "place = hits[h];"),
    "a skip counts one too many": ("skipped_ += place - next_ - 1;", "skipped_ += place - next_;"),
    "a skip comes into force too late": ("skips_[cursor].at <= i", "skips_[cursor].at < i"),
    "a control id stands for text": ("int text = 0;", "int text = c.user; if (false)"),
    "the position is that in the question": ("question_->skip_nothing(source);  //", "throw;  //"),
    "an edit is one id late": ("{base + question", "{1 + base + question"),
    "each edit adds the first ids": ("ids.size() - n, n}", "0, n}"),
    "each edit counts as shared": ("const bool shared = ", "const bool shared = !ids.empty() ||"),
    "the walk stops at the last id": ("id != answer.end();) {", "next < asked.size();) {"),
    "the copy starts anew after an edit": ("begin = edit.before;", ""),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_is_caught(tmp_path, cases, library, defect):
    was, becomes = DEFECTS[defect]
    source = (ROOT / "src/skip_text.h").read_text("utf-8")
    assert was in source
    (tmp_path / "skip_text.h").write_text(source.replace(was, becomes), "utf-8")
    planted = Library(tmp_path)
    scans = [scan for scan in SCANS if library.has(scan)]
    if defect.endswith("2)"):  # in one of the x86 scans
        scans = [scan for scan in scans if scan in defect]
        if not scans:
            pytest.skip("this processor does not have that scan")
    with pytest.raises(AssertionError):
        assert_agrees(planted, scans, cases)


# -- the build itself, through every kind of input --------------------------------------------

KINDS = {"list": list} | {
    dtype: lambda ids, dtype=dtype: np.array(ids, dtype)
    for dtype in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_input(impl, cases, kind):
    limits = range(-(2**40), 2**40) if kind == "list" else np.iinfo(kind)
    low, high = (limits[0], limits[-1]) if kind == "list" else (limits.min, limits.max)
    compared = 0
    for ids, expected in cases:
        if ids and not low <= min(ids) <= max(ids) <= high:
            continue
        compared += 1
        try:
            result = list(impl.insert_state_blocks(KINDS[kind](ids), *NUMBERS))
        except StateTokenError as refusal:
            result = str(refusal)
        assert result == expected, ids
    assert compared > len(cases) // 2


def test_a_fault_at_every_position(impl):
    ids = [TEXT] * 2500
    ids[::100] = [USER] * 25
    ids[50::100] = [ASSISTANT] * 25
    for position in range(2500):
        bad = ids.copy()
        bad[position] = -7
        given = bad if position % 2 else np.array(bad, np.int32)
        with pytest.raises(StateTokenError) as refusal:
            impl.insert_state_blocks(given, *NUMBERS)
        assert str(refusal.value) == f"token id -7 at position {position} is negative"
        assert refusal.value.position == position
