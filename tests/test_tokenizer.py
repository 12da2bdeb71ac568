"""`from_tokenizer`, with tokenisers of the tokenizers library and stand-ins for the others."""

import pytest
from tokenizers import Tokenizer, models

from statetok import StateTokens

SPECIAL = ["<|endoftext|>", "<|user|>", "<|assistant|>"]


class Stub:
    """What transformers and tokenizers have in common, as far as it is asked for."""

    def __init__(self, tokens, size=None):
        self.tokens, self.size = tokens, len(tokens) if size is None else size

    def get_vocab(self):
        return self.tokens

    def __len__(self):
        return self.size


def test_a_tokenizer_of_tokenizers():
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    tokenizer.add_special_tokens(SPECIAL)  # which get_vocab_size(False) leaves out
    contract = StateTokens.from_tokenizer(tokenizer, 4)
    assert contract == StateTokens(vocab=5, k=4, eot=2, user=3, assistant=4)


def test_the_names_of_the_control_tokens():
    tokens = {"</s>": 0, "[INST]": 1, "[/INST]": 2, "a": 3}
    contract = StateTokens.from_tokenizer(Stub(tokens), k=2, eot="</s>", user="[INST]", assistant=2)
    assert contract == StateTokens(vocab=4, k=2, eot=0, user=1, assistant=2)


def test_a_text_that_is_no_token():
    tokens = {"<s>": 0, "a": 1, "[INST]": 2, "<|user|>": 3, "<": 4, "<\n>": 5}
    with pytest.raises(
        ValueError, match=r"eot: the tokenizer has no token '<\|endoftext\|>'"
    ) as error:
        StateTokens.from_tokenizer(Stub(tokens), 4)
    assert str(error.value).endswith("special ones: <s>, [INST], <|user|>")
    many = {f"<{'x' * 1000}{i}>": i for i in range(1000)}
    with pytest.raises(ValueError, match=r"no token .*xxx>?, \.\.\.$") as error:
        StateTokens.from_tokenizer(Stub(many), 4, eot="y" * 1000)
    assert len(str(error.value)) < 400
    with pytest.raises(ValueError, match="special ones: none"):
        StateTokens.from_tokenizer(Stub({"a": 0}), 4)


def test_gaps_between_the_ids():
    tokens = dict(zip(SPECIAL, (0, 1, 9), strict=True))
    with pytest.raises(
        ValueError, match="the tokenizer has 3 tokens and an id 9, so there are gaps"
    ):
        StateTokens.from_tokenizer(Stub(tokens), 4)
    # More ids than tokens are no harm: state ids begin behind them.
    assert StateTokens.from_tokenizer(Stub(tokens, size=12), 4).vocab == 12


@pytest.mark.parametrize("other", [None, "tokenizer.json", len, {"<|user|>": 1}])
def test_another_kind_of_tokenizer(other):
    with pytest.raises(TypeError, match="must be one of transformers or tokenizers, not"):
        StateTokens.from_tokenizer(other, 4)


@pytest.mark.parametrize("token", [None, True, 2.0, ["<|user|>"]])
def test_what_is_neither_text_nor_id(token):
    tokens = {token: id for id, token in enumerate(SPECIAL)}
    with pytest.raises(TypeError, match="user must be a text or an id, not"):
        StateTokens.from_tokenizer(Stub(tokens), 4, user=token)


def test_numbers_that_make_no_contract():
    tokens = {token: id for id, token in enumerate(SPECIAL)}
    with pytest.raises(ValueError, match="k is -1"):
        StateTokens.from_tokenizer(Stub(tokens), -1)
    with pytest.raises(ValueError, match="user is 3: it must be an id from 0 to 2"):
        StateTokens.from_tokenizer(Stub(tokens), 4, user=3)
