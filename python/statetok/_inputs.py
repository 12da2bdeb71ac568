"""What goes in and what comes out: every kind of input, brought down to two plain ones.

A *plain* input is a list of exact ints within 32 bits, or a 1-D integer ndarray that is
contiguous, aligned and in native byte order. The extension reads plain inputs itself and comes
here for every other kind and for every fault; the twin always comes here. So each rule and each
message about arguments stands in one place, and both implementations share it.
"""

from __future__ import annotations

import sys
from operator import index

TYPE_CHECKING = False  # typing's own would take longer to import than all of statetok
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from ._types import Finish, InsertStateBlocks

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1


# -- the numbers of the contract -------------------------------------------------------------


def numbers(
    vocab: object, k: object, eot: object, user: object, assistant: object
) -> tuple[int, int, int, int, int]:
    """Return the five numbers as ints that the header can take, or say which one is wrong."""
    five = (
        _number("vocab", vocab),
        _number("k", k),
        _number("eot", eot),
        _number("user", user),
        _number("assistant", assistant),
    )
    if five[1] > 0 and five[0] + five[1] > INT32_MAX + 1:
        raise ValueError(
            f"vocab + k is {five[0]} + {five[1]}: the last state id, vocab + k - 1, must fit in "
            f"32 bits ({INT32_MAX} at most)"
        )
    return five


def _number(name: str, value: object) -> int:
    number = _as_int(value)
    if number is None:
        remedy = ""
        if isinstance(value, (list, tuple, set, frozenset)):
            remedy = ": one id is needed; of several end ids, the one the chat template writes"
        elif isinstance(value, str):
            remedy = ": look the id of a token's text up in the tokeniser"
        raise TypeError(f"{name} must be an int, not {_described(value)}{remedy}")
    if not INT32_MIN <= number <= INT32_MAX:
        raise ValueError(
            f"{name} is {_shown(number)}: it must fit in 32 bits ({INT32_MIN} .. {INT32_MAX})"
        )
    return number


# -- ids in ----------------------------------------------------------------------------------


def plain(ids: object) -> tuple[Any, Finish]:
    """Return `ids` as a plain input, and what remains to be done to a plain result."""
    from collections.abc import Mapping, Sequence

    # A module that nobody imported has made no object, so none is imported here.
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(ids, numpy.ndarray):
        return _plain_array(ids)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(ids, torch.Tensor):
        return _plain_tensor(ids, torch)

    raw = isinstance(ids, (str, bytes, bytearray)) or (
        isinstance(ids, memoryview) and ids.format in ("B", "b", "c")
    )
    if isinstance(ids, Sequence) and not raw:
        if isinstance(ids, memoryview):
            _check_shape(ids.shape)
        return plain_list(ids), None

    if isinstance(ids, Mapping):
        remedy = 'pass its ids, e.g. batch["input_ids"]'
    elif isinstance(ids, str):
        remedy = "encode text with the tokeniser first"
    elif raw:
        remedy = "read packed ids with numpy.frombuffer(ids, dtype)"
    elif hasattr(ids, "__array__"):
        remedy = "pass numpy.asarray(ids)"
    elif hasattr(ids, "ids"):  # an Encoding of the tokenizers library
        remedy = "pass its .ids"
    elif hasattr(ids, "__iter__"):
        remedy = "pass list(ids), if its order is that of the tokens"
    else:
        remedy = "pass a list"
    raise TypeError(f"ids must be a sequence of ints, not {_described(ids)}: {remedy}")


def plain_list(ids: Iterable[object]) -> list[int]:
    """Return the ids in a new list; what is an exact int already stays the same object."""
    taken = list(ids)  # the whole of it first: an __index__ below may change what it comes from
    out = []
    for position, element in enumerate(taken):
        id = _as_int(element)
        if id is None:
            nested = isinstance(element, (list, tuple)) or hasattr(element, "__array__")
            raise TypeError(
                f"the id at position {position} must be an int, not {_described(element)}"
                + (": pass one sequence at a time" if nested else "")
            )
        if not INT32_MIN <= id <= INT32_MAX:
            raise too_wide(id, position)
        out.append(id)
    return out


def _plain_array(ids: Any) -> tuple[Any, Finish]:
    import numpy

    masked = sys.modules.get("numpy.ma")
    if masked is not None and isinstance(ids, masked.MaskedArray):
        raise TypeError("ids is a masked array: pass ids.compressed() or ids.filled(some_id)")
    ids = numpy.asarray(ids)  # the base class, e.g. of a memmap
    _check_shape(ids.shape)
    dtype = ids.dtype.newbyteorder("=")
    if dtype.kind == "f" and ids.size == 0:  # what numpy.array([]) and torch.tensor([]) are
        return numpy.empty(0, numpy.int32), lambda _: numpy.empty(0, dtype)
    if dtype.kind not in "iu":
        remedy = {
            "b": "was a mask passed in place of ids?",
            "f": "convert with ids.astype('int64') if every id is whole",
            "O": "pass ids.tolist()",
        }.get(dtype.kind, "convert it first")
        raise TypeError(f"ids must have an integer dtype, not {str(dtype)[:80]}: {remedy}")
    return numpy.require(ids, dtype, ["C", "A"]), None


def _plain_tensor(ids: Any, torch: Any) -> tuple[Any, Finish]:
    if ids.device.type != "cpu":
        raise TypeError(f"ids is a tensor on {ids.device}: pass ids.cpu()")
    if ids.layout is not torch.strided:
        raise TypeError(f"ids is a tensor of layout {ids.layout}: pass ids.to_dense()")
    array, finish = _plain_array(ids.detach().numpy())
    return array, lambda result: torch.from_numpy(finish(result) if finish else result)


def _check_shape(shape: tuple[int, ...] | None) -> None:
    if shape is None or len(shape) != 1:
        raise ValueError(f"ids has shape {shape}: pass one sequence, of shape (n,), e.g. one row")


def _as_int(value: object) -> int | None:
    """Return `value` as an exact int; ``None`` if it is no integer. A bool is none."""
    if type(value) is int:
        return value
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        return None
    try:
        return index(value)
    except TypeError:  # e.g. an array of several elements
        return None


# -- ids out ---------------------------------------------------------------------------------


def array_like(out: list[int], given: Any) -> Any:
    """Return `out` as an array of the dtype of `given`, refusing an id that does not fit it."""
    import numpy

    limits = numpy.iinfo(given.dtype)
    for id in out:
        if not limits.min <= id <= limits.max:
            raise does_not_fit(id, given.dtype)
    return numpy.array(out, given.dtype)


def any_input(
    decide: Callable[[list[int], int, int, int, int, int], list[int]],
) -> InsertStateBlocks:
    """Let a function from a plain list to a list take any input and give its kind back."""
    from functools import wraps

    from .errors import StateTokenError, with_likely_cause

    @wraps(decide)
    def insert_state_blocks(
        ids: Any, vocab: int, k: int, eot: int, user: int, assistant: int
    ) -> Any:
        vocab, k, eot, user, assistant = numbers(vocab, k, eot, user, assistant)
        given, finish = plain(ids)
        given_list = isinstance(given, list)
        values = given if given_list else plain_list(given.tolist())
        try:
            out = decide(values, vocab, k, eot, user, assistant)
        except StateTokenError as error:
            with_likely_cause(error, vocab, k)
            raise
        result = out if given_list else array_like(out, given)
        return finish(result) if finish else result

    return insert_state_blocks


# -- faults and their words ------------------------------------------------------------------


def too_wide(id: int, position: int) -> ValueError:
    error = ValueError(
        f"the id at position {position} is {_shown(id)}: an id must fit in 32 bits "
        f"({INT32_MIN} .. {INT32_MAX})"
    )
    if 2**32 <= id < 2**63:
        error.add_note(
            f"Its two halves are {id & 0xFFFFFFFF} and {id >> 32}: "
            "were 32-bit ids read as 64-bit ones?"
        )
    return error


def does_not_fit(id: int, dtype: object) -> ValueError:
    return ValueError(
        f"id {id} must be written and does not fit the dtype of ids, {dtype}: "
        "pass ids.astype('int32')"
    )


def _shown(number: int) -> str:
    """Return the digits of `number`, or its size where they would fill the screen."""
    bits = number.bit_length()
    return str(number) if bits <= 128 else f"an integer of {bits} bits"


def _described(value: object) -> str:
    """Return the type of `value`, and the value itself where it is short and safe to show."""
    kind = type(value).__name__[:80]
    if value is None:
        return "None"
    if isinstance(value, bool):
        return f"{value} ({kind})"
    if isinstance(value, float):
        return f"{float.__repr__(value)} ({kind})"
    if isinstance(value, str):
        return f"{str.__str__(value)[:40]!r} ({kind})"
    return kind
