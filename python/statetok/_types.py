"""Types for type checkers; nothing here is imported at run time."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

Int = TypeVar("Int", bound=np.integer[Any])
Offset = TypeVar("Offset", np.int32, np.int64)
TensorT = TypeVar("TensorT", bound="Tensor")

#: What turns a plain result into the kind of the input; ``None`` where it is that already.
Finish = Callable[[Any], Any] | None


class Tensor(Protocol):
    """A torch tensor, without importing torch."""

    def cpu(self) -> Any: ...
    def numpy(self) -> Any: ...


class InsertStateBlocks(Protocol):
    """The type of ``insert_state_blocks``: the kind that goes in comes out."""

    @overload
    def __call__(
        self, ids: NDArray[Int], vocab: int, k: int, eot: int, user: int, assistant: int
    ) -> NDArray[Int]: ...
    @overload
    def __call__(
        self, ids: TensorT, vocab: int, k: int, eot: int, user: int, assistant: int
    ) -> TensorT: ...
    @overload
    def __call__(
        self, ids: Sequence[int], vocab: int, k: int, eot: int, user: int, assistant: int
    ) -> list[int]: ...
