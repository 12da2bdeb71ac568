"""Measure statetok beside its peers: one process, one run, the ways of each input in turn.

``pip install '.[bench]'``, then ``python -m benchmarks``: writes results.json here, and the
tables and the plot of docs/performance.md. Times depend on the machine and on what else it does;
the ratios in one run are what to look at.
"""

import json
import platform
import statistics
import time
from pathlib import Path

from . import inputs, report
from .memory import ragged_memory
from .ways import build_peers, ways, ways_of_one_call, ways_of_rows, ways_of_scan, ways_of_stream

SECONDS_PER_INPUT = 8.0
TWIN_UP_TO = 131_072  # ids; it would take all the time of longer ones


def seconds_per_call(way, number):
    """Return the mean seconds of one of `number` calls."""
    if getattr(way, "times_itself", False):
        way(1)
        return way(number)
    way()  # not measured: what the way before it left in the caches is no merit of this one
    start = time.perf_counter()
    for _ in range(number):
        way()
    return (time.perf_counter() - start) / number


def measure(rivals):
    """Return for each way the median seconds of a call and the quartiles around it."""
    first = {name: seconds_per_call(way, 1) for name, way in rivals.items()}  # also warms up
    # So many calls of each that the clock is not what is measured.
    numbers = {name: max(1, int(20e-6 / max(once, 1e-9))) for name, once in first.items()}
    cost = sum(first[name] * number for name, number in numbers.items())
    repeats = max(9, min(1000, int(SECONDS_PER_INPUT / cost)))
    seconds = {name: [] for name in rivals}
    for _ in range(repeats):
        for name, way in rivals.items():
            seconds[name].append(seconds_per_call(way, numbers[name]))
    return {
        name: dict(zip(("low", "median", "high"), statistics.quantiles(taken, n=4), strict=True))
        for name, taken in seconds.items()
    }


def main():
    peers = build_peers()
    results = {"machine": machine(), "inputs": {}}

    def run(name, length, rivals):
        if length > TWIN_UP_TO:
            rivals.pop("twin", None)
        results["inputs"].setdefault(name, {})[length] = measure(rivals)
        print(name, length, flush=True)

    for length in inputs.LENGTHS:
        run("llm", length, ways(peers, inputs.llm(length)))
    for name in ("real", "dense", "text"):
        for length in inputs.LENGTHS[1:4]:
            run(name, length, ways(peers, getattr(inputs, name)(length)))
    run("mixed", 8192, ways(peers, inputs.mixed(8192)))
    run("scan", 8192, ways_of_scan(peers, inputs.llm(8192)))
    for name, ids in (("empty", []), ("one id", [50]), ("64 ids", inputs.llm(64))):
        run(name, len(ids), ways_of_one_call(peers, ids))
    one_id, turn = ways_of_stream(inputs.llm(8192))
    run("stream", 1, one_id)
    run("stream", 8192, turn)
    values, offsets = inputs.rows(10_000_000)
    run("rows", values.size, ways_of_rows(peers, values, offsets))
    results["ragged_memory"] = ragged_memory()

    path = Path(__file__).with_name("results.json")
    path.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    report.write(json.loads(path.read_text("utf-8")))


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return (
        f"{models[0]}, {len(models)} cores, {platform.system()}, Python {platform.python_version()}"
    )


if __name__ == "__main__":
    main()
