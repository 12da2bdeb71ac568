"""`from_gguf`: files of the gguf library, held against its reader; and files with every damage."""

import gguf
import numpy as np
import pytest

from statetok import GGUFError, StateTokens
from statetok.gguf import LIMIT, read

TOKENS = ["<|endoftext|>", "<|user|>", "<|assistant|>", "a", "b"]
CONTRACT = StateTokens(vocab=5, k=2, eot=0, user=1, assistant=2)
EVERY_TYPE = {
    "uint8": 255,
    "int8": -128,
    "uint16": 65535,
    "int16": -32768,
    "uint32": 2**32 - 1,
    "int32": -(2**31),
    "float32": 0.5,
    "bool": True,
    "string": "né\n",
    "uint64": 2**64 - 1,
    "int64": -(2**63),
    "float64": 1e300,
}


@pytest.fixture
def write(tmp_path):
    """Write a model file, and return its path."""

    def write(*, tokens=TOKENS, k=2, vocab_size=None, rows=None, eos=None, more=None, big=False):
        path = tmp_path / "model.gguf"
        endian = gguf.GGUFEndian.BIG if big else gguf.GGUFEndian.LITTLE
        writer = gguf.GGUFWriter(path, "llama", endianess=endian)
        if tokens is not None:
            writer.add_tokenizer_model("word")
            writer.add_token_list(tokens)
        if k is not None:
            writer.add_uint32("paperkiln.state_tokens.k", k)
        if vocab_size is not None:
            writer.add_vocab_size(vocab_size)
        if eos is not None:
            writer.add_eos_token_id(eos)
        if more:
            more(writer)
        if rows is not None:
            writer.add_tensor("token_embd.weight", np.zeros((rows, 8), np.float32))
            writer.add_tensor("output_norm.weight", np.zeros(8, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        if rows is not None:
            writer.write_tensors_to_file()
        writer.close()
        return path

    return write


# -- read, beside the library -----------------------------------------------------------------


def add_every_type(writer):
    for name, value in EVERY_TYPE.items():
        getattr(writer, f"add_{name}")(f"one.{name}", value)
    writer.add_array("many.int", [1, -2, 3])
    writer.add_array("many.float", [0.5, -1.0])
    writer.add_array("many.bool", [True, False, True])
    writer.add_array("many.text", ["", "x", "日本"])
    writer.add_array("many.many", [[1, 2], [3]])


@pytest.mark.parametrize("big", [False, True], ids=["little", "big"])
def test_every_value_is_what_was_written_and_what_the_library_reads(write, big):
    path = write(more=add_every_type, rows=7, big=big)
    found = read(path)
    library = gguf.GGUFReader(path)
    for name, value in EVERY_TYPE.items():
        assert found.values[f"one.{name}"] == value
        assert type(found.values[f"one.{name}"]) is type(value)
    assert found.values["many.many"] == [[1, 2], [3]]  # which the library makes flat
    for key, field in library.fields.items():
        if not key.startswith("GGUF.") and key != "many.many":
            assert found.values[key] == field.contents(), key
    assert len(found.values) == len(library.fields) - 3  # of the header itself it makes fields too
    dimensions = {tensor.name: tuple(tensor.shape.tolist()) for tensor in library.tensors}
    assert found.tensors == dimensions == {"token_embd.weight": (8, 7), "output_norm.weight": (8,)}


@pytest.mark.parametrize("big", [False, True], ids=["little", "big"])
def test_version_2(write, big):
    path = write(big=big)
    data = bytearray(path.read_bytes())
    assert data[4:8] == (3).to_bytes(4, "big" if big else "little")
    data[4:8] = (2).to_bytes(4, "big" if big else "little")
    path.write_bytes(data)
    assert StateTokens.from_gguf(path) == CONTRACT


# -- the contract -----------------------------------------------------------------------------


@pytest.mark.parametrize("vocab_size", [None, 5, 7])
@pytest.mark.parametrize("rows", [None, 7, 64])
def test_the_five_numbers(write, vocab_size, rows):
    assert StateTokens.from_gguf(write(vocab_size=vocab_size, rows=rows, eos=0)) == CONTRACT


def test_without_the_key_there_are_no_state_tokens(write):
    assert StateTokens.from_gguf(str(write(k=None))).k == 0


def test_what_is_given_wins(write):
    path = write(tokens=["</s>", "[U]", "[A]", "S0"], k=None, vocab_size=4)
    contract = StateTokens.from_gguf(path, vocab=3, k=1, eot="</s>", user="[U]", assistant=2)
    assert contract == StateTokens(vocab=3, k=1, eot=0, user=1, assistant=2)
    path = write(tokens=None)
    contract = StateTokens.from_gguf(path, vocab=5, eot=0, user=1, assistant=2)
    assert contract == CONTRACT


@pytest.mark.parametrize(
    ("file", "options", "words"),
    [
        ({"tokens": None}, {}, "there is no tokenizer.ggml.tokens: give vocab"),
        ({"tokens": None}, {"vocab": 5}, "no tokenizer.ggml.tokens to look '<|endoftext|>' up in"),
        (
            {"tokens": ["<s>", "a", "[x]"]},
            {},
            "eot: tokenizer.ggml.tokens has no '<|endoftext|>'. Those that look like special ones: "
            "<s>, [x]",
        ),
        (
            {"tokens": [*TOKENS, "<|user|>"]},
            {},
            "user: tokenizer.ggml.tokens has '<|user|>' 2 times, at 1 and at 5: give the id",
        ),
        (
            {"vocab_size": 6},
            {},
            "llama.vocab_size is 6, which is neither vocab nor vocab + k: vocab is 5 (the number "
            "of tokenizer.ggml.tokens) and k is 2 (paperkiln.state_tokens.k)",
        ),
        ({"vocab_size": 5}, {"vocab": 4}, "llama.vocab_size is 5, which is neither vocab nor"),
        (
            {"rows": 6},
            {},
            "token_embd.weight has 6 rows, fewer than vocab + k: vocab is 5 (the number of "
            "tokenizer.ggml.tokens) and k is 2 (paperkiln.state_tokens.k)",
        ),
        ({"k": None, "rows": 5}, {"k": 1}, "token_embd.weight has 5 rows, fewer than vocab + k"),
        (
            {"k": 2**31},
            {},
            "paperkiln.state_tokens.k is 2147483648 (int): it must be an int from 0",
        ),
        ({"k": 2**31 - 1}, {}, "vocab + k is 5 + 2147483647"),
        ({}, {"user": 0}, "eot, user and assistant must be three different ids"),
        ({}, {"user": 5}, "user is 5: it must be an id from 0 to 4"),
    ],
)
def test_what_makes_no_contract(write, file, options, words):
    with pytest.raises(GGUFError) as error:
        StateTokens.from_gguf(write(**file), **options)
    assert str(error.value).startswith(words) or words in str(error.value)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize("value", [2.0, "2", True, [2], -1])
def test_a_k_that_is_no_number(write, value):
    add = {float: "float32", str: "string", bool: "bool", list: "array", int: "int32"}[type(value)]
    path = write(
        k=None, more=lambda writer: getattr(writer, f"add_{add}")("paperkiln.state_tokens.k", value)
    )
    with pytest.raises(GGUFError, match=r"^paperkiln\.state_tokens\.k is "):
        StateTokens.from_gguf(path)


def test_tokens_that_are_no_texts(write):
    path = write(
        tokens=None, more=lambda writer: writer.add_array("tokenizer.ggml.tokens", [1, 2, 3])
    )
    with pytest.raises(GGUFError, match=r"tokenizer\.ggml\.tokens is no list of texts"):
        StateTokens.from_gguf(path)


def test_another_end_of_sequence_is_a_warning(write):
    said = r"tokenizer\.ggml\.eos_token_id is 3 and eot is 0 \('<\|endoftext\|>' of"
    with pytest.warns(UserWarning, match=said) as warned:
        assert StateTokens.from_gguf(write(eos=3)) == CONTRACT
    assert warned[0].filename == __file__


def test_a_text_that_is_no_utf8(write):
    path = write(tokens=[*TOKENS, "\u00ff"])
    path.write_bytes(path.read_bytes().replace("\u00ff".encode(), b"\xff\xfe"))
    assert StateTokens.from_gguf(path).vocab == 6
    assert read(path).values["tokenizer.ggml.tokens"][5] == "\udcff\udcfe"


# -- damage -----------------------------------------------------------------------------------


def answer(path):
    """The contract of a damaged file, or the error; whatever else comes is a failure."""
    try:
        found = StateTokens.from_gguf(path)
    except GGUFError as error:
        found = error
    assert len(str(found)) < 400
    assert str(found).isprintable()
    return found


@pytest.fixture(params=[False, True], ids=["little", "big"])
def small(write, request):
    """A small file with a bit of everything, and how its counts are written."""

    def more(writer):
        writer.add_array("x.bools", [True])
        writer.add_array("x.many", [[1], [2]])
        writer.add_float32("x.f", 1.0)

    path = write(vocab_size=7, rows=7, eos=0, more=more, big=request.param)
    assert StateTokens.from_gguf(path) == CONTRACT
    return path, "big" if request.param else "little"


def end_of_metadata(path):
    return min(tensor.data_offset for tensor in gguf.GGUFReader(path).tensors)


@pytest.mark.filterwarnings("ignore:tokenizer.ggml.eos_token_id")
def test_every_truncation(small):
    path, _ = small
    data = path.read_bytes()
    end = end_of_metadata(path)
    for size in range(end):
        path.write_bytes(data[:size])
        refused = isinstance(answer(path), GGUFError)
        assert refused or size >= end - 32, size  # in front of the data there is padding


@pytest.mark.filterwarnings("ignore:tokenizer.ggml.eos_token_id")
def test_every_corruption_of_a_byte(small):
    path, _ = small
    data = path.read_bytes()
    for place in range(end_of_metadata(path)):
        for byte in (0, 1, 2, 0x7F, 0x80, 0xFF, data[place] ^ 1, data[place] ^ 0x20):
            path.write_bytes(data[:place] + bytes([byte]) + data[place + 1 :])
            answer(path)


@pytest.mark.parametrize("count", [2**31, 2**40, 2**63, 2**64 - 1])
@pytest.mark.filterwarnings("ignore:tokenizer.ggml.eos_token_id")
def test_every_count_made_huge(small, count):
    """Eight bytes that say a great number, wherever a count, a length or anything else stands."""
    path, order = small
    data = path.read_bytes()
    for place in range(8, end_of_metadata(path) - 8):
        path.write_bytes(data[:place] + count.to_bytes(8, order) + data[place + 8 :])
        answer(path)
    for place, words in ((8, "tensors at byte"), (16, "keys at byte 24 cannot be in the")):
        path.write_bytes(data[:place] + count.to_bytes(8, order) + data[place + 8 :])
        assert f"{count} {words}" in str(answer(path))


@pytest.mark.parametrize("declared", [LIMIT + 1, 2**31])
def test_a_count_that_the_file_could_hold_is_bounded_all_the_same(tmp_path, declared):
    """A model file has room for many elements in its tensor data."""
    path = tmp_path / "sparse.gguf"
    key = b"tokenizer.ggml.tokens"
    for kind, words in (
        (9, "elements: 16777216 are read at most"),
        (8, "bytes: 16777216 are read"),
    ):
        parts = [b"GGUF", (3).to_bytes(4, "little"), bytes(8), (1).to_bytes(8, "little")]
        parts += [len(key).to_bytes(8, "little"), key, kind.to_bytes(4, "little")]
        parts += [bytes(4)] if kind == 9 else []  # of uint8
        parts += [declared.to_bytes(8, "little")]
        with path.open("wb") as file:
            file.write(b"".join(parts))
            file.truncate(2**32)
        assert words in str(answer(path))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "4 bytes of the magic at byte 0 cannot be in the 0 bytes that follow"),
        (b"GGML" + bytes(40), "this is no GGUF file: it begins with b'GGML'"),
        (b"GGUF\x01\0\0\0" + bytes(40), "the GGUF version is 1: 2 and 3 can be read"),
        (b"GGUF\x04\0\0\0" + bytes(40), "the GGUF version is 4"),
    ],
)
def test_other_files(tmp_path, data, words):
    path = tmp_path / "other"
    path.write_bytes(data)
    assert words in str(answer(path))


def test_what_is_no_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        StateTokens.from_gguf(tmp_path / "none")
    with pytest.raises(GGUFError, match="is no regular file"):
        StateTokens.from_gguf(tmp_path)


def test_a_key_that_is_there_twice(write):
    path = write(more=lambda writer: writer.add_uint32("paperkiln.state_tokens.j", 3))
    data = path.read_bytes().replace(b"state_tokens.j", b"state_tokens.k")
    path.write_bytes(data)
    assert "the key paperkiln.state_tokens.k is there again at byte" in str(answer(path))
