"""The five numbers from a GGUF model file: its metadata, read strictly and within bounds.

The gguf library would take seconds for a vocabulary and loops without end on a hostile count, so
this is our own. It reads no tensor data, and trusts no number that the file does not bear out.
"""

from __future__ import annotations

import os
import stat
import struct
import warnings
from typing import IO, Any, NamedTuple

from ._inputs import as_int, clipped, described
from .contract import StateTokens
from .errors import GGUFError
from .tokenizer import special

__all__ = ["numbers", "read"]

K = "paperkiln.state_tokens.k"
TOKENS = "tokenizer.ggml.tokens"
EOS = "tokenizer.ggml.eos_token_id"
EMBEDDING = "token_embd.weight"

# More than any model has, and little enough to read: bytes of a text, elements of an array.
LIMIT = 2**24
DEPTH = 4  # of arrays in arrays
READ = 2**20  # bytes at a time
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 10: "Q", 11: "q", 12: "d"}
BOOL, STRING, ARRAY = 7, 8, 9
SMALLEST = {BOOL: 1, STRING: 8, ARRAY: 12}  # bytes of a value


class Metadata(NamedTuple):
    """What a file says in front of its tensor data."""

    values: dict[str, Any]
    tensors: dict[str, tuple[int, ...]]  # dimensions, as ggml orders them: row length first


def read(path: str | os.PathLike[str]) -> Metadata:
    """Return the metadata of a GGUF file, or raise `GGUFError` or `OSError`."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise GGUFError(f"{clipped(os.fspath(path))} is no regular file")
    with open(path, "rb") as file:
        return _Reader(file).metadata()


class _Reader:
    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.size = os.fstat(file.fileno()).st_size
        self.buffer, self.begin, self.at = (
            b"",
            0,
            0,
        )  # what was read, from where, how far it is used
        self.order = "<"

    @property
    def place(self) -> int:
        return self.begin + self.at

    def metadata(self) -> Metadata:
        magic = self.take(4, "the magic")
        if magic != b"GGUF":
            raise GGUFError(f"this is no GGUF file: it begins with {clipped(str(magic))}")
        version = self.take(4, "the version")
        if int.from_bytes(version, "big") in (2, 3):
            self.order = ">"
        elif int.from_bytes(version, "little") not in (2, 3):
            number = int.from_bytes(version, "little")
            raise GGUFError(f"the GGUF version is {number}: 2 and 3 can be read")
        tensors = self.number("Q", "the number of tensors")
        values = self.number("Q", "the number of keys")
        self.check(values, 13, "keys")
        return Metadata(self.values(values), self.tensors(tensors))

    def values(self, count: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for _ in range(count):
            place = self.place
            key = self.key("a key")
            if key in values:
                raise GGUFError(f"the key {clipped(key)} is there again at byte {place}")
            values[key] = self.value(self.number("I", "a type"), key)
        return values

    def tensors(self, count: int) -> dict[str, tuple[int, ...]]:
        self.check(count, 24, "tensors")
        tensors: dict[str, tuple[int, ...]] = {}
        for _ in range(count):
            place = self.place
            name = self.key("the name of a tensor")
            dimensions = self.number("I", "a number of dimensions")
            if name in tensors or dimensions > 4:
                wrong = "there again" if name in tensors else f"of {dimensions} dimensions"
                raise GGUFError(f"the tensor {clipped(name)} at byte {place} is {wrong}")
            tensors[name] = self.numbers("Q", dimensions, "dimensions")
            self.take(12, "the place of a tensor")
        return tensors

    def value(self, kind: int, key: str, depth: int = 0) -> Any:
        if kind in NUMBERS:
            return self.number(NUMBERS[kind], key)
        if kind == BOOL:
            return self.bools(1, key)[0]
        if kind == STRING:
            return self.string(key)
        if kind != ARRAY or depth == DEPTH:
            raise GGUFError(f"{clipped(key)} has type {kind} at byte {self.place}: there is none")
        kind = self.number("I", "a type")
        count = self.number("Q", "a count")
        smallest = struct.calcsize(NUMBERS[kind]) if kind in NUMBERS else SMALLEST.get(kind, 1)
        self.check(count, smallest, f"elements of {clipped(key)}")
        if count > LIMIT:
            raise GGUFError(f"{clipped(key)} has {count} elements: {LIMIT} are read at most")
        if kind in NUMBERS:
            return list(self.numbers(NUMBERS[kind], count, key))
        if kind == BOOL:
            return self.bools(count, key)
        if kind == STRING:
            return self.strings(count, key)
        return [self.value(kind, key, depth + 1) for _ in range(count)]

    def check(self, count: int, size: int, what: str) -> None:
        """Refuse a count of things of at least `size` bytes that the file cannot hold."""
        left = self.size - self.place
        if count * size > left:
            raise GGUFError(
                f"{count} {what} at byte {self.place} cannot be in the {left} bytes that follow: "
                "the file is cut short, or damaged"
            )

    def take(self, n: int, what: str) -> bytes:
        end = self.at + n
        if end > len(self.buffer):
            self.check(n, 1, f"bytes of {clipped(what)}")
            rest = self.buffer[self.at :]
            self.begin += self.at
            self.buffer = rest + self.file.read(max(n - len(rest), READ))
            self.at, end = 0, n
            if end > len(self.buffer):
                raise GGUFError(f"the file became shorter while it was read, at byte {self.begin}")
        taken = self.buffer[self.at : end]
        self.at = end
        return taken

    def number(self, code: str, what: str) -> Any:
        return self.numbers(code, 1, what)[0]

    def numbers(self, code: str, count: int, what: str) -> tuple[Any, ...]:
        form = f"{self.order}{count}{code}"
        return struct.unpack(form, self.take(struct.calcsize(form), what))

    def bools(self, count: int, what: str) -> list[bool]:
        found = self.take(count, what)
        if found.strip(b"\0\1"):
            raise GGUFError(
                f"{clipped(what)} has a bool before byte {self.place} that is not 0 or 1"
            )
        return [byte == 1 for byte in found]

    def key(self, what: str) -> str:
        text = self.string(what)
        if not text.isascii():
            raise GGUFError(f"{what} before byte {self.place} is not in ASCII: {clipped(text)}")
        return text

    def strings(self, count: int, what: str) -> list[str]:
        texts: list[str] = []
        length_at = struct.Struct(self.order + "Q").unpack_from
        while len(texts) < count:
            texts.append(self.string(what))
            # A vocabulary is 100,000 of these: as many as the buffer holds without a call for each.
            buffer, at, size = self.buffer, self.at, len(self.buffer)
            while len(texts) < count and at + 8 <= size:
                begin = at + 8
                end = begin + length_at(buffer, at)[0]
                if end > size:
                    break
                texts.append(buffer[begin:end].decode("utf-8", "surrogateescape"))
                at = end
            self.at = at
        return texts

    def string(self, what: str) -> str:
        length = self.number("Q", what)
        if length > LIMIT:
            raise GGUFError(
                f"a text of {clipped(what)} at byte {self.place} has {length} bytes: {LIMIT} are "
                "read at most"
            )
        # Engines take texts that are no UTF-8, so nothing is refused or lost here.
        return self.take(length, what).decode("utf-8", "surrogateescape")


# -- the numbers -----------------------------------------------------------------------------


class Found(NamedTuple):
    """A number of the contract, and where it comes from."""

    number: int
    source: str


def numbers(path: str | os.PathLike[str], **given: Any) -> dict[str, Found]:
    """Return the five numbers by name, checked; see `StateTokens.from_gguf`, which calls this."""
    metadata = read(path)
    found = _find(metadata, **given)
    try:
        StateTokens(**{name: each.number for name, each in found.items()})
    except ValueError as error:
        raise GGUFError(str(error)) from None
    _cross_check(metadata, found)
    return found


def _find(
    metadata: Metadata,
    *,
    eot: str | int = "<|endoftext|>",
    user: str | int = "<|user|>",
    assistant: str | int = "<|assistant|>",
    vocab: int | None = None,
    k: int | None = None,
) -> dict[str, Found]:
    values = metadata.values
    tokens = values.get(TOKENS)
    if tokens is not None and not (isinstance(tokens, list) and _are_texts(tokens)):
        raise GGUFError(f"{TOKENS} is no list of texts")
    found = {}
    if vocab is not None:
        found["vocab"] = Found(vocab, "as given")
    elif tokens is None:
        raise GGUFError(f"there is no {TOKENS}: give vocab")
    else:
        found["vocab"] = Found(len(tokens), f"the number of {TOKENS}")
    if k is not None:
        found["k"] = Found(k, "as given")
    else:
        found["k"] = Found(_integer(values, K, 0), K if K in values else f"there is no {K}")
    for name, token in (("eot", eot), ("user", user), ("assistant", assistant)):
        id = as_int(token)
        if id is not None:
            found[name] = Found(id, "as given")
        elif not isinstance(token, str):
            raise TypeError(f"{name} must be a text or an id, not {described(token)}")
        elif tokens is None:
            raise GGUFError(f"there is no {TOKENS} to look {clipped(token)!r} up in: give its id")
        else:
            found[name] = Found(_lookup(tokens, token, name), f"{clipped(token)!r} of {TOKENS}")
    return found


def _are_texts(tokens: list[Any]) -> bool:
    return all(isinstance(token, str) for token in tokens)


def _integer(values: dict[str, Any], key: str, default: int) -> int:
    value = values.get(key, default)
    if type(value) is not int or not 0 <= value < 2**31:
        raise GGUFError(f"{key} is {described(value)}: it must be an int from 0 to {2**31 - 1}")
    return value


def _lookup(tokens: list[str], text: str, name: str) -> int:
    count = tokens.count(text)
    if count == 1:
        return tokens.index(text)
    if count:
        first = tokens.index(text)
        raise GGUFError(
            f"{name}: {TOKENS} has {clipped(text)!r} {count} times, at {first} and at "
            f"{tokens.index(text, first + 1)}: give the id"
        )
    raise GGUFError(f"{name}: {TOKENS} has no {clipped(text)!r}. {special(tokens)}")


def _cross_check(metadata: Metadata, found: dict[str, Found]) -> None:
    """Refuse numbers that something else in the file contradicts."""
    values = metadata.values
    vocab, k, eot = (found[name].number for name in ("vocab", "k", "eot"))
    key = f"{values.get('general.architecture')}.vocab_size"
    said = f"vocab is {vocab} ({found['vocab'].source}) and k is {k} ({found['k'].source})"
    if key in values and _integer(values, key, 0) not in (vocab, vocab + k):
        raise GGUFError(
            f"{clipped(key)} is {values[key]}, which is neither vocab nor vocab + k: {said}"
        )
    rows = (*metadata.tensors.get(EMBEDDING, (0, vocab + k)), 1, 1)[1]  # ggml leaves out a last 1
    if rows < vocab + k:
        raise GGUFError(f"{EMBEDDING} has {rows} rows, fewer than vocab + k: {said}")
    if EOS in values and _integer(values, EOS, 0) != eot:
        warnings.warn(
            f"{EOS} is {values[EOS]} and eot is {eot} ({found['eot'].source}): is this the token "
            "that ends a reply?",
            UserWarning,
            stacklevel=4,  # who called from_gguf
        )
