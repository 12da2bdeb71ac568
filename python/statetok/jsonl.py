"""A line of JSON Lines: read strictly, so that nothing comes out other than it went in."""

from __future__ import annotations

import json
import math
import re
import reprlib
from collections import Counter
from typing import Any

__all__ = ["REFUSALS", "list_in", "parsed", "reason", "renamed", "written"]

#: What a bad line raises: no JSON, no ids, or a sequence that the contract refuses.
REFUSALS = (ValueError, TypeError, RecursionError, MemoryError)


def parsed(line: bytes) -> Any:
    """Return the JSON value of a line, refusing what would not come out as it came in."""
    try:
        return _decoder.decode(line.decode())
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: {error.reason} at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg}: column {error.colno}") from None
    except ValueError as error:
        if "integer string conversion" in str(error):  # Python's own words help nobody here
            raise ValueError("an integer has more than 4,300 digits") from None
        raise


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {twice[:40]!r} is there twice in one object")
    return found


def _number(digits: str) -> float:
    number = float(digits)
    vanished = number == 0 and re.search("[1-9]", digits.lower().partition("e")[0])
    if not math.isfinite(number) or vanished:
        raise ValueError(f"the number {digits[:40]} is none that a 64-bit float can hold")
    return number


_decoder = json.JSONDecoder(object_pairs_hook=_object, parse_float=_number, parse_constant=_number)


def list_in(record: Any, field: str) -> Any:
    if isinstance(record, list):
        return record
    if not isinstance(record, dict):
        raise TypeError(f"a line must be a list, or an object with one, not {reprlib.repr(record)}")
    if field not in record:
        keys = ", ".join(repr(key[:20]) for key in list(record)[:5])
        raise ValueError(f"no field {field[:40]!r} in the object; it begins with: {keys or 'none'}")
    return record[field]


def reason(error: Exception) -> str:
    """Return what `error` says, and below it its notes."""
    if isinstance(error, RecursionError):
        text = "nested too deeply"
    elif isinstance(error, MemoryError):
        text = "the result does not fit in memory"
    else:
        text = str(error)
    notes = getattr(error, "__notes__", [])
    if hasattr(error, "row"):  # the last note says it: who shows the error names the place
        notes = notes[:-1]
    return "\n  ".join([text, *notes])


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def written(record: Any) -> bytes:
    """Return a JSON value as a line."""
    # What UTF-8 cannot hold is a lone surrogate in a string: \\udXXX, JSON's escape.
    return _encode(record).encode("utf-8", "backslashreplace") + b"\n"


def renamed(record: dict[str, Any], field: str, to: str) -> dict[str, Any]:
    if to != field and to in record:
        raise ValueError(f"the object has a field {to[:40]!r} already")
    return {to if key == field else key: value for key, value in record.items()}
