"""A small OpenAI-compatible chat server with state tokens: ``python server.py DIR --port 8000``.

DIR is what make_model.py wrote. A conversation keeps its KV cache between turns, and the model is
fed with nothing but what a `statetok.Stream` returns.
"""

import argparse
import json
import secrets
import time
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import torch
import uvicorn
from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, Field
from tokenizers import Tokenizer
from transformers import DynamicCache, LlamaForCausalLM

from statetok import StateTokens

Piece = tuple[str, str | None]  # a part of a reply, and why the reply ended with it

KEPT = 64  # conversations with a cache; the one that was longest unused goes first


class Conversation:
    """One sequence with its KV cache, and the reply that it ends with."""

    def __init__(self, contract: StateTokens) -> None:
        self.stream = contract.stream()
        self.cache = DynamicCache()
        self.ids: list[int] = []  # of the sequence, state ids included
        self.begin_reply()

    def push(self, ids: int | list[int]) -> None:
        self.ids += self.stream.push(ids)

    def begin_reply(self) -> None:
        self.start, self.stream_at_start = len(self.ids), self.stream.copy()
        self.reply: list[int] = []  # its ids as the model chose them
        self.text = ""  # as much of it as was sent
        self.sent: list[int] = []  # how long the text was behind each id

    def send(self, text: str) -> str:
        """Note that the client has the text of the reply up to here; return what is new of it."""
        new = text[len(self.text) :]
        self.text = text
        if self.reply:
            self.sent[len(self.reply) - 1 :] = [len(text)]
        return new

    def cut_reply(self, text: str) -> bool:
        """Go back to where the client had read `text`; False if no such place is known."""
        if text == self.text:
            return True
        if not self.text.startswith(text) or len(text) not in [0, *self.sent]:
            return False
        kept = self.reply[: self.sent.index(len(text)) + 1] if text else []
        self.stream = self.stream_at_start
        del self.ids[self.start :]
        for id in kept:
            self.push(id)
        if (surplus := self.cache.get_seq_length() - len(self.ids)) > 0:
            self.cache.crop(-surplus)
        return True


class Engine:
    def __init__(self, folder: Path) -> None:
        self.contract = StateTokens.from_json(folder.joinpath("contract.json").read_bytes())
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.encode_special_tokens = True  # as text: what a user writes makes no turn
        self.model = LlamaForCausalLM.from_pretrained(folder).eval()
        # Conversations by the messages in front of their last reply.
        self.kept: OrderedDict[tuple[tuple[str, str], ...], Conversation] = OrderedDict()
        self.fed = 0  # ids, over all conversations
        self.never = [*self.contract.state_ids, self.contract.user, self.contract.assistant]

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def take(self, messages: list[dict[str, Any]]) -> tuple[Any, Conversation]:
        """Return the conversation that these messages go on with, and the key to keep it under.

        Nobody else can take it before it is kept again; who asks for the same meanwhile gets a
        new one.
        """
        contract = self.contract
        prompt = contract.encode_chat(messages, self.encode, add_generation_prompt=True)
        key = tuple((message["role"], message["content"]) for message in messages)
        conversation = self.kept.pop(key[:-2], None) if len(key) > 2 else None
        if conversation and conversation.cut_reply(key[-2][1]):
            # A reply that was stopped is closed by this user: push() returns its eot and block.
            last = self.encode(key[-1][1])
            conversation.push([contract.user, *last, contract.assistant])
        else:
            conversation = Conversation(contract)
            conversation.push(prompt)
        conversation.begin_reply()
        return key, conversation

    def keep(self, key: Any, conversation: Conversation) -> None:
        self.kept[key] = conversation
        self.kept.move_to_end(key)
        while len(self.kept) > KEPT:
            self.kept.popitem(last=False)

    @torch.inference_mode()
    def next_logits(self, conversation: Conversation) -> torch.Tensor:
        """Feed the model what it has not seen of the sequence; return its scores of the next id."""
        new = conversation.ids[conversation.cache.get_seq_length() :]
        self.fed += len(new)
        out = self.model(torch.tensor([new]), cache=conversation.cache, logits_to_keep=1)
        return out.logits[0, -1]

    def reply(self, conversation: Conversation, wanted: "Wanted") -> Iterator[Piece]:
        """Yield the reply in pieces of text, the last one with why it ended."""
        random = torch.Generator()
        random.manual_seed(secrets.randbits(63) if wanted.seed is None else wanted.seed)
        stops = [wanted.stop] if isinstance(wanted.stop, str) else wanted.stop
        reason = "length"
        for _ in range(wanted.limit):
            id = self.sample(self.next_logits(conversation), wanted.temperature, random)
            conversation.push(id)
            if id == self.contract.eot:
                reason = "stop"
                break
            conversation.reply.append(id)
            text, stopped = sendable(self.decode(conversation.reply), stops)
            yield conversation.send(text), "stop" if stopped else None
            if stopped:
                return
        yield conversation.send(self.decode(conversation.reply)), reason  # what was held back

    @torch.inference_mode()
    def sample(self, logits: torch.Tensor, temperature: float, random: torch.Generator) -> int:
        logits[self.never] = -torch.inf  # ids that only the server may write
        if temperature == 0:
            return int(logits.argmax())
        chances = torch.softmax(logits / temperature, -1)
        return int(torch.multinomial(chances, 1, generator=random))

    def decode(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=False)


def sendable(text: str, stops: list[str]) -> tuple[str, bool]:
    """Return how much of a growing text can be sent, and whether it has come to a stop string."""
    text = text.rstrip("\ufffd")  # a character whose last bytes are still to come
    found = [text.find(stop) for stop in stops if stop in text]
    if found:
        return text[: min(found)], True
    begun = [n for stop in stops for n in range(1, len(stop)) if text.endswith(stop[:n])]
    return text[: len(text) - max(begun, default=0)], False


# -- the protocol ----------------------------------------------------------------------------


class Wanted(BaseModel):
    messages: list[dict[str, Any]]
    model: str = "state-tokens"
    stream: bool = False
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    stop: str | list[str] = []
    temperature: float = Field(1.0, ge=0)
    seed: int | None = None

    @property
    def limit(self) -> int:
        return self.max_completion_tokens or self.max_tokens or 256


def make_app(engine: Engine) -> FastAPI:
    app = FastAPI()

    @app.exception_handler(RequestValidationError)
    @app.exception_handler(ValueError)
    @app.exception_handler(TypeError)
    async def refuse(_: Request, error: Exception) -> JSONResponse:
        what = {"message": str(error), "type": "invalid_request_error", "param": None, "code": None}
        return JSONResponse({"error": what}, status_code=400)

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [{"id": "state-tokens", "object": "model"}]}

    @app.post("/v1/chat/completions")
    async def complete(wanted: Wanted) -> Any:
        key, conversation = engine.take(wanted.messages)

        async def pieces() -> AsyncIterator[Piece]:
            reply = engine.reply(conversation, wanted)
            try:
                while (piece := await run_in_threadpool(next, reply, None)) is not None:
                    yield piece
            finally:  # also if the client went away: it may come back with what it has read
                engine.keep(key, conversation)

        frame = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time())}
        frame |= {"model": wanted.model}
        if wanted.stream:
            return StreamingResponse(events(pieces(), frame), media_type="text/event-stream")
        whole = [piece async for piece in pieces()]
        message = {"role": "assistant", "content": "".join(text for text, _ in whole)}
        choice = {"index": 0, "message": message, "finish_reason": whole[-1][1]}
        return frame | {"object": "chat.completion", "choices": [choice]}

    return app


async def events(pieces: AsyncIterator[Piece], frame: dict[str, Any]) -> AsyncIterator[str]:
    """Yield the pieces of a reply as server-sent events."""
    delta = {"role": "assistant"}
    async for text, reason in pieces:
        choice = {"index": 0, "delta": delta | {"content": text}, "finish_reason": reason}
        chunk = frame | {"object": "chat.completion.chunk", "choices": [choice]}
        yield f"data: {json.dumps(chunk)}\n\n"
        delta = {}
    yield "data: [DONE]\n\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args()
    uvicorn.run(make_app(Engine(given.folder)), port=given.port)
