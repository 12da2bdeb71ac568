"""The sequences that are measured, for the contract `NUMBERS`."""

import json
from importlib.resources import files

import numpy as np

NUMBERS = VOCAB, K, EOT, USER, ASSISTANT = (131072, 4, 2, 3, 4)
EXCHANGE = 400  # ids, control ids included
LENGTHS = (64, 1024, 8192, 131_072, 4_194_304)


def llm(length, vocab=VOCAB):
    """Exchanges of 400 ids: a prompt of 150, a reply of 247."""
    rng = np.random.default_rng(0)
    ids = rng.integers(10, vocab, length)
    place = np.arange(length) % EXCHANGE
    for at, id in ((0, USER), (151, ASSISTANT), (EXCHANGE - 1, EOT)):
        ids[place == at] = id
    if length < EXCHANGE:  # one exchange all the same
        ids[[length // 3, -1]] = ASSISTANT, EOT
    return ids.tolist()


def real(length):
    """Conversations of people, in short turns, joined; as mistral-common's template writes them."""
    from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

    tekken = MistralTokenizer.v3(is_tekken=True).instruct_tokenizer.tokenizer
    data = json.loads(files("chitchat_dataset").joinpath("dataset.json").read_bytes())
    ids = []
    for conversation in data.values():
        for number, turn in enumerate(conversation["messages"]):
            text = " ".join(utterance["text"] for utterance in turn)
            text_ids = tekken.encode(text, bos=False, eos=False)
            ids += [ASSISTANT, *text_ids, EOT] if number % 2 else [USER, *text_ids]
        if len(ids) >= length:
            break
    return ids[:length]


def dense(length):
    """Control ids only."""
    return [(USER, ASSISTANT, EOT)[i % 3] for i in range(length)]


def text(length):
    """No control id at all."""
    return np.random.default_rng(0).integers(10, VOCAB, length).tolist()


def mixed(length):
    """Text behind a beginning of control ids."""
    return [*dense(64), *text(length - 64)]


def rows(total):
    """One exchange of 400 ids a row: values and offsets."""
    n = total // EXCHANGE
    values = np.tile(np.array(llm(EXCHANGE * 250), np.int32), n // 250 + 1)[: n * EXCHANGE]
    return values, np.arange(0, values.size + 1, EXCHANGE)
