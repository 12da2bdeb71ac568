from collections.abc import Callable
from typing import Any

from ._types import InsertStateBlocks

HEADER_SHA256: str
compiler: str
insert_state_blocks: InsertStateBlocks

def bind(vocab: int, k: int, eot: int, user: int, assistant: int) -> Callable[[Any], Any]: ...
def insert_ragged(
    values: Any,
    offsets: Any,
    vocab: int,
    k: int,
    eot: int,
    user: int,
    assistant: int,
    threads: int,
) -> tuple[Any, Any]: ...
