"""Measure statetok beside its peers: one process, one run, the ways interleaved.

``pip install '.[bench]'``, then ``python -m benchmarks``. Times depend on the machine and on what
else it does; the ratios in one run are what to look at.
"""

import importlib.util
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pybind11

import statetok
import statetok.twin

HERE = Path(__file__).parent
NUMBERS = (131072, 4, 2, 3, 4)  # vocab, k, eot, user, assistant
LENGTH = 8192
REPEATS = 200


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


def conversation(length):
    """Exchanges of 400 ids, each id an object of its own as a tokeniser makes them."""
    rng = np.random.default_rng(0)
    ids = []
    while len(ids) < length:
        prompt, reply = np.split(rng.integers(10, NUMBERS[0], 397), [150])
        ids += [3, *prompt.tolist(), 4, *reply.tolist(), 2]
    return ids[:length]


def measure(ways):
    """Return the seconds of every repeat of each way, all ways in turn within a repeat."""
    seconds = {name: [] for name in ways}
    for _ in range(REPEATS):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def import_milliseconds():
    """Return what `import statetok` adds to an empty interpreter, by ``-X importtime``."""
    shown = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import statetok"],
        capture_output=True,
        text=True,
        check=True,
    ).stderr.splitlines()[-1]
    return int(shown.split("|")[1]) / 1000


def main():
    peers = build_peers()
    ids = conversation(LENGTH)
    arrays = {dtype: np.array(ids, dtype) for dtype in ("int32", "int64")}
    ways = {
        "plain std::vector<int> binding": lambda: peers.plain_binding(ids, *NUMBERS),
        "twin": lambda: statetok.twin.insert_state_blocks(ids, *NUMBERS),
        "statetok, list": lambda: statetok.insert_state_blocks(ids, *NUMBERS),
        "list.copy": ids.copy,
        "statetok, int32 array": lambda: statetok.insert_state_blocks(arrays["int32"], *NUMBERS),
        "statetok, int64 array": lambda: statetok.insert_state_blocks(arrays["int64"], *NUMBERS),
        "int32 array.copy": arrays["int32"].copy,
    }
    seconds = measure(ways)
    plain = statistics.median(seconds["plain std::vector<int> binding"])

    print(f"{LENGTH} ids in exchanges of 400, k = 4, {REPEATS} repeats, median (quartiles)\n")
    print("| way | ns per id | times as fast as the plain binding |")
    print("|---|---|---|")
    for name, times in seconds.items():
        low, median, high = (q / LENGTH * 1e9 for q in statistics.quantiles(times, n=4))
        ratio = plain / (median * LENGTH / 1e9)
        print(f"| {name} | {median:.2f} ({low:.2f} .. {high:.2f}) | {ratio:.2f} |")
    imports = [import_milliseconds() for _ in range(11)]
    print(f"\nimport statetok: {statistics.median(imports):.1f} ms, at most {max(imports):.1f} ms")


if __name__ == "__main__":
    main()
