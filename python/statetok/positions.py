"""What stands where: the sources of inserted ids, the turns, the assistant mask.

All of it is derived from what the header answers and from where the control ids are.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar

from ._inputs import described, is_tensor
from .errors import StateTokenError

if TYPE_CHECKING:
    from .contract import StateTokens

__all__ = ["Insertion", "Turn"]

Ids = TypeVar("Ids")


# -- sources ---------------------------------------------------------------------------------


class Insertion(NamedTuple, Generic[Ids]):
    """What `StateTokens.insert_with_sources` returns: the ids, and where each comes from.

    Attributes
    ----------
    ids : list of int, ndarray or tensor, shape (m,)
        What `StateTokens.insert` returns.
    sources : list of int, ndarray or tensor of int64, shape (m,)
        The position in the input of each id; -1 for one that was inserted.
    """

    ids: Ids
    sources: Any

    def carry(self, values: Any, fill: Any) -> Any:
        """Bring values that stand beside the given ids in line with the new ids.

        Parameters
        ----------
        values : sequence, ndarray or tensor, shape (n, ...)
            One value for each id that was given: labels, an attention mask, log-probabilities.
        fill : scalar
            The value for ids that were inserted, e.g. -100 in labels.

        Returns
        -------
        list, ndarray or tensor, shape (m, ...)
            For an array or tensor a new one of the same dtype, else a list.

        Raises
        ------
        ValueError
            If there is not one value for each id, or the dtype cannot hold `fill`.
        TypeError
            If `values` is no sequence, or `fill` is not one value.
        """
        if getattr(fill, "ndim", 0) != 0 or isinstance(fill, (list, tuple)):
            raise TypeError(f"fill must be one value, not {described(fill)}")
        if is_tensor(values):
            torch: Any = sys.modules["torch"]
            sources = torch.as_tensor(self.sources, device="cpu")
            filled = values.new_empty((), device="cpu")
            exact = not (filled.is_floating_point() or filled.is_complex())
        elif hasattr(values, "__array__"):
            import numpy

            if not isinstance(values, numpy.ndarray):
                values = numpy.asarray(values)
            sources = numpy.asarray(self.sources, numpy.int64)
            filled = numpy.empty((), values.dtype)
            exact = filled.dtype.kind in "iub"
        elif isinstance(values, (str, bytes, dict)) or not hasattr(values, "__getitem__"):
            raise TypeError(f"values must be a sequence, not {described(values)}")
        else:
            places = [int(source) for source in self.sources]
            self._check(len(values), sum(place >= 0 for place in places))
            return [values[place] if place >= 0 else fill for place in places]
        self._check(values.shape[0] if values.ndim else 0, int((sources >= 0).sum()))
        try:
            filled[...] = fill
        except (OverflowError, RuntimeError):
            exact = True
        if exact and filled.item() != fill:
            raise ValueError(f"fill is {described(fill)}: values of {values.dtype} cannot hold it")
        inserted = (sources < 0).nonzero()
        if is_tensor(values):
            sources, filled = sources.to(values.device), filled.to(values.device)
            inserted = inserted.flatten().to(values.device)
        out = values[sources]  # of an id that was inserted the last value, for now
        out[inserted] = filled
        return out

    @staticmethod
    def _check(values: int, ids: int) -> None:
        if values != ids:
            raise ValueError(f"there are {values} values and {ids} ids: each id needs one value")


def sources_of(edits: list[tuple[int, int]], given: Any, result: Any) -> Any:
    """Return for every id of a result its position in the plain input; -1 if it was inserted."""
    if isinstance(given, list):
        sources: list[int] = []
        begin = 0
        for before, count in edits:
            sources += range(begin, before)
            sources += [-1] * count
            begin = before
        sources += range(begin, len(given))
        return sources
    import numpy

    befores, counts = numpy.array(edits, numpy.int64).reshape(-1, 2).T
    array = numpy.insert(numpy.arange(given.size), numpy.repeat(befores, counts), -1)
    return sys.modules["torch"].from_numpy(array) if is_tensor(result) else array


# -- what lacks a block ----------------------------------------------------------------------


def missing(edits: list[tuple[int, int]], k: int) -> StateTokenError | None:
    """Return an error about the first of the edits, which a complete sequence has none of."""
    if not edits:
        return None
    before, count = edits[0]
    if count == k:
        text = "the state block after the <|endoftext|> at position {} is missing"
        position = before - 1
    else:
        text = (
            "the reply before the <|user|> at position {} lacks its <|endoftext|> and state block"
        )
        position = before
    return StateTokenError(text.format(position), position)


# -- turns -----------------------------------------------------------------------------------


class Turn(NamedTuple):
    """One turn of a conversation: ``ids[start:stop]``.

    Attributes
    ----------
    role : "user", "assistant" or None
        Whose it is. A user's turn begins at a `user`; the reply at the first `assistant` behind
        it, and it ends with its eot and the state ids that follow. ``None``: ids of no exchange,
        e.g. a system text in front of the first user.
    start, stop : int
        Its place. Turns follow each other without a gap.
    closed : bool
        Whether it came to its end: a user's turn has a reply, a reply has its eot.
    """

    role: Literal["user", "assistant"] | None
    start: int
    stop: int
    closed: bool


# A user, the assistant that begins its reply (others behind it are text), an eot with its block.
_EXCHANGE = re.compile("U(A+)?(ES*)?")


def turns(ids: Any, contract: StateTokens) -> Iterator[Turn]:
    """Yield the turns of a plain input that the contract allows."""
    places = control_positions(ids, contract)
    letter = {contract.user: "U", contract.assistant: "A", contract.eot: "E"}
    letters = "".join(letter.get(int(ids[place]), "S") for place in places)
    places.append(len(ids))
    at = 0
    for exchange in _EXCHANGE.finditer(letters):
        start = places[exchange.start()]
        if at < start:
            yield Turn(None, at, start, False)
        reply, end = exchange.start(1), exchange.start(2)
        at = places[exchange.end()] if end < 0 else places[exchange.end() - 1] + 1
        if reply < 0:
            yield Turn("user", start, at, False)
        else:
            yield Turn("user", start, places[reply], True)
            yield Turn("assistant", places[reply], at, end >= 0)
    if at < len(ids):
        yield Turn(None, at, len(ids), False)


def control_positions(ids: Any, contract: StateTokens) -> list[int]:
    """Return where control ids and state ids are in a plain input."""
    vocab, _, eot, user, assistant = contract.numbers
    if isinstance(ids, list):
        controls = (eot, user, assistant)
        return [place for place, id in enumerate(ids) if id >= vocab or id in controls]
    found = (ids >= vocab) | (ids == eot) | (ids == user) | (ids == assistant)
    positions: list[int] = found.nonzero()[0].tolist()
    return positions


def mask_of_rows(values: Any, offsets: Any, contract: StateTokens) -> Any:
    """Return the assistant mask of inserted rows that lie one after the other in one array."""
    import numpy

    marks = numpy.zeros(values.size + 1, numpy.int8)
    starts, stops = replies_of_rows(values, offsets, contract)
    marks[starts] += 1
    marks[stops] -= 1  # another statement: a reply without an id stops where it starts
    return numpy.cumsum(marks[:-1], dtype=numpy.int8).view(bool)


def replies_of_rows(values: Any, offsets: Any, contract: StateTokens) -> tuple[Any, Any]:
    """Return where the ids of each reply start and stop, its eot among them, as `turns` has it."""
    import numpy

    places = (values == contract.user) | (values == contract.assistant) | (values == contract.eot)
    at = numpy.append(numpy.flatnonzero(places), values.size)
    kind = values[at[:-1]]
    row = numpy.append(numpy.searchsorted(offsets, at[:-1], "right"), offsets.size)
    text = kind == contract.assistant  # unless it opens a reply
    opens = numpy.zeros(kind.size, bool)
    opens[1:] = text[1:] & (kind[:-1] == contract.user) & (row[1:-1] == row[:-2])
    # A reply goes up to the next other control id: in its row, else to the end of the row.
    following = numpy.append(numpy.where(text, kind.size, numpy.arange(kind.size)), kind.size)
    following = numpy.minimum.accumulate(following[::-1])[::-1]
    opening = numpy.flatnonzero(opens)
    end = following[opening]
    kind = numpy.append(kind, contract.user)
    inside = row[end] == row[opening]
    stops = numpy.where(inside, at[end] + (kind[end] == contract.eot), offsets[row[opening]])
    return at[opening] + 1, stops
