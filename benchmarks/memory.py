"""How much memory `insert_ragged` takes beyond its result, in a process of its own (Linux)."""

import subprocess
import sys

PROGRAM = """
import sys
import numpy as np
from benchmarks.inputs import NUMBERS, rows
from statetok import StateTokens

def resident(what):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(what))

values, offsets = rows(40_000_000)
if "dense" in sys.argv[1]:
    values = np.tile(np.array([3, 50, 4, 60, 2], np.int32), values.size // 5)
contract = StateTokens(*NUMBERS)
contract.insert_ragged(values[:4000], offsets[:11], threads=2)  # what only a first call needs
if "one row" in sys.argv[1]:
    offsets = offsets[[0, -1]]
before = resident("VmRSS")
with open("/proc/self/clear_refs", "w") as forget:
    forget.write("5")  # the peak so far
result = contract.insert_ragged(values, offsets, threads=2)
beyond = resident("VmHWM") - before - sum(array.nbytes for array in result)
print(beyond / values.nbytes)
"""


def ragged_memory():
    """Return the peak beyond the result, as a part of the input, by the kind of rows."""
    return {
        kind: float(
            subprocess.run(
                [sys.executable, "-c", PROGRAM, kind], check=True, capture_output=True, text=True
            ).stdout
        )
        for kind in ("exchanges of 400", "dense", "exchanges of 400, one row", "dense, one row")
    }
