"""Pick the implementation: once, at import, and loudly if it cannot be had."""

from __future__ import annotations

import os

__all__ = [
    "HEADER_SHA256",
    "StreamBase",
    "bind",
    "implementation",
    "insert_ragged",
    "insert_state_blocks",
    "insert_with_edits",
]

_SWITCH = "STATETOK_IMPLEMENTATION"

implementation = os.environ.get(_SWITCH, "cpp")
if implementation == "cpp":
    try:
        from ._core import (
            HEADER_SHA256,
            StreamBase,
            bind,
            insert_ragged,
            insert_state_blocks,
            insert_with_edits,
        )
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError)
        error.add_note(
            f"statetok's compiled module {'is not there' if missing else 'does not load here'}. "
            "Build it with 'pip install .' (a C++17 compiler is needed), or set "
            f"{_SWITCH}=python to run the slow pure-Python twin."
        )
        raise
elif implementation == "python":
    from .twin import (  # type: ignore[assignment]
        HEADER_SHA256,
        StreamBase,
        bind,
        insert_ragged,
        insert_state_blocks,
        insert_with_edits,
    )
else:
    raise ImportError(
        f"{_SWITCH} is {implementation[:40]!a}: set it to 'cpp' or 'python', or unset it"
    )
