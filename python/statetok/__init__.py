"""State tokens for chat models: the engine's header, for Python."""

from ._implementation import HEADER_SHA256, implementation, insert_state_blocks
from ._version import __version__
from .contract import StateTokens
from .errors import GGUFError, StateTokenError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .positions import Insertion, Turn
    from .stream import Stream

__all__ = [
    "HEADER_SHA256",
    "GGUFError",
    "Insertion",
    "StateTokenError",
    "StateTokens",
    "Stream",
    "Turn",
    "__version__",
    "implementation",
    "insert_state_blocks",
]


def __getattr__(name: str) -> object:
    """Import what only some need, and only when it is named."""
    from importlib import import_module

    module = {"Insertion": "positions", "Stream": "stream", "Turn": "positions"}.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{module}", __name__), name)
