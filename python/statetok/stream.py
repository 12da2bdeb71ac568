"""The contract turn by turn: what a server appends to its sequence, and feeds to the model."""

from __future__ import annotations

from ._implementation import StreamBase
from ._inputs import array_like, as_int, check_32_bits, plain
from .errors import moved

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn, Self, overload

    from numpy.typing import NDArray

    from ._types import Finish, Int, TensorT
    from .contract import StateTokens

    State = tuple[tuple[int, ...], int, int]

__all__ = ["Stream"]


class Stream(StreamBase):
    """One sequence that grows: ids go in as they come, and come out with their state blocks.

    However a sequence is cut into pushes, what they return, joined, is what `StateTokens.insert`
    returns for the whole; or both refuse, with the same text and position. After a refusal the
    stream is as it was before.

    Nothing is kept but where in an exchange the sequence stands, so a stream takes no more memory
    for a long one. It belongs to one thread at a time: used in several without a lock it does not
    crash, but the order of their ids is left to chance.

    Parameters
    ----------
    contract : StateTokens
        The contract of the model. `StateTokens.stream` is the short way.

    Attributes
    ----------
    contract : StateTokens
        As given.
    position : int
        Number of ids pushed so far, which is the position of the next one. Ids that were inserted
        do not count.
    pending : int
        Number of state ids still to come of a block that is being given; 0 if none is.

    Examples
    --------
    >>> from statetok import StateTokens
    >>> stream = StateTokens(vocab=100, k=2, eot=0, user=1, assistant=2).stream()
    >>> stream.push([1, 50, 2])
    [1, 50, 2]
    >>> stream.push(51)  # each id that the model samples
    [51]
    >>> stream.close_turn()  # it was stopped
    [0, 100, 101]
    """

    __slots__ = ("_before", "_given", "contract")

    contract: StateTokens

    def __init__(self, contract: StateTokens) -> None:
        self.contract = contract
        _, _, self._eot, self._user, self._assistant = contract.numbers
        self.__setstate__(((), 0, 0))

    # The state. The header's own is one of three phases, and it looks one id back. `_before` is
    # the shortest sequence that leads it there: nothing, a user, a user and an assistant, or, if
    # a block may be given next, all three control ids. Then `_given` of that block are there.

    def __getstate__(self) -> State:
        return self._before, self._given, self._position

    def __setstate__(self, state: State) -> None:
        self._before, self._given, self._position = state
        # Where a block may be given, text is an answer: it changes the state, or is refused.
        self._text_below = self.contract.vocab if len(self._before) < 3 else 0

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.contract,), self.__getstate__()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at position {self.position} of {self.contract!r}>"

    @property
    def position(self) -> int:
        return self._position

    @property
    def pending(self) -> int:
        return self.contract.k - self._given if self._given else 0

    def copy(self) -> Self:
        """Return an independent stream in the same state: to branch, or to come back to it."""
        other = type(self)(self.contract)
        other.__setstate__(self.__getstate__())
        return other

    if TYPE_CHECKING:  # the base class has it

        @overload
        def push(self, ids: int, /) -> list[int]: ...
        @overload
        def push(self, ids: NDArray[Int], /) -> NDArray[Int]: ...
        @overload
        def push(self, ids: TensorT, /) -> TensorT: ...
        @overload
        def push(self, ids: Sequence[int], /) -> list[int]: ...
        def push(self, ids: Any, /) -> Any: ...

    def _push(self, ids: Any) -> Any:
        given, finish = self._plain(ids)
        if isinstance(given, list):
            out, state = self._insert(given)
            result = out
        else:
            out, state = self._insert(given.astype("int32"))
            result = array_like(out, given)
        self.__setstate__(state)  # last of all: what fails leaves the stream as it was
        return finish(result) if finish else result

    def _plain(self, ids: Any) -> tuple[Any, Finish]:
        if type(ids) is list and ids and type(ids[-1]) is int and ids[-1] < self.contract.vocab:
            return ids, None  # `insert` takes any list, and here only the last one is looked at
        try:
            id = as_int(ids)
            given, finish = plain(ids if id is None else [ids])
            if not isinstance(given, list):
                check_32_bits(given)
        except Exception as error:
            moved(error, self._position)
            raise
        return given, finish

    def _insert(self, given: Any) -> tuple[Any, State]:
        """Return what is to be appended for the ids, and the state behind them."""
        vocab, k, eot, user, assistant = self.contract.numbers
        if k == 0 or len(given) == 0:
            return self._ask(given), (self._before, self._given, self._position + len(given))
        # Where the ids leave the sequence shows in what a user would have the header insert next.
        asked = _joined([*self._before, *self.contract.state_ids[: self._given]], given, [user])
        position = self._position + len(asked) - 1 - self._ahead
        last = asked[-2]
        if begun := self._begun(asked):
            # The header wants whole blocks: it is asked only whether the eot lets one follow.
            out = self._ask(asked[: -1 - begun])
            if out[-1] < vocab:
                self._refuse(asked[:-1])
            return out[self._old :], ((user, assistant, eot), begun, position)
        out = self._ask(asked)
        inserts = out[-2] >= vocab
        before: tuple[int, ...] = ()
        end = len(out) - 1
        if last == eot:
            before = (user, assistant, eot) if inserts else ()
        elif inserts and last < vocab:  # an eot and a block, to close a reply that is open
            before = (user, assistant)
            end -= 1 + k
        elif last < vocab:  # an assistant would begin a reply only behind a user
            instead = self._ask(_joined(asked[:-1], [assistant, user]))
            before = (user,) if instead[-2] >= vocab else ()
        return out[self._old : end], (before, 0, position)

    @property
    def _ahead(self) -> int:
        """Number of ids that are put in front of the ones given."""
        return len(self._before) + self._given

    @property
    def _old(self) -> int:
        """Number of ids for those that were returned earlier: a block as soon as its eot."""
        return len(self._before) + (self.contract.k if len(self._before) == 3 else 0)

    def _begun(self, asked: Any) -> int:
        """Return how many ids in front of the last one are a block that has only begun."""
        first, k = self.contract.vocab, self.contract.k
        n = int(asked[-2]) - first + 1
        if not 0 < n < min(k, len(asked) - 1) or asked[-n - 2] != self.contract.eot:
            return 0
        return n if list(asked[-n - 1 : -1]) == list(range(first, first + n)) else 0

    def _ask(self, ids: Any) -> Any:
        try:
            return self.contract.insert(ids)
        except Exception as error:
            moved(error, self._position - self._ahead)
            raise

    def _refuse(self, ids: Any) -> NoReturn:
        self._ask(ids)
        raise AssertionError("the header takes a part of a block")

    def close_turn(self) -> list[int]:
        """End a reply that was stopped: return the eot and the block that a user would call for.

        Without this they come with the next `user` that is pushed. The eot is not an id that was
        pushed: it has no position.

        Returns
        -------
        list of int
            What to append to the sequence: the eot and the state ids; nothing if no reply is
            open, or the model has no state tokens.
        """
        contract = self.contract
        closing = contract.insert([*self._before, contract.user])[self._old : -1]
        if closing:
            before = contract.user, contract.assistant, contract.eot
            self.__setstate__((before, 0, self._position))
        return closing

    def finish(self) -> None:
        """Refuse a sequence that ends here in the midst of a given block.

        Raises
        ------
        StateTokenError
            If `pending` is not 0; ``error.position`` is the index of the eot before the block.
        """
        if self._given:
            self._refuse([*self._before, *self.contract.state_ids[: self._given]])


def _joined(first: Any, *others: Any) -> Any:
    """Return the parts in one: lists, or lists and arrays of int32."""
    if all(isinstance(part, list) for part in others):
        joined = list(first)
        for part in others:
            joined += part
        return joined
    import numpy

    return numpy.concatenate((first, *others), dtype="int32", casting="unsafe")
