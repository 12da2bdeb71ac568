"""What the modules that need mistral-common share."""

from collections.abc import Callable

import pytest

Render = Callable[[list[tuple[str, str]]], list[int]]


@pytest.fixture(scope="session")
def tekken():
    """Return mistral-common's tekken tokeniser."""
    from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

    return MistralTokenizer.v3(is_tekken=True).instruct_tokenizer.tokenizer


@pytest.fixture(scope="session")
def render(tekken) -> Render:
    """Return mistral-common's own chat template: from (role, text) messages to ids."""
    from mistral_common.protocol.instruct.request import ChatCompletionRequest
    from mistral_common.protocol.instruct.validator import ValidationMode
    from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

    # Of its modes, only this one lets a chat end with either side.
    template = MistralTokenizer.from_file(tekken.file_path, mode=ValidationMode.agnostic)

    def render(messages: list[tuple[str, str]]) -> list[int]:
        request = ChatCompletionRequest(
            messages=[{"role": role, "content": text} for role, text in messages]
        )
        return template.encode_chat_completion(request).tokens

    return render
