"""Pick the implementation: once, at import, and loudly if it cannot be had."""

from __future__ import annotations

import os

__all__ = ["HEADER_SHA256", "implementation", "insert_state_blocks"]

_SWITCH = "STATETOK_IMPLEMENTATION"

implementation = os.environ.get(_SWITCH, "cpp")
if implementation == "cpp":
    try:
        from ._core import HEADER_SHA256, insert_state_blocks
    except ImportError as error:
        error.add_note(
            "statetok's compiled module does not load. Build it with 'pip install .' (a C++17 "
            "compiler is needed), or set STATETOK_IMPLEMENTATION=python to run the slow "
            "pure-Python twin."
        )
        raise
elif implementation == "python":
    from .twin import HEADER_SHA256, insert_state_blocks
else:
    raise ImportError(f"{_SWITCH} is {implementation!r}: set it to 'cpp' or 'python', or unset it")
