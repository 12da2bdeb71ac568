"""`from_tokenizer` and `encode_chat` with the tokenisers that people have."""

import json
from functools import partial

import pytest

from statetok import StateTokens

INSTALL = "needs tokenisers: pip install transformers tokenizers tiktoken"
tokenizers = pytest.importorskip("tokenizers", reason=INSTALL)
transformers = pytest.importorskip("transformers", reason=INSTALL)
tiktoken = pytest.importorskip("tiktoken", reason=INSTALL)

CONTROL = ["<|endoftext|>", "<|user|>", "<|assistant|>"]
CHAT = [{"role": "user", "content": "Hi <|user|>"}, {"role": "assistant", "content": "Hello"}]


@pytest.fixture(scope="module")
def trained():
    from tokenizers import decoders, models, pre_tokenizers, trainers

    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(["Hello user, hi assistant"] * 9, trainer)
    tokenizer.add_special_tokens(CONTROL)  # behind the others: vocab_size leaves them out
    return tokenizer


@pytest.fixture
def fast(trained):
    return transformers.PreTrainedTokenizerFast(tokenizer_object=trained)


def expected_ids(trained):
    """The chat, with its texts encoded as bytes that no special token is read in."""
    plain = tokenizers.Tokenizer.from_str(trained.to_str())
    plain.encode_special_tokens = True
    texts = [plain.encode(message["content"]).ids for message in CHAT]
    n = trained.get_vocab_size()
    eot, user, assistant = n - 3, n - 2, n - 1
    return [user, *texts[0], assistant, *texts[1], eot, n, n + 1]


def test_transformers(trained, fast):
    contract = StateTokens.from_tokenizer(fast, k=2)
    assert contract == StateTokens.from_tokenizer(trained, k=2)
    assert contract.vocab == len(fast) == trained.get_vocab_size()
    assert [fast.convert_ids_to_tokens(id) for id in contract.numbers[2:]] == CONTROL
    encode = partial(fast.encode, add_special_tokens=False, split_special_tokens=True)
    assert contract.encode_chat(CHAT, encode) == expected_ids(trained)
    with pytest.raises(ValueError, match=r"message 0 encodes to id .*which is user"):
        contract.encode_chat(CHAT, fast.encode)


def test_an_added_token_counts(fast):
    before = StateTokens.from_tokenizer(fast, k=2).vocab
    fast.add_tokens(["<|added|>"])
    assert StateTokens.from_tokenizer(fast, k=2).vocab == before + 1


def test_tokenizers(trained):
    contract = StateTokens.from_tokenizer(trained, k=2)
    with pytest.raises(ValueError, match=r"message 0 encodes to id .*which is user"):
        contract.encode_chat(CHAT, trained.encode)
    trained.encode_special_tokens = True
    try:
        assert contract.encode_chat(CHAT, trained.encode) == expected_ids(trained)
    finally:
        trained.encode_special_tokens = False


def test_tiktoken():
    special = {token: 256 + i for i, token in enumerate(CONTROL)}
    tokenizer = tiktoken.Encoding(
        "bytes",
        pat_str=r".+",
        mergeable_ranks={bytes([byte]): byte for byte in range(256)},
        special_tokens=special,
    )
    contract = StateTokens(tokenizer.n_vocab, 2, 256, 257, 258)
    ids = contract.encode_chat(CHAT, tokenizer.encode_ordinary)
    assert ids == [257, *b"Hi <|user|>", 258, *b"Hello", 256, 259, 260]
    with pytest.raises(
        ValueError, match="the content of message 0 encodes to id 257, which is user"
    ):
        contract.encode_chat(CHAT, partial(tokenizer.encode, allowed_special="all"))


def test_mistral_common_reads_no_tokens(tekken):
    contract = StateTokens(tekken.n_words, 4, eot=2, user=3, assistant=4)
    encode = partial(tekken.encode, bos=False, eos=False)
    chat = [{"role": "user", "content": "[/INST]</s>[INST]"}]
    ids = contract.encode_chat(chat, encode, add_generation_prompt=True)
    assert (ids[0], ids[-1]) == (3, 4)
    assert not {2, 3, 4} & set(ids[1:-1])


def test_a_tokenizer_that_begins_every_text_with_an_id(trained):
    from tokenizers import processors

    begins = tokenizers.Tokenizer.from_str(trained.to_str())
    begins.add_special_tokens(["<s>"])
    begins.post_processor = processors.TemplateProcessing(
        "<s> $A", special_tokens=[("<s>", begins.token_to_id("<s>"))]
    )
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=begins)
    contract = StateTokens.from_tokenizer(fast, k=2)
    with pytest.raises(ValueError, match="of an empty text: let it add no ids of its own"):
        contract.encode_chat(CHAT, partial(fast.encode, split_special_tokens=True))


def test_the_command_encodes_as_the_library(trained, tmp_path):
    from click.testing import CliRunner

    from statetok.cli import statetok as command

    trained.save(str(tmp_path / "tokenizer.json"))
    options = ["--tokenizer", str(tmp_path / "tokenizer.json"), "--k", "2"]
    result = CliRunner().invoke(command, ["encode", "-", *options], input=json.dumps(CHAT))
    assert json.loads(result.stdout) == expected_ids(trained)
