from collections.abc import Callable
from typing import Any

from typing_extensions import disjoint_base

from ._types import InsertStateBlocks

HEADER_SHA256: str
compiler: str
insert_state_blocks: InsertStateBlocks

def bind(vocab: int, k: int, eot: int, user: int, assistant: int) -> Callable[[Any], Any]: ...
def insert_with_edits(
    ids: Any, vocab: int, k: int, eot: int, user: int, assistant: int
) -> tuple[Any, list[tuple[int, int]]]: ...
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
) -> tuple[Any, Any, Any]: ...

@disjoint_base
class StreamBase:
    _text_below: int
    _eot: int
    _user: int
    _assistant: int
    _position: int
    def push(self, ids: Any, /) -> Any: ...
