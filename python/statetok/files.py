"""Files that are replaced as a whole or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

__all__ = ["TEMPORARY", "replaced"]

#: What matches the names of files that are not finished; after a crash some may be left.
TEMPORARY = ".statetok-*.tmp"


@contextmanager
def replaced(target: Path, name: str | None = None) -> Iterator[IO[bytes]]:
    """Open a file that takes the place of `target` at the end, and only if all went well.

    `name` is what errors call it, if that is not its path.
    """
    temporary = target.with_name(TEMPORARY.replace("*", secrets.token_hex(8)))
    try:
        temporary.touch(exist_ok=False)
    except OSError as error:  # which is about a name that nobody gave
        raise OSError(error.errno, error.strerror, name or str(target)) from None
    try:
        with open(temporary, "wb") as file:
            if target.exists():
                shutil.copymode(target, temporary)
            yield file
            file.flush()
            os.fsync(file.fileno())  # or a power cut could leave the name without the bytes
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
