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
    from typing import Any, TypeGuard

    from ._types import Finish, InsertStateBlocks

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1


def arguments(
    ids: object, vocab: object, k: object, eot: object, user: object, assistant: object
) -> tuple[object, ...]:
    """Sort out the arguments of a call that is not six positional ones."""
    return ids, vocab, k, eot, user, assistant


arguments.__qualname__ = "insert_state_blocks"  # which is what an error should name


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
    number = as_int(value)
    if number is None:
        remedy = ""
        if name in ("eot", "user", "assistant"):
            if isinstance(value, str):
                remedy = ": look the id of a token's text up in the tokeniser"
            elif hasattr(value, "__len__"):
                remedy = ": one id is needed; of several end ids, the one the chat template writes"
        raise TypeError(f"{name} must be an int, not {described(value)}{remedy}")
    if not INT32_MIN <= number <= INT32_MAX:
        raise ValueError(
            f"{name} is {_shown(number)}: it must fit in 32 bits ({INT32_MIN} .. {INT32_MAX})"
        )
    return number


# -- ids in ----------------------------------------------------------------------------------


def plain(ids: object) -> tuple[Any, Finish]:
    """Return `ids` as a plain input, and what remains to be done to a plain result."""
    from collections.abc import Sequence

    if isinstance(ids, (list, tuple, range)):
        return plain_list(ids), None
    if isinstance(ids, _class("numpy", "ndarray")):
        return _plain_array(ids)
    if is_tensor(ids):
        return _plain_tensor(ids)
    if isinstance(ids, memoryview):
        if ids.format not in tuple("hHiIlLqQnN"):
            raise _no_sequence(ids)
        _check_shape(ids.shape)
        return plain_list(ids), None
    if isinstance(ids, Sequence) and not isinstance(ids, (str, bytes, bytearray)):
        return plain_list(ids), None
    raise _no_sequence(ids)


def _class(module: str, name: str) -> Any:
    """Return a class of a module that is imported; no class (``()``) if it is not.

    What nobody imported has made no object, and an import may be under way in another thread.
    """
    found = getattr(sys.modules.get(module), name, None)
    return found if isinstance(found, type) else ()


def is_tensor(value: object) -> TypeGuard[Any]:
    return isinstance(value, _class("torch", "Tensor"))


def plain_list(ids: Iterable[object]) -> list[int]:
    """Return the ids in a new list; what is an exact int already stays the same object."""
    taken = list(ids)  # the whole of it first: an __index__ below may change what it comes from
    out = []
    for position, element in enumerate(taken):
        try:
            id = as_int(element)
        except Exception as error:  # its own __index__ raised it
            error.add_note(f"This is from the id at position {position}.")
            raise
        if id is None:
            nested = isinstance(element, (list, tuple)) or getattr(element, "ndim", 0) != 0
            raise TypeError(
                f"the id at position {position} must be an int, not {described(element)}"
                + (": pass one sequence at a time" if nested else "")
            )
        if not INT32_MIN <= id <= INT32_MAX:
            raise too_wide(id, position)
        out.append(id)
    return out


def _plain_array(ids: Any) -> tuple[Any, Finish]:
    import numpy

    if isinstance(ids, _class("numpy.ma", "MaskedArray")):
        raise TypeError("ids is a masked array: pass ids.compressed() or ids.filled(some_id)")
    ids = numpy.asarray(ids)  # the base class, e.g. of a memmap
    _check_shape(ids.shape)
    kind = ids.dtype.kind
    if kind == "f" and ids.size == 0:  # what numpy.array([]) is
        dtype = ids.dtype.newbyteorder("=")
        return numpy.empty(0, numpy.int32), lambda _: numpy.empty(0, dtype)
    if kind not in "iu":
        remedy = {
            "b": "was a mask passed in place of ids?",
            "f": "convert with ids.astype('int64') if every id is whole",
            "O": "pass ids.tolist()",
        }.get(kind, "convert it first")
        raise TypeError(f"ids must have an integer dtype, not {clipped(str(ids.dtype))}: {remedy}")
    return numpy.require(ids, ids.dtype.newbyteorder("="), ["C", "A"]), None


def _plain_tensor(ids: Any) -> tuple[Any, Finish]:
    import numpy

    torch: Any = sys.modules["torch"]
    if ids.device.type != "cpu":
        raise TypeError(f"ids is a tensor on {ids.device}: pass ids.cpu()")
    _check_shape(tuple(ids.shape))  # before the layout: a nested tensor has no to_dense()
    if ids.layout is not torch.strided:
        raise TypeError(f"ids is a tensor of layout {ids.layout}: pass ids.to_dense()")
    # Checked here and not as an array: numpy has no bfloat16, and a tensor has no astype().
    if ids.dtype.is_floating_point and ids.numel() == 0:  # what torch.tensor([]) is
        return numpy.empty(0, numpy.int32), lambda _: ids.new_empty(0)
    if not str(ids.dtype).startswith(("torch.int", "torch.uint")):
        remedy = "convert with ids.to(torch.int64) if every id is whole"
        if ids.dtype is torch.bool:
            remedy = "was a mask passed in place of ids?"
        raise TypeError(f"ids must have an integer dtype, not {ids.dtype}: {remedy}")
    array, _ = _plain_array(ids.numpy(force=True))  # by force: also one that is lazily negated
    return array, torch.from_numpy


def _no_sequence(ids: object) -> TypeError:
    from collections.abc import Mapping

    if isinstance(ids, Mapping):
        remedy = 'pass its ids, e.g. batch["input_ids"]'
    elif isinstance(ids, str):
        remedy = "encode text with the tokeniser first"
    elif isinstance(ids, (bytes, bytearray, memoryview)):
        remedy = "read packed ids with numpy.frombuffer(ids, dtype)"
    elif hasattr(ids, "__array__") and getattr(ids, "ndim", 1) != 0:
        remedy = "pass numpy.asarray(ids)"
    elif hasattr(ids, "ids"):  # an Encoding of the tokenizers library
        remedy = "pass its .ids"
    elif hasattr(ids, "__iter__"):
        remedy = "pass list(ids), if its order is that of the tokens"
    else:
        remedy = "pass a list"
    return TypeError(f"ids must be a sequence of ints, not {described(ids)}: {remedy}")


def _check_shape(shape: tuple[int, ...] | None) -> None:
    if shape is None or len(shape) != 1:
        raise ValueError(
            f"ids has shape {clipped(str(shape))}: pass one sequence, of shape (n,), e.g. one row"
        )


def as_int(value: object) -> int | None:
    """Return `value` as an exact int; ``None`` if it is no single integer. A bool is none."""
    if type(value) is int:
        return value
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        return None
    if is_tensor(value):
        # Its own __index__ takes True for 1, and a row of one id for that id.
        item = value.item() if value.ndim == 0 and not value.is_meta else None
        return item if type(item) is int else None
    if getattr(value, "ndim", 0) != 0 or isinstance(value, _class("numpy", "bool_")):
        return None  # numpy 1 gives an __index__ to both
    try:
        return index(value)
    except TypeError:
        if hasattr(value, "dtype"):  # an array of no dimension, of floats
            return None
        raise


def check_32_bits(array: Any) -> None:
    """Refuse a plain array with an id that needs more than 32 bits."""
    wide = (array < INT32_MIN) | (array > INT32_MAX)
    if wide.any():
        position = int(wide.argmax())
        raise too_wide(int(array[position]), position)


# -- many sequences --------------------------------------------------------------------------


def plain_offsets(offsets: object, size: int) -> Any:
    """Return the offsets of rows that make up `size` ids as a plain array, or refuse them."""
    import numpy

    if not isinstance(offsets, numpy.ndarray) or isinstance(
        offsets, _class("numpy.ma", "MaskedArray")
    ):
        raise TypeError(
            f"offsets must be an array of int32 or int64, not {described(offsets)}: "
            "pass numpy.asarray(offsets)"
        )
    offsets = numpy.asarray(offsets)  # the base class
    if offsets.dtype.kind != "i" or offsets.itemsize < 4:
        raise TypeError(
            f"offsets must be of int32 or int64, not {clipped(str(offsets.dtype))}: "
            "pass offsets.astype('int64')"
        )
    if offsets.ndim != 1 or offsets.size == 0:
        raise ValueError(
            f"offsets has shape {clipped(str(offsets.shape))}: n rows have n + 1 of them"
        )
    decreases = offsets[1:] < offsets[:-1]
    if decreases.any():
        at = int(decreases.argmax())
        raise ValueError(
            f"offsets decrease from {offsets[at]} at position {at} to {offsets[at + 1]}: "
            "a row cannot end before it begins"
        )
    if (offsets[0], offsets[-1]) != (0, size):
        raise ValueError(
            f"offsets go from {offsets[0]} to {offsets[-1]}, and the ids from 0 to {size}: "
            "both must be the same, or ids would be lost"
        )
    return numpy.require(offsets, offsets.dtype.newbyteorder("="), ["C", "A"])


def thread_count(threads: object) -> int:
    """Return how many threads to use at most: for ``None`` one for each core there is for us."""
    import os

    if threads is None:
        affinity = getattr(os, "sched_getaffinity", None)  # not on every system
        return len(affinity(0)) if affinity else os.cpu_count() or 1
    number = as_int(threads)
    if number is None:
        raise TypeError(f"threads must be an int or None, not {described(threads)}")
    if number < 1:
        raise ValueError(f"threads is {_shown(number)}: it must be at least 1, or None")
    return min(number, 1024)  # more than any machine has cores would only cost memory


# -- ids out ---------------------------------------------------------------------------------


def array_like(out: Any, given: Any) -> Any:
    """Return `out` as an array of the dtype of `given`, refusing an id that does not fit it."""
    import numpy

    out = numpy.asarray(out, numpy.int64 if isinstance(out, list) else None)
    limits = numpy.iinfo(given.dtype)
    wrong = (out < limits.min) | (out > limits.max)
    if wrong.any():
        raise does_not_fit(int(out[wrong.argmax()]), given.dtype)
    return out.astype(given.dtype)


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
        is_list = isinstance(given, list)
        if not is_list:
            check_32_bits(given)
        values = given if is_list else given.tolist()
        try:
            out = decide(values, vocab, k, eot, user, assistant)
        except StateTokenError as error:
            with_likely_cause(error, vocab, k)
            raise
        result = out if is_list else array_like(out, given)
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
        "convert ids to int32 first"
    )


def too_many(ids: int, dtype: object) -> ValueError:
    return ValueError(
        f"the result has {ids} ids, which do not fit offsets of dtype {dtype}: "
        "pass offsets.astype('int64')"
    )


def in_row(error: Exception, row: int) -> Exception:
    """Say which of several sequences `error` is about, as its ``row`` and in a note."""
    error.row = row  # type: ignore[attr-defined]
    error.add_note(f"This is about row {row}.")
    return error


def _shown(number: int) -> str:
    """Return the digits of `number`, or its size where they would fill the screen."""
    bits = number.bit_length()
    return str(number) if bits <= 128 else f"an integer of {bits} bits"


def clipped(text: str, length: int = 60) -> str:
    """Return `text` with nothing in it but printable ASCII, and not more of it than `length`."""
    return ascii(text[:length])[1:-1][:length]


def described(value: object) -> str:
    """Return the type of `value`, and the value itself where it is a number or a text."""
    from numbers import Number

    if value is None:
        return "None"
    kind = clipped(type.__dict__["__name__"].__get__(type(value)))
    if isinstance(value, (str, bytes)):
        return f"'{clipped(str(value[:40]))}' ({kind})"
    if is_tensor(value):
        return f"{kind} of {value.dtype}"
    if isinstance(value, Number) or (hasattr(value, "dtype") and getattr(value, "ndim", 1) == 0):
        try:
            return f"{clipped(str(value))} ({kind})"
        except Exception:  # whatever the object has against it, its type is what matters
            return kind
    return kind
