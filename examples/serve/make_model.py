"""Make a small chat model with state tokens: ``python make_model.py DIR``.

Its weights are random and seeded, its tokeniser is trained on this repository's own pages; nothing
is downloaded. It talks nonsense, but a server cannot tell.
"""

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

from statetok import StateTokens

ROOT = Path(__file__).parents[2]
CONTROL = ["<|endoftext|>", "<|user|>", "<|assistant|>"]
K = 4


def make_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1000,
        special_tokens=CONTROL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    pages = [ROOT.joinpath(name).read_text("utf-8") for name in ("README.md", "CONTRIBUTING.md")]
    tokenizer.train_from_iterator(pages, trainer)
    return tokenizer


def make_model(contract: StateTokens) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=contract.vocab + contract.k,  # the state ids have rows as all others have
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=8192,
        eos_token_id=contract.eot,
        bos_token_id=None,
        pad_token_id=None,
    )
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        # Among so many ids a random model would hardly ever end its reply. A longer row makes this
        # one's score vary more than the others', so that now and then it is the highest.
        model.lm_head.weight[contract.eot] *= 6
    return model


def main(folder: Path) -> None:
    tokenizer = make_tokenizer()
    contract = StateTokens.from_tokenizer(tokenizer, K)
    make_model(contract).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    folder.joinpath("contract.json").write_text(contract.to_json() + "\n", "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
