"""Count instructions per id under valgrind: the same on any machine with the same compiler.

``python -m benchmarks.instructions`` (needs valgrind with its headers, before the first build of
the peers) writes its table into docs/performance.md.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from .report import replace_part

LENGTH = 8192
CALLS = 20
PROGRAM = f"""
import sys
from benchmarks.inputs import llm
from benchmarks.ways import build_peers, ways
peers = build_peers()
way = ways(peers, llm({LENGTH}))[sys.argv[1]]
rounds = [{CALLS}] if hasattr(way, "times_itself") else []  # that one repeats itself
def run():
    for _ in range(1 if rounds else {CALLS}):
        way(*rounds)
run()
peers.toggle_counting()
run()
peers.toggle_counting()
"""
WAYS = ("plain binding", "header in C++", "statetok list", "statetok int32")


def instructions(way):
    """Return the instructions of one call."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "callgrind.out"
        subprocess.run(
            [
                *("valgrind", "--tool=callgrind", "--collect-atstart=no"),
                *(f"--callgrind-out-file={out}", sys.executable, "-c", PROGRAM, way),
            ],
            check=True,
            capture_output=True,
        )
        return int(re.search(r"^(?:summary|totals): (\d+)", out.read_text(), re.M)[1]) / CALLS


def main():
    lines = ["| way | instructions per id |", "|---|---|"]
    for way in WAYS:
        lines.append(f"| {way} | {instructions(way) / LENGTH:.2f} |")
        print(lines[-1], flush=True)
    replace_part("instructions", "\n".join(lines))


if __name__ == "__main__":
    main()
