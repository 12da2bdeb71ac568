"""Write contract.json and chats.jsonl beside this file: what their ids say, and how they came.

Needs ``pip install mistral-common`` for the tekken tokeniser. Its chat template has the shape of
the contract under other names: [INST] is `user`, [/INST] is `assistant`, </s> is `eot`.
"""

import json
from pathlib import Path
from typing import NamedTuple

from mistral_common.tokens.tokenizers.mistral import MistralTokenizer
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

import statetok


class Exchange(NamedTuple):
    user: str
    assistant: str = ""  # none yet: the ids end where the model is to speak
    stopped: bool = False  # the reply ran into a limit, so the model never wrote its eot


CHATS = {
    "bread": [
        Exchange(
            "My sourdough spreads out flat in the oven. What should I change?",
            "Shorten the last rise and use a little less water. Dough that is too loose cannot "
            "hold its shape.",
        ),
        Exchange("How much less?", "Start with 20 g less for every 500 g of flour."),
    ],
    "train": [
        Exchange(
            "Fährt heute Abend noch ein Zug von Ulm nach Lindau?",
            "Das kann ich nicht nachsehen. Am sichersten ist der Fahrplan am Bahnsteig.",
        ),
    ],
    "garden-stopped": [
        Exchange(
            "Donne-moi une liste de fleurs qui aiment l'ombre.",
            "Volontiers\u00a0:\n1. la pervenche\n2. le cyclamen\n3. la",
            stopped=True,
        ),
        Exchange("Continue.", "3. la digitale\n4. le muguet"),
        Exchange("Merci\u00a0!", "Bon jardinage\u00a0!"),
    ],
    "words": [
        Exchange("「木漏れ日」を英語で言うと。", "Sunlight that falls through leaves."),
        Exchange("一語では言えませんか。", "言えません。英語にはその語がないのです。"),
        Exchange("では、ドイツ語では。", "ドイツ語にもありません。"),
        Exchange("ありがとう。", "どういたしまして。🌳"),
    ],
    "sum": [
        Exchange("كم يساوي ١٢ ضرب ١٢؟", "يساوي ١٤٤."),
        Exchange("And in binary?", "0b10010000"),
    ],
    "loop-open": [
        Exchange(
            "¿Cómo recorro una lista al revés en Python?",
            "Con reversed:\n\n```python\nfor x in reversed(xs):\n    print(x)\n```",
        ),
        Exchange("¿Y sin copiar la lista?"),
    ],
}


def contract(tekken: Tekkenizer) -> statetok.StateTokens:
    return statetok.StateTokens(
        vocab=tekken.n_words,
        k=4,
        eot=tekken.eos_id,
        user=tekken.get_special_token("[INST]"),
        assistant=tekken.get_special_token("[/INST]"),
    )


def encode(chat: list[Exchange], tekken: Tekkenizer) -> list[int]:
    # By hand, because the template gives every reply its eot, stopped or not. A server that keeps
    # the ids it generated has none there.
    st = contract(tekken)
    ids = [tekken.bos_id]
    for user, assistant, stopped in chat:
        ids += [st.user, *tekken.encode(user, bos=False, eos=False), st.assistant]
        ids += tekken.encode(assistant, bos=False, eos=bool(assistant) and not stopped)
    return ids


def files() -> dict[str, str]:
    """Return the name and the text of each file."""
    tekken = MistralTokenizer.v3(is_tekken=True).instruct_tokenizer.tokenizer
    lines = [
        json.dumps({"id": name, "input_ids": encode(chat, tekken)}) + "\n"
        for name, chat in CHATS.items()
    ]
    return {"contract.json": contract(tekken).to_json() + "\n", "chats.jsonl": "".join(lines)}


if __name__ == "__main__":
    for name, text in files().items():
        Path(__file__).with_name(name).write_text(text, encoding="utf-8", newline="\n")
