"""The committed examples are what their script makes, and say what its texts say."""

import json
import runpy
from pathlib import Path

import pytest

from statetok import StateTokens

pytest.importorskip("mistral_common", reason="needs tekken: pip install mistral-common")

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(EXAMPLES / "make_chats.py"))


@pytest.fixture(scope="module")
def contract():
    return StateTokens.from_json(EXAMPLES.joinpath("contract.json").read_bytes())


@pytest.fixture(scope="module")
def ids_of():
    with EXAMPLES.joinpath("chats.jsonl").open(encoding="utf-8") as lines:
        return {line["id"]: line["input_ids"] for line in map(json.loads, lines)}


@pytest.fixture
def insert(impl, contract):
    numbers = [getattr(contract, name) for name in ("vocab", "k", "eot", "user", "assistant")]
    return lambda ids: impl.insert_state_blocks(ids, *numbers)


def test_the_files_are_what_the_script_makes(script):
    made = {name: text.encode() for name, text in script["files"]().items()}
    assert made == {path.name: path.read_bytes() for path in EXAMPLES.glob("*.json*")}


def test_the_contract_is_that_of_tekken(contract):
    assert contract == StateTokens(vocab=131072, k=4, eot=2, user=3, assistant=4)


def test_the_template_writes_the_same_ids(script, ids_of, render):
    compared = []
    for name, chat in script["CHATS"].items():
        if any(exchange.stopped for exchange in chat):
            continue  # the template knows no such reply
        messages = []
        for user, assistant, _ in chat:
            messages += [("user", user), *([("assistant", assistant)] if assistant else [])]
        assert ids_of[name] == render(messages)
        compared.append(name)
    assert len(compared) == 5


def test_every_reply_but_an_open_one_earns_one_block(script, ids_of, contract, insert):
    blocks = {"bread": 2, "train": 1, "garden-stopped": 3, "words": 4, "sum": 2, "loop-open": 1}
    assert script["CHATS"].keys() == ids_of.keys() == blocks.keys()
    for name, ids in ids_of.items():
        result = insert(ids)
        assert [result.count(id) for id in contract.state_ids] == [blocks[name]] * 4
        assert insert(result) == result
        # One reply of all the chats has no eot, and the user goes on: only there is one added.
        assert len(contract.strip(result)) - len(ids) == (name == "garden-stopped")
