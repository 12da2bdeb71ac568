"""The header in Python: src/state_tokens.h, line by line, to be read beside it.

The twin proves the build. It is as slow as it is plain, and both must answer alike: the same
ids, or the same refusal in the same words.
"""

from __future__ import annotations

from ._inputs import any_input, in_row, numbers, too_many
from .errors import StateTokenError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = [
    "HEADER_SHA256",
    "StreamBase",
    "bind",
    "insert_ragged",
    "insert_state_blocks",
    "insert_with_edits",
]

#: SHA-256 of the header that this module was written beside.
HEADER_SHA256 = "e6262c39c2609c8eed129c2204dcefb0cbdf9065e5c05f89ecc1cf5003647fff"

NONE, USER, REPLY = range(3)


@any_input
def insert_state_blocks(
    ids: list[int], vocab: int, k: int, eot: int, user: int, assistant: int
) -> list[int]:
    """Insert the state blocks that the engine inserts.

    After every `eot` that closes an exchange come the ids ``vocab .. vocab + k - 1``. A reply
    met by a new `user` without an `eot` gets `eot` and the block first. A complete block that
    is there already is kept. ``src/state_tokens.h`` decides; nothing is checked beyond what it
    checks.

    Parameters
    ----------
    ids : sequence of int, integer ndarray or CPU tensor, shape (n,)
        One sequence of token ids, each within 32 bits. It is not changed.
    vocab : int
        Number of ids the tokeniser can produce; state ids start here.
    k : int
        Number of state tokens after an exchange; with 0 or less, nothing is inserted.
    eot, user, assistant : int
        The ids of ``<|endoftext|>``, ``<|user|>`` and ``<|assistant|>``.

    Returns
    -------
    list of int, ndarray or tensor, shape (m,), m >= n
        A list for a list (ids that were given are the same objects) and for any other
        sequence; a new array or tensor of the same dtype for an array or tensor.

    Raises
    ------
    StateTokenError
        If an id is not allowed where it stands; ``error.position`` is its index.
    ValueError
        If an id, a number of the contract or ``vocab + k`` does not fit 32 bits, an array is
        not one-dimensional, or an id to be written does not fit its dtype.
    TypeError
        If `ids` is no sequence of ints, or a number of the contract is no int.
    MemoryError
        If the result does not fit in memory.
    """
    if k <= 0:
        for i, id in enumerate(ids):
            if id >= vocab:
                raise StateTokenError(
                    f"token id {id} at position {i} is past the vocabulary ({vocab}) "
                    "and the model has no state tokens",
                    i,
                )
        return ids
    out = []
    block = range(vocab, vocab + k)
    phase = NONE
    n = len(ids)
    i = 0
    while i < n:
        id = ids[i]
        if id < 0:
            raise StateTokenError(f"token id {id} at position {i} is negative", i)
        if id >= vocab:
            raise StateTokenError(
                f"state id {id} at position {i} is not part of a complete state block directly "
                "after an <|endoftext|> that ends an assistant reply",
                i,
            )
        if id == user:
            if phase == REPLY:  # the reply stopped early: close it as training does
                out.append(eot)
                out.extend(block)
            phase = USER
            out.append(id)
        elif id == assistant:
            if phase == USER:
                phase = REPLY
            out.append(id)
        elif id == eot:
            closes = phase == REPLY
            phase = NONE
            out.append(id)
            if closes:
                if i + 1 < n and ids[i + 1] >= vocab:  # a block given with the ids
                    for j in range(k):
                        if i + 1 + j >= n or ids[i + 1 + j] != vocab + j:
                            raise StateTokenError(
                                f"the state block after the <|endoftext|> at position {i} is not "
                                f"the {k} ids {vocab} .. {vocab + k - 1} in order",
                                i,
                            )
                    out.extend(ids[i + 1 : i + 1 + k])  # the block, as the given objects
                    i += k
                else:
                    out.extend(block)
        else:
            out.append(id)
        i += 1
    return out


# -- as the extension has them beside it -----------------------------------------------------


def bind(vocab: int, k: int, eot: int, user: int, assistant: int) -> Callable[[Any], Any]:
    """Return a function of the ids alone: `insert_state_blocks`, bound."""
    five = numbers(vocab, k, eot, user, assistant)

    def insert(ids: Any) -> Any:
        return insert_state_blocks(ids, *five)

    return insert


def insert_with_edits(
    ids: Any, vocab: int, k: int, eot: int, user: int, assistant: int
) -> tuple[Any, list[tuple[int, int]]]:
    """Insert into a plain input; also return where, as (before, count) for each place."""
    out = insert_state_blocks(ids, vocab, k, eot, user, assistant)
    edits = []
    position = at = 0  # in ids and in out: insertion only adds, so one walk finds where
    while at < len(out):
        begin = at
        while at < len(out) and (position == len(ids) or out[at] != ids[position]):
            at += 1
        if at > begin:
            edits.append((position, at - begin))
        else:
            position += 1
            at += 1
    return out, edits


def insert_ragged(
    values: Any,
    offsets: Any,
    vocab: int,
    k: int,
    eot: int,
    user: int,
    assistant: int,
    threads: int,
    sources: bool,
) -> tuple[Any, Any, Any]:
    """Rows of plain arrays, one after the other; see `StateTokens.insert_ragged`."""
    from itertools import pairwise

    import numpy

    rows = [values[:0]]
    places = [numpy.empty(0, numpy.int64)]
    ends = [0]
    for row, (begin, end) in enumerate(pairwise(offsets)):
        given = values[begin:end]
        try:
            out, edits = insert_with_edits(given, vocab, k, eot, user, assistant)
        except ValueError as error:
            in_row(error, row)
            raise
        rows.append(out)
        if sources:
            before = [place for place, count in edits for _ in range(count)]
            places.append(numpy.insert(numpy.arange(begin, end), before, -1))
        ends.append(ends[-1] + out.size)
    if ends[-1] > numpy.iinfo(offsets.dtype).max:
        raise too_many(ends[-1], offsets.dtype)
    found = numpy.concatenate(places) if sources else None
    return numpy.concatenate(rows), numpy.array(ends, offsets.dtype), found


class StreamBase:
    """What of a `Stream` must be fast: an id of text."""

    __slots__ = ("_assistant", "_eot", "_position", "_text_below", "_user")

    _text_below: int
    _eot: int
    _user: int
    _assistant: int
    _position: int
    _push: Callable[[Any], Any]  # the slow way, of `Stream`

    def push(self, ids: Any, /) -> Any:
        """Take the next ids of the sequence, and return what to append for them.

        Parameters
        ----------
        ids : int, or sequence of int, integer ndarray or CPU tensor, shape (n,)
            The next ids: those of a prompt, the one that was sampled, a history.

        Returns
        -------
        list of int, ndarray or tensor, shape (m,)
            The ids to append to the sequence and to feed to the model, in order: a list for an
            int, a list or another sequence, else of the kind and dtype that was given. It is
            shorter than `ids` where they hold a block that was returned already.

        Raises
        ------
        StateTokenError
            If an id is not allowed where it stands; ``error.position`` is its index in all that
            was pushed.
        ValueError, TypeError, MemoryError
            As `StateTokens.insert` raises them; positions are those in all that was pushed.
        """
        controls = self._eot, self._user, self._assistant
        if type(ids) is int and 0 <= ids < self._text_below and ids not in controls:
            self._position += 1
            return [ids]
        return self._push(ids)
