"""The ways to do it: statetok, its peers, and what bounds them from below."""

import importlib.util
import platform
import subprocess
import sys
from functools import partial
from pathlib import Path
from timeit import timeit

import numpy as np
import pybind11

import statetok
import statetok.twin

from .inputs import ASSISTANT, NUMBERS, USER

HERE = Path(__file__).parent


def build_peers():
    """Build the extension with the peers, under build/, and return it as a module."""
    build = HERE.parent / "build" / "benchmarks" / sys.implementation.cache_tag
    configure = [
        *("cmake", "-S", HERE, "-B", build, "-DCMAKE_BUILD_TYPE=Release"),
        *(f"-DPython_EXECUTABLE={sys.executable}", f"-Dpybind11_DIR={pybind11.get_cmake_dir()}"),
    ]
    for command in (configure, ["cmake", "--build", build, "--config", "Release"]):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (path,) = [p for p in build.rglob("peers.*") if p.suffix in (".so", ".pyd")]
    spec = importlib.util.spec_from_file_location("peers", path)
    peers = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(peers)
    return peers


def with_numpy(ids, vocab, k, eot, user, assistant):
    """The same with whole-array operations; of ids without blocks, and without the messages."""
    if ((ids < 0) | (ids >= vocab)).any():
        raise ValueError("an id is no token")
    at = np.flatnonzero((ids == user) | (ids == assistant) | (ids == eot))
    kind = ids[at]
    # The last control id up to each one that is no assistant; a reply is open behind an assistant
    # if that one is a user.
    last = np.maximum.accumulate(np.where(kind == assistant, -1, np.arange(kind.size)))
    is_open = np.zeros(kind.size, bool)
    is_open[1:] = (kind[:-1] == assistant) & (last[:-1] >= 0) & (kind[last[:-1]] == user)
    block = np.arange(vocab, vocab + k)
    closed = at[is_open & (kind == eot)] + 1
    stopped = at[is_open & (kind == user)]
    places = np.concatenate([np.repeat(closed, k), np.repeat(stopped, k + 1)])
    added = np.concatenate([np.tile(block, closed.size), np.tile([eot, *block], stopped.size)])
    return np.insert(ids, places, added)


def timed_inside(function, *arguments):
    """A way that measures itself: its call takes the number of rounds and returns seconds."""
    way = partial(function, *arguments)
    way.times_itself = True
    return way


def ways(peers, ids):
    """Return every way to insert into these ids, by its name."""
    contract = statetok.StateTokens(*NUMBERS)
    arrays = {dtype: np.array(ids, dtype) for dtype in ("int32", "int64")}
    # uint16 holds no id of this vocabulary: the same sequence, of a smaller one.
    small = statetok.StateTokens(60_000, *NUMBERS[1:])
    uint16 = np.array([id % 59_000 + 10 if id >= 10 else id for id in ids], np.uint16)
    return {
        "twin": partial(statetok.twin.insert_state_blocks, ids, *NUMBERS),
        "plain binding": partial(peers.plain_binding, ids, *NUMBERS),
        "numpy": partial(with_numpy, arrays["int32"], *NUMBERS),
        "header in C++": timed_inside(peers.header, arrays["int32"], *NUMBERS),
        "statetok list": partial(contract.insert, ids),
        "list.copy": partial(list.copy, ids),
        "statetok uint16": partial(small.insert, uint16),
        "statetok int64": partial(contract.insert, arrays["int64"]),
        "statetok int32": partial(contract.insert, arrays["int32"]),
        "array.copy": arrays["int32"].copy,
        "memcpy in C++": timed_inside(peers.copy, arrays["int32"]),
    }


def ways_of_one_call(peers, ids):
    """Return the ways of a call whose cost is the call."""
    contract = statetok.StateTokens(*NUMBERS)
    array = np.array(ids, np.int32)
    return {
        "empty pybind11 function": partial(peers.nothing, ids, *NUMBERS),
        "plain binding": partial(peers.plain_binding, ids, *NUMBERS),
        "insert_state_blocks, list": partial(statetok.insert_state_blocks, ids, *NUMBERS),
        "StateTokens.insert, list": partial(contract.insert, ids),
        "StateTokens.insert, int32": partial(contract.insert, array),
    }


def ways_of_stream(ids):
    """Return the ways to push one id, and those to push a whole turn."""
    contract = statetok.StateTokens(*NUMBERS)
    stream = contract.stream()
    stream.push([USER, 50, ASSISTANT])  # the reply follows

    class Empty:
        def method(self, id):
            pass

    def call(method):
        seconds = partial(timeit, "method(50_000)", globals={"method": method})
        return timed_inside(lambda rounds: seconds(number=rounds) / rounds)

    one = {"empty method": call(Empty().method), "Stream.push, one id": call(stream.push)}
    turn = {
        "StateTokens.insert, list": partial(contract.insert, ids),
        "Stream.push, list": lambda: stream.copy().push(ids),
    }
    return one, turn


def ways_of_scan(peers, ids):
    """Return the scans of this machine, on their own."""
    array = np.array(ids, np.int32)
    names = ("plain", "sse2", "avx2") if platform.machine() in ("x86_64", "AMD64") else ("plain",)
    return {name: timed_inside(peers.scan, name, array, *NUMBERS) for name in names}


def ways_of_rows(peers, values, offsets):
    """Return the ways for a ragged array, and for the same ids as one sequence."""
    contract = statetok.StateTokens(*NUMBERS)
    return {
        "array.copy": values.copy,
        "copy, 2 threads": lambda: peers.copy_in_two(values, np.empty_like(values)),
        "one array": partial(contract.insert, values),
        "ragged, 1 thread": partial(contract.insert_ragged, values, offsets, threads=1),
        "ragged, 2 threads": partial(contract.insert_ragged, values, offsets, threads=2),
    }
