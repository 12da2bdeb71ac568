"""What statetok raises when the contract refuses a sequence."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["GGUFError", "StateTokenError"]


class StateTokenError(ValueError):
    """A sequence holds an id where the contract does not allow it.

    When inserting, ``str(error)`` is the text of the header that refused, to the letter. A likely
    cause, where there is one, is attached as a note (PEP 678) and leaves the text alone.

    Parameters
    ----------
    message : str
        What is wrong, and where.
    position : int
        Index in the input, counted from 0, that the message names. For an incomplete state
        block this is the index of the end-of-turn id in front of it.

    Attributes
    ----------
    position : int
        As given.
    row : int
        Index of the sequence at fault; only there if the call was about several.
    """

    position: int

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position

    def __reduce__(self) -> tuple[object, ...]:
        # The default would call the class with the message alone.
        return type(self), (str(self), self.position), self.__dict__


class GGUFError(ValueError):
    """A model file that is damaged, or that does not say what its contract is."""


def from_header(what: str, vocab: int, k: int) -> ValueError:
    """Return the exception for a header's ``what()``, for the extension to raise.

    A header whose text names no position (another revision's) gives a plain ``ValueError``.
    """
    import re  # here, not above: only a refusal pays for it

    place = re.search(r" at position (\d+)", what)
    if place is None:
        return ValueError(what)
    return with_likely_cause(StateTokenError(what, int(place[1])), vocab, k)


def with_likely_cause(error: StateTokenError, vocab: int, k: int) -> StateTokenError:
    """Return `error`, with a note if the id that it names has a well-known cause."""
    import re

    id_at_fault = re.match(r"(?:token|state) id (-?\d+) at ", str(error))
    if id_at_fault is None:
        return error
    value = int(id_at_fault[1])
    first_unused = vocab + max(k, 0)
    if value == -100:
        error.add_note("-100 marks ignored labels: were labels passed in place of input ids?")
    elif value >= first_unused:
        error.add_note(
            f"No token and no state id is {first_unused} or more: this may be a padded row of the "
            "embedding, or a vocab that leaves out added tokens (len(tokenizer) counts them, "
            "tokenizer.vocab_size does not)."
        )
    return error


def moved(error: Exception, by: int) -> None:
    """Let `error` count its position from `by` ids further in front."""
    import re

    def shifted(text: Any) -> Any:
        if not isinstance(text, str):
            return text
        return re.sub(r"(?<= at position )\d+", lambda at: str(int(at[0]) + by), text, count=1)

    error.args = tuple(map(shifted, error.args))
    if isinstance(error, StateTokenError):
        error.position += by
    if hasattr(error, "__notes__"):
        error.__notes__ = list(map(shifted, error.__notes__))
