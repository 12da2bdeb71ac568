"""The contract as an object: the five numbers, and what follows from them."""

from __future__ import annotations

from ._implementation import bind, insert_ragged, insert_with_edits
from ._inputs import (
    as_int,
    check_32_bits,
    clipped,
    described,
    in_row,
    is_tensor,
    numbers,
    plain,
    plain_offsets,
    thread_count,
)
from .errors import StateTokenError, with_likely_cause

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from os import PathLike
    from typing import Any, Literal, NoReturn, Self, overload

    import numpy as np
    from numpy.typing import NDArray
    from pyarrow import Table

    from ._types import Int, Offset, TensorT
    from .positions import Insertion, Turn
    from .stream import Stream

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

    @property
    def numbers(self) -> tuple[int, int, int, int, int]:
        """The five, in the order of the arguments."""
        return self.vocab, self.k, self.eot, self.user, self.assistant

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StateTokens):
            return NotImplemented
        return self.numbers == other.numbers

    def __hash__(self) -> int:
        return hash(self.numbers)

    def __reduce__(self) -> tuple[type[Self], tuple[int, int, int, int, int]]:
        return type(self), self.numbers

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

    # -- from what a model comes with --------------------------------------------------------

    @classmethod
    def from_gguf(
        cls,
        path: str | PathLike[str],
        *,
        user: str | int = "<|user|>",
        assistant: str | int = "<|assistant|>",
        eot: str | int = "<|endoftext|>",
        vocab: int | None = None,
        k: int | None = None,
    ) -> Self:
        """Make a contract from a GGUF model file, versions 2 and 3.

        Only the metadata is read, and nothing is guessed: what the file says twice must agree.

        Parameters
        ----------
        path : str or path
            The file; of a model in parts the first one.
        user, assistant, eot : str or int
            The texts of the control tokens in ``tokenizer.ggml.tokens``, or their ids.
        vocab : int, optional
            By default the number of ``tokenizer.ggml.tokens``.
        k : int, optional
            By default ``paperkiln.state_tokens.k``, and 0 where the file has no such key.

        Raises
        ------
        GGUFError
            If the file is damaged or no GGUF file; lacks a number or a text; or contradicts the
            numbers: ``{architecture}.vocab_size`` is neither vocab nor vocab + k, or
            ``token_embd.weight`` has fewer than vocab + k rows.
        OSError
            If it cannot be read.
        TypeError
            If a number that was given is no int.

        Warns
        -----
        UserWarning
            If ``tokenizer.ggml.eos_token_id`` is another id than `eot`.
        """
        from . import gguf

        found = gguf.numbers(path, eot=eot, user=user, assistant=assistant, vocab=vocab, k=k)
        return cls(**{name: each.number for name, each in found.items()})

    @classmethod
    def from_tokenizer(
        cls,
        tokenizer: Any,
        k: int,
        *,
        user: str | int = "<|user|>",
        assistant: str | int = "<|assistant|>",
        eot: str | int = "<|endoftext|>",
    ) -> Self:
        """Make a contract from a tokeniser of transformers or tokenizers.

        Parameters
        ----------
        tokenizer : PreTrainedTokenizerBase or tokenizers.Tokenizer
            Its number of tokens is vocab, added tokens counted: ``len(tokenizer)``.
        k : int
            Number of state tokens after an exchange.
        user, assistant, eot : str or int
            The texts of the control tokens, or their ids.

        Raises
        ------
        ValueError
            If the tokeniser lacks one of the texts or has gaps between its ids, or the numbers
            make no contract.
        TypeError
            If it is another kind of tokeniser.
        """
        from .tokenizer import numbers

        return cls(*numbers(tokenizer, k, eot=eot, user=user, assistant=assistant))

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
        new_values, new_offsets, _ = self._ragged(values, offsets, threads, False)
        return new_values, new_offsets

    def insert_ragged_with_sources(
        self, values: NDArray[Int], offsets: NDArray[Offset], *, threads: int | None = None
    ) -> tuple[Insertion[NDArray[Int]], NDArray[Offset]]:
        """Insert into many sequences in one array, and say where every id comes from.

        Parameters
        ----------
        values, offsets, threads
            As for `insert_ragged`.

        Returns
        -------
        insertion : Insertion
            ``ids`` as the values that `insert_ragged` returns; ``sources`` are positions in
            `values`, so what stands beside them is carried along in one piece.
        offsets : ndarray, shape (rows + 1,)
            As `insert_ragged` returns them.

        Raises
        ------
        StateTokenError, ValueError, TypeError, RuntimeError, MemoryError
            As `insert_ragged` raises them.
        """
        from .positions import Insertion

        new_values, new_offsets, sources = self._ragged(values, offsets, threads, True)
        return Insertion(new_values, sources), new_offsets

    def _ragged(self, values: Any, offsets: Any, threads: int | None, sources: bool) -> Any:
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
        rows = plain_offsets(offsets, given.size)
        return insert_ragged(given, rows, *self.numbers, thread_count(threads), sources)

    def map_arrow(
        self,
        table: Table,
        column: str = "input_ids",
        *,
        carry: Mapping[str, Any] | None = None,
        assistant_mask: str | None = None,
        on_error: Literal["raise", "null", "drop"] = "raise",
    ) -> Table:
        """Insert into a column of an Arrow table; for ``map`` of datasets, ``map_batches`` of Ray.

        It is picklable. Needs pyarrow.

        Parameters
        ----------
        table, column, carry, assistant_mask, on_error
            As for `statetok.arrow.insert_table`.

        Returns
        -------
        pyarrow.Table
            ``insert_table(...).table``, made in one thread: who maps has a process for each core.

        Raises
        ------
        StateTokenError, ValueError, TypeError
            As `statetok.arrow.insert_table` raises them.
        """
        from .arrow import insert_table

        options = {"carry": carry, "assistant_mask": assistant_mask, "on_error": on_error}
        return insert_table(table, self, column, threads=1, **options).table  # type: ignore[arg-type]

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

    # -- what stands where -------------------------------------------------------------------

    if TYPE_CHECKING:

        @overload
        def insert_with_sources(self, ids: NDArray[Int]) -> Insertion[NDArray[Int]]: ...
        @overload
        def insert_with_sources(self, ids: TensorT) -> Insertion[TensorT]: ...
        @overload
        def insert_with_sources(self, ids: Sequence[int]) -> Insertion[list[int]]: ...

    def insert_with_sources(self, ids: Any) -> Any:
        """Insert the state blocks, and say where every id comes from.

        For what stands beside the ids, e.g. labels:
        ``st.insert_with_sources(ids).carry(labels, fill=-100)``.

        Parameters
        ----------
        ids : sequence of int, integer ndarray or CPU tensor, shape (n,)
            One sequence of token ids. It is not changed.

        Returns
        -------
        Insertion
            ``ids`` as `insert` returns them, and for each its position in the input in
            ``sources``, -1 if it was inserted.

        Raises
        ------
        StateTokenError, ValueError, TypeError, MemoryError
            As `insert_state_blocks` raises them.
        """
        from .positions import Insertion, sources_of

        given, finish = plain(ids)
        out, edits = insert_with_edits(given, *self.numbers)
        result = finish(out) if finish else out
        return Insertion(result, sources_of(edits, given, result))

    def check(self, ids: Any) -> None:
        """Refuse a sequence that lacks a state block, or has a wrong one.

        What `insert` returns passes, and what passes is returned by `insert` as it is. With k = 0
        no block can be missing.

        Parameters
        ----------
        ids : sequence of int, integer ndarray or CPU tensor, shape (n,)
            One sequence of token ids with their state blocks.

        Raises
        ------
        StateTokenError
            At the first place that is wrong; ``error.position`` is the index of the eot whose
            block is missing or wrong, of the `user` in front of which a reply was not closed, or
            of the id that is not allowed.
        ValueError, TypeError, MemoryError
            As `insert_state_blocks` raises them.
        """
        self._check(plain(ids)[0])

    def _check(self, given: Any) -> None:
        from .positions import missing

        fault: StateTokenError | None
        try:
            fault = missing(insert_with_edits(given, *self.numbers)[1], self.k)
        except StateTokenError as error:
            # In front of what is not allowed a block may be missing.
            before = insert_with_edits(given[: error.position], *self.numbers)[1]
            fault = missing(before, self.k) or error
        if fault:
            raise fault

    def turns(self, ids: Any) -> list[Turn]:
        """Return the turns of a sequence, with or without its state blocks.

        Parameters
        ----------
        ids : sequence of int, integer ndarray or CPU tensor, shape (n,)
            One sequence of token ids.

        Returns
        -------
        list of Turn
            ``(role, start, stop, closed)`` of each; together they cover all of the ids.

        Raises
        ------
        StateTokenError, ValueError, TypeError, MemoryError
            As `insert_state_blocks` raises them.
        """
        from .positions import turns

        given, _ = plain(ids)
        self._insert(given)  # refuses what is no conversation
        return list(turns(given, self))

    if TYPE_CHECKING:

        @overload
        def assistant_mask(self, ids: NDArray[Int]) -> NDArray[np.bool_]: ...
        @overload
        def assistant_mask(self, ids: TensorT) -> TensorT: ...
        @overload
        def assistant_mask(self, ids: Sequence[int]) -> list[bool]: ...

    def assistant_mask(self, ids: Any) -> Any:
        """Return which ids the assistant wrote: what a loss is computed on.

        Those of its replies and the eot that closes each are; the `assistant` id in front and the
        state ids behind are not. A last reply that is still open is, as far as it goes.

        Padding belongs to no sequence: leave it out, ``ids[:length]``, and pad the mask as the
        ids are.

        Parameters
        ----------
        ids : sequence of int, integer ndarray or CPU tensor, shape (n,)
            One sequence of token ids with their state blocks, as `insert` returns it.

        Returns
        -------
        list of bool, or ndarray or tensor of bool, shape (n,)
            A list for a list and any other sequence.

        Raises
        ------
        StateTokenError, ValueError, TypeError, MemoryError
            As `check` raises them.
        """
        from .positions import turns

        given, _ = plain(ids)
        self._check(given)
        mask: Any = [False] * len(given)
        if not isinstance(given, list):
            import numpy

            mask = numpy.zeros(given.size, bool)
        for turn in turns(given, self):
            if turn.role == "assistant":
                begin, end = turn.start + 1, turn.stop - (self.k if turn.closed else 0)
                mask[begin:end] = [True] * (end - begin) if isinstance(mask, list) else True
        if is_tensor(ids):
            import sys

            return sys.modules["torch"].from_numpy(mask)
        return mask

    # -- turn by turn ------------------------------------------------------------------------

    def stream(self) -> Stream:
        """Return a new `Stream`: the same insertion turn by turn, for a server with a KV cache."""
        from .stream import Stream

        return Stream(self)

    # -- from messages -----------------------------------------------------------------------

    def encode_chat(
        self,
        messages: Iterable[Mapping[str, Any]],
        encode: Callable[[str], Any],
        *,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        system_prefix: Sequence[int] = (),
    ) -> list[int]:
        """Return the ids of a chat, with control ids and state blocks.

        The control ids are placed here and never read from text, so no text can forge a turn.
        What the contract makes of a chat:

        - An assistant message ends with eot and its block, also an empty one.
        - Two user messages in a row are two turns; the first has no reply and earns no block.
        - An assistant message that follows no user message would not be a reply to the engine, so
          it is refused, as is every other role. There is no system turn: give the ids of a system
          text as `system_prefix`.

        Parameters
        ----------
        messages : iterable of mappings
            Each with ``"role"``, either ``"user"`` or ``"assistant"``, and ``"content"``, a str.
            What else is in them is not looked at.
        encode : callable
            Makes ids of a str: a sequence of int, an array, or an object with ``ids``. It must
            not cut the text short, add ids of its own, or read special tokens in it, e.g.
            ``partial(tokenizer.encode, add_special_tokens=False, split_special_tokens=True)``
            with transformers.
        add_generation_prompt : bool
            End with `assistant`, for the model to reply. The last message is of the user.
        continue_final_message : bool
            Leave the last message, of the assistant, open for the model to go on with.
        system_prefix : sequence of int
            Ids in front of everything: a begin-of-sequence id, a system text.

        Returns
        -------
        list of int, shape (n,)
            The ids, as `insert` returns them.

        Raises
        ------
        ValueError
            If a text encodes to a control id or to no id of the tokeniser, `encode` adds ids of its
            own, a role is not known, or the roles do not make a conversation; the message is
            named by its index.
        TypeError
            If a message is no mapping, a content no str, or `encode` returns no ids.
        """
        from .chat import encode_chat

        flags = add_generation_prompt, continue_final_message
        return self.insert(encode_chat(self, messages, encode, *flags, system_prefix))

    def _unknown(self, id: int, position: int) -> StateTokenError:
        what = "is negative"
        if id > 0:
            what = f"is neither below vocab ({self.vocab}) nor one of the {self.k} state ids"
        error = StateTokenError(f"token id {id} at position {position} {what}", position)
        return with_likely_cause(error, self.vocab, self.k)
