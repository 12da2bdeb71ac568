"""The contract as an object: the five numbers, and what follows from them."""

from __future__ import annotations

from ._implementation import bind, insert_ragged
from ._inputs import (
    as_int,
    check_32_bits,
    clipped,
    described,
    in_row,
    numbers,
    plain,
    plain_offsets,
    thread_count,
)
from .errors import StateTokenError, with_likely_cause

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any, NoReturn, Self, overload

    from numpy.typing import NDArray

    from ._types import Int, Offset, TensorT

__all__ = ["StateTokens"]

_FIELDS = ("vocab", "k", "eot", "user", "assistant")


class StateTokens:
    """The state-token contract of one model: five numbers that do not change.

    Unlike `insert_state_blocks`, which takes what the header takes, this refuses numbers that
    can belong to no model.

    Parameters
    ----------
    vocab : int
        Number of ids the tokeniser can produce, added tokens counted; at least 1. State ids
        start here.
    k : int
        Number of state tokens after an exchange; 0 for a model without any.
    eot, user, assistant : int
        The ids of ``<|endoftext|>``, ``<|user|>`` and ``<|assistant|>``: three different ones,
        from 0 up to ``vocab - 1``.

    Raises
    ------
    ValueError
        If a number is out of its range, two control ids are the same, or ``vocab + k`` is more
        than ``2**31``.
    TypeError
        If a number is no int.

    Examples
    --------
    >>> st = StateTokens(vocab=100, k=2, eot=0, user=1, assistant=2)
    >>> st.insert([1, 50, 2, 51, 0])
    [1, 50, 2, 51, 0, 100, 101]
    """

    __slots__ = (*_FIELDS, "__weakref__", "_insert")

    vocab: int
    k: int
    eot: int
    user: int
    assistant: int
    _insert: Callable[[Any], Any]

    # Not __init__: that can be called again, and would change what cannot change.
    def __new__(cls, vocab: int, k: int, eot: int, user: int, assistant: int) -> Self:
        five = vocab, k, eot, user, assistant = numbers(vocab, k, eot, user, assistant)
        if vocab < 1:
            raise ValueError(f"vocab is {vocab}: it must be at least 1")
        if k < 0:
            raise ValueError(f"k is {k}: it must be at least 0")
        for name, id in zip(_FIELDS[2:], five[2:], strict=True):
            if not 0 <= id < vocab:
                raise ValueError(f"{name} is {id}: it must be an id from 0 to {vocab - 1}")
        if len({eot, user, assistant}) < 3:
            raise ValueError(
                "eot, user and assistant must be three different ids, "
                f"not {eot}, {user} and {assistant}"
            )
        self = super().__new__(cls)
        for name, number in zip(_FIELDS, five, strict=True):
            object.__setattr__(self, name, number)
        object.__setattr__(self, "_insert", bind(*five))
        return self

    def _frozen(self, *_: object) -> NoReturn:
        raise AttributeError("StateTokens cannot be changed; make a new one")

    __setattr__ = _frozen
    __delattr__ = _frozen

    def _numbers(self) -> tuple[int, int, int, int, int]:
        return self.vocab, self.k, self.eot, self.user, self.assistant

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StateTokens):
            return NotImplemented
        return self._numbers() == other._numbers()

    def __hash__(self) -> int:
        return hash(self._numbers())

    def __reduce__(self) -> tuple[type[Self], tuple[int, int, int, int, int]]:
        return type(self), self._numbers()

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)}" for name in _FIELDS)
        return f"{type(self).__name__}({shown})"

    # -- as JSON -----------------------------------------------------------------------------

    def to_json(self) -> str:
        """Return the five numbers as a JSON object, for a file beside the model."""
        import json

        return json.dumps({name: getattr(self, name) for name in _FIELDS})

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Make a contract from what `to_json` wrote.

        Parameters
        ----------
        text : str or bytes
            A JSON object with exactly the five numbers.

        Raises
        ------
        ValueError
            If the text is no JSON, a number is missing, there twice or out of its range, or
            there is another field.
        TypeError
            If a value is no int.
        """
        import json

        # An object as a tuple of its pairs, which JSON has no other use for: a dict would hide a
        # field that is there twice.
        try:
            found = json.loads(text, object_pairs_hook=tuple)
        except RecursionError:
            raise ValueError("a contract is a JSON object of numbers; this is nested") from None
        if not isinstance(found, tuple):
            raise ValueError(f"a contract is a JSON object, not {described(found)}")
        names = [name for name, _ in found]
        if sorted(names) != sorted(_FIELDS):
            shown = ", ".join(clipped(name, 20) for name in names[:10]) or "none"
            raise ValueError(
                f"a contract has the fields {', '.join(_FIELDS)}, once each; found: {shown}"
            )
        return cls(**dict(found))

    # -- state ids ---------------------------------------------------------------------------

    @property
    def state_ids(self) -> range:
        """The ids of one block in order: ``range(vocab, vocab + k)``."""
        return range(self.vocab, self.vocab + self.k)

    def is_state_id(self, id: int) -> bool:
        """Say whether `id` is a state id, which no tokeniser produces or decodes."""
        number = as_int(id)
        if number is None:
            raise TypeError(f"an id must be an int, not {described(id)}")
        return number in self.state_ids

    # -- sequences ---------------------------------------------------------------------------

    if TYPE_CHECKING:

        @overload
        def insert(self, ids: NDArray[Int]) -> NDArray[Int]: ...
        @overload
        def insert(self, ids: TensorT) -> TensorT: ...
        @overload
        def insert(self, ids: Sequence[int]) -> list[int]: ...

    def insert(self, ids: Any) -> Any:
        """Insert the state blocks that the engine inserts: `insert_state_blocks`, bound.

        Parameters
        ----------
        ids : sequence of int, integer ndarray or CPU tensor, shape (n,)
            One sequence of token ids. It is not changed.

        Returns
        -------
        list of int, ndarray or tensor, shape (m,), m >= n
            As `insert_state_blocks` returns it.

        Raises
        ------
        StateTokenError, ValueError, TypeError, MemoryError
            As `insert_state_blocks` raises them.
        """
        return self._insert(ids)

    def insert_batch(self, sequences: Iterable[Any]) -> list[Any]:
        """Insert into each of several sequences.

        Parameters
        ----------
        sequences : iterable of what `insert` takes
            They may be of different kinds.

        Returns
        -------
        list
            What `insert` returns for each, in the same order.

        Raises
        ------
        StateTokenError, ValueError, TypeError
            As `insert` raises them, for the first sequence that is refused; ``error.row`` is its
            index.
        MemoryError
            If the results do not fit in memory.
        """
        results = []
        for row, ids in enumerate(sequences):
            try:
                results.append(self._insert(ids))
            except (TypeError, ValueError) as error:
                in_row(error, row)
                raise
        return results

    def insert_ragged(
        self, values: NDArray[Int], offsets: NDArray[Offset], *, threads: int | None = None
    ) -> tuple[NDArray[Int], NDArray[Offset]]:
        """Insert into many sequences that lie one after the other in one array.

        The rows are worked on in threads, without the interpreter's lock. The result does not
        depend on how many there are. Neither array may be written to meanwhile.

        Parameters
        ----------
        values : integer ndarray, shape (n,)
            The ids of all rows.
        offsets : ndarray of int32 or int64, shape (rows + 1,)
            Row i is ``values[offsets[i]:offsets[i + 1]]``. The first offset is 0, the last n.
        threads : int, optional
            How many threads to use at most, this one included. By default one for each core that
            the process may use.

        Returns
        -------
        values : ndarray, shape (m,), m >= n
            The ids of all rows with their state blocks, of the same dtype.
        offsets : ndarray, shape (rows + 1,)
            Where the rows are now, of the same dtype.

        Raises
        ------
        StateTokenError
            If an id is not allowed where it stands. Of all such rows it is the first one:
            ``error.row`` is its index, ``error.position`` the index in it.
        ValueError
            As `insert` raises it for the values, with ``error.row`` where it is about one; if the
            offsets decrease or do not cover the values, or the new ones do not fit their dtype.
        TypeError
            If `values` or `offsets` is no array of the right dtype.
        RuntimeError
            If another thread changed the offsets meanwhile.
        MemoryError
            If the result does not fit in memory.
        """
        shape = getattr(values, "shape", None)
        if not isinstance(shape, tuple):
            raise TypeError(
                f"values must be an array, not {described(values)}: insert_batch takes sequences "
                "of every kind"
            )
        if len(shape) != 1:
            raise ValueError(
                f"values has shape {clipped(str(shape))}: pass the ids of all rows one after the "
                "other, e.g. values.ravel()"
            )
        given, finish = plain(values)
        if isinstance(given, list) or finish:
            raise TypeError(f"values must be an integer array, not {described(values)}")
        new_values, new_offsets = insert_ragged(
            given, plain_offsets(offsets, given.size), *self._numbers(), thread_count(threads)
        )
        return new_values, new_offsets

    if TYPE_CHECKING:

        @overload
        def strip(self, ids: NDArray[Int]) -> NDArray[Int]: ...
        @overload
        def strip(self, ids: TensorT) -> TensorT: ...
        @overload
        def strip(self, ids: Sequence[int]) -> list[int]: ...

    def strip(self, ids: Any) -> Any:
        """Leave the state ids out: what remains is what the tokeniser can decode.

        The end-of-turn ids stay, those that `insert` added too.

        Parameters
        ----------
        ids : sequence of int, integer ndarray or CPU tensor, shape (n,)
            One sequence of ids, state ids among them anywhere. It is not changed.

        Returns
        -------
        list of int, ndarray or tensor, shape (m,), m <= n
            A list for a list (of the same objects) and for any other sequence; a new array or
            tensor of the same dtype for an array or tensor.

        Raises
        ------
        StateTokenError
            If an id is negative or ``vocab + k`` or more; ``error.position`` is its index.
        ValueError, TypeError
            As `insert_state_blocks` raises them for `ids`.
        """
        given, finish = plain(ids)
        if isinstance(given, list):
            for position, id in enumerate(given):
                if not 0 <= id < self.vocab + self.k:
                    raise self._unknown(id, position)
            return [id for id in given if id < self.vocab]
        unknown = (given < 0) | (given >= self.vocab + self.k)
        if unknown.any():
            check_32_bits(given)
            position = int(unknown.argmax())
            raise self._unknown(int(given[position]), position)
        kept = given[given < self.vocab]
        return finish(kept) if finish else kept

    def _unknown(self, id: int, position: int) -> StateTokenError:
        what = "is negative"
        if id > 0:
            what = f"is neither below vocab ({self.vocab}) nor one of the {self.k} state ids"
        error = StateTokenError(f"token id {id} at position {position} {what}", position)
        return with_likely_cause(error, self.vocab, self.k)
