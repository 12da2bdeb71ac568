"""State tokens for chat models: the engine's header, for Python."""

from ._implementation import HEADER_SHA256, implementation, insert_state_blocks
from ._version import __version__
from .contract import StateTokens
from .errors import StateTokenError

__all__ = [
    "HEADER_SHA256",
    "StateTokenError",
    "StateTokens",
    "__version__",
    "implementation",
    "insert_state_blocks",
]
