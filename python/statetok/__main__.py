"""The `statetok` command; it needs click and rich, which the package itself does not."""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn

__all__ = ["main"]


def _leave(number: int, _frame: object) -> NoReturn:
    sys.exit(128 + number)


def _open_standard_streams() -> None:
    """Give each standard stream that the caller closed something that fails when it is used."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            # Standard error is not missed; the others are opened the wrong way round.
            way = os.O_RDONLY if name == "stdout" else os.O_WRONLY
            opened = os.open(os.devnull, way)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, os.fdopen(number, mode))


def main() -> None:
    """Run the command, or name the remedy where the extra `cli` is not installed."""
    _open_standard_streams()
    try:
        from .cli import statetok
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("click", "rich"):
            raise
        sys.exit(f"statetok: the command needs {missing}: pip install 'statetok[cli]'")
    for name in ("SIGTERM", "SIGHUP"):  # as Ctrl-C: unwind, so that no temporary file stays
        number = getattr(signal, name, None)  # Windows has but one
        if number and signal.getsignal(number) is signal.SIG_DFL:  # nohup has its way
            signal.signal(number, _leave)
    try:
        statetok(prog_name="statetok")
    finally:
        try:
            sys.stdout.flush()
        except OSError:  # already reported; what is left would fail again when Python exits
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
