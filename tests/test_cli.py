"""The command, by what a person gives it and sees. Expected values are written by hand."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time

import gguf
import pytest
from click import Option
from click.testing import CliRunner
from tokenizers import Tokenizer, models, pre_tokenizers, processors

import statetok
from statetok.cli import statetok as command

# Pipes, pseudo-terminals and signals are what a process meets here.
termios = pytest.importorskip("termios", reason="needs a POSIX system")

NUMBERS = ["--vocab", "100", "--k", "2", "--eot", "0", "--user", "1", "--assistant", "2"]
# What makes rich look at something other than the stream it writes to.
PLAIN = {"COLUMNS": "80", "FORCE_COLOR": None, "NO_COLOR": None, "TTY_COMPATIBLE": None}
BAD = "[1, 50, 2, -100]\n"
BAD_SAID = (
    "token id -100 at position 3 is negative\n"
    "  -100 marks ignored labels: were labels passed in place of input ids?\n"
)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run the command in an empty directory, with the contract's numbers after the arguments."""
    monkeypatch.chdir(tmp_path)

    def run(*args, stdin=None, contract=NUMBERS, columns=80):
        env = PLAIN | {"COLUMNS": str(columns)}
        result = CliRunner(env=env).invoke(command, [*args, *contract], input=stdin)
        assert isinstance(result.exception, SystemExit | None)  # never a traceback
        return result

    return run


def without_trailing_spaces(text):
    """Return what a person sees; rich leaves the space at which it wraps a line."""
    return re.sub(r" +$", "", text, flags=re.M)


@pytest.fixture
def start(tmp_path):
    """Start the command as a process, by default with pipes for its three streams."""
    started = []

    def start(*args, before="", contract=NUMBERS, **streams):
        code = (
            f"import runpy, signal, sys, statetok.cli\n{before}\nsys.argv[0] = 'statetok'\n"
            "runpy.run_module('statetok', run_name='__main__')"
        )
        ambient = {*PLAIN, "PYTHONUNBUFFERED"}  # unbuffered, a missing flush would not be seen
        env = {name: value for name, value in os.environ.items() if name not in ambient}
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        python = [sys.executable, "-W", "error", "-c", code, *args, *contract]
        started.append(subprocess.Popen(python, cwd=tmp_path, env=env, **pipes | streams))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


# -- insert and strip ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("[1, 50, 2, 51, 0]\n", "[1,50,2,51,0,100,101]\n"),
        ("[1, 50, 2, 51, 1, 52]\n", "[1,50,2,51,0,100,101,1,52]\n"),
        ("[1, 50, 2, 51, 0, 100, 101]\n", "[1,50,2,51,0,100,101]\n"),
        ("[]\n", "[]\n"),
        ("[1]", "[1]\n"),
        ("", ""),
        (" \n\n[1]\r\n\t\n[2]\r\n\n", "[1]\n[2]\n"),
        ("\ufeff[1]\n", "[1]\n"),
        ("\ufeff\n[1]\n", "[1]\n"),
        # The other fields: order, values, text as it reads, what JSON must escape.
        (
            '{"z": {"b": [1e5, null]}, "input_ids": [2, 0], "a": "é日\\u00e9", "input": true}\n',
            '{"z":{"b":[100000.0,null]},"input_ids":[2,0],"a":"é日é","input":true}\n',
        ),
        (
            '{"input_ids": [1, 2, 0], "n": 123456789012345678901234567890, "x": -0.1}\n',
            '{"input_ids":[1,2,0,100,101],"n":123456789012345678901234567890,"x":-0.1}\n',
        ),
        (
            r'{"input_ids": [], "s": "\ud83d \\ud83d \ud83d\ude00 \u0001\n\""}',
            r'{"input_ids":[],"s":"\ud83d \\ud83d 😀 \u0001\n\""}' + "\n",
        ),
        ('{"input_ids": [], "s": "\u2028\x85"}\n', '{"input_ids":[],"s":"\u2028\x85"}\n'),
    ],
)
def test_insert_line(run, given, expected):
    result = run("insert", "-", stdin=given.encode())
    assert result.stdout_bytes.decode() == expected
    assert (result.exit_code, result.stderr) == (0, "")


def test_strip_line(run):
    lines = '[1, 50, 2, 51, 0, 100, 101]\n[101, 5]\n{"a": 1, "input_ids": [100], "b": 2}\n'
    result = run("strip", "-", stdin=lines)
    assert result.stdout == '[1,50,2,51,0]\n[5]\n{"a":1,"input_ids":[],"b":2}\n'
    assert (result.exit_code, result.stderr) == (0, "")


def test_strip_refuses(run):
    result = run("strip", "-", stdin="[1, 100, 102]\n")
    assert result.stdout == ""
    assert result.stderr.startswith("Error: <stdin>:1: token id 102 at position 2 is neither")
    assert result.exit_code == 1


@pytest.mark.parametrize("name", ["insert", "strip", "show"])
def test_field(run, name):
    line = '{"input_ids": "kept", "ids": [1, 2]}\n'
    result = run(name, "-", "--field", "ids", stdin=line)
    assert result.exit_code == 0
    assert ("kept" in result.stdout) == (name != "show")
    result = run(name, "-", "--field", "other", stdin=line)
    assert result.exit_code == 1
    said = "<stdin>:1: no field 'other' in the object; it begins with: 'input_ids', 'ids'"
    assert said in " ".join(result.output.split())


def test_several_files_and_stdin(run, tmp_path):
    (tmp_path / "a").write_text("[1]\n[2, 0]")
    (tmp_path / "b").write_text("\n[3]\n")
    result = run("insert", "a", "-", "b", "a", stdin="[4]\n")
    assert result.stdout == "[1]\n[2,0]\n[4]\n[3]\n[1]\n[2,0]\n"
    (tmp_path / "b").write_text("\n[3]\n[-1]\n")
    result = run("insert", "a", "b")
    assert result.stdout == "[1]\n[2,0]\n[3]\n"
    assert result.stderr == "Error: b:3: token id -1 at position 0 is negative\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"[1, 2", "not JSON: Expecting ',' delimiter: column 6"),
        (b"[1] [2]", "not JSON: Extra data: column 5"),
        (b"\x00", "not JSON: Expecting value: column 1"),
        (b"[NaN]", "the number NaN is none that a 64-bit float can hold"),
        (
            b'{"input_ids": [], "x": -Infinity}',
            "the number -Infinity is none that a 64-bit float can hold",
        ),
        (
            b'{"input_ids": [], "x": -1e400}',
            "the number -1e400 is none that a 64-bit float can hold",
        ),
        (b'{"input_ids": [], "x": {"k": 1, "j": 2, "k": 1}}', "the key 'k' is there twice in one"),
        (b'{"[red]\\u001b": 1, "[red]\\u001b": 1}', r"the key '[red]\x1b' is there twice"),
        (b'["\xff"]', "not UTF-8: invalid start byte at byte 2"),
        (b"\xef\xbb", "not UTF-8: unexpected end of data at byte 0"),
        ("[1]".encode("utf-16"), "not UTF-8: invalid start byte at byte 0"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b"null", "a line must be a list, or an object with one, not None"),
        (b'"' + b"x" * 100_000 + b'"', "a line must be a list, or an object with one"),
        (b"{}", "no field 'input_ids' in the object; it begins with: none"),
        (b'{"' + b"k" * 100_000 + b'": 1}', "no field 'input_ids' in the object"),
        (
            b'{"input_ids": "at position 99"}',
            "ids must be a sequence of ints, not 'at position 99'",
        ),
        (b'{"input_ids": null}', "ids must be a sequence of ints, not None"),
        (b"[1, 2.0]", "the id at position 1 must be an int, not 2.0 (float)"),
        (b"[true]", "the id at position 0 must be an int, not True (bool)"),
        (b"[1, [2]]", "the id at position 1 must be an int, not list"),
        (b"[4294967298]", "the id at position 0 is 4294967298: an id must fit in 32 bits"),
        (b"[" + b"9" * 5000 + b"]", "an integer has more than 4,300 digits"),
        (b"[" + b"5," * 100_000 + b"-1]", "token id -1 at position 100000 is negative"),
        (b"[1, 2, 0, 100]", "the state block after the <|endoftext|> at position 2 is not"),
    ],
)
@pytest.mark.parametrize("name", ["insert", "show"])
def test_bad_line(run, tmp_path, name, line, said):
    (tmp_path / "in").write_bytes(b"[7]\n\n" + line + b"\n[8]\n")
    result = run(name, "in", columns=1000)
    stream = result.stderr if name == "insert" else result.stdout
    assert f"in:3: {said}" in stream
    assert max(map(len, result.output.split("\n"))) < 300
    assert result.exit_code == 1
    assert name == "show" or result.stdout == "[7]\n"


def test_result_too_large_for_memory(run, monkeypatch):
    def bind(*_):
        def insert(*_):
            raise MemoryError

        return insert

    monkeypatch.setattr(statetok.contract, "bind", bind)
    monkeypatch.setattr(statetok.contract, "insert_with_edits", bind())
    for name in ("insert", "show"):
        result = run(name, "-", stdin="[1]\n")
        assert "<stdin>:1: the result does not fit in memory" in result.output


def test_bad_line_tells_position_and_note(run):
    result = run("insert", "-", stdin=BAD)
    assert result.stderr == f"Error: <stdin>:1: {BAD_SAID}"


def test_skip_invalid(run):
    result = run("insert", "-", "--skip-invalid", stdin=f"[1]\n{BAD}[2]\nx\n")
    assert result.stdout == "[1]\n[2]\n"
    assert result.stderr == (
        f"Skipped 2 bad lines:\n<stdin>:2: {BAD_SAID}"
        "<stdin>:4: not JSON: Expecting value: column 1\n"
    )
    assert result.exit_code == 0


@pytest.mark.parametrize(("count", "last"), [(20, "<stdin>:20: "), (21, "and 1 more")])
def test_skip_invalid_lists_twenty(run, count, last):
    said = run("strip", "-", "--skip-invalid", stdin="x\n" * count).stderr.splitlines()
    assert said[0] == f"Skipped {count} bad lines:"
    assert len(said) == 1 + count
    assert said[20].startswith("<stdin>:20: ")
    assert said[-1].startswith(last)


def test_skip_invalid_without_bad_lines_is_silent(run):
    result = run("insert", "-", "--skip-invalid", stdin="[1]\n")
    assert (result.stdout, result.stderr) == ("[1]\n", "")


def test_unprintable_file_name_is_escaped(run, tmp_path):
    (tmp_path / "a\x1b[31m\n").write_text("x\n")
    result = run("insert", "a\x1b[31m\n")
    assert result.stderr.startswith(r"Error: 'a\x1b[31m\n':1: not JSON")


# -- the contract's options ------------------------------------------------------------------


def test_contract_file(run, tmp_path):
    (tmp_path / "c.json").write_text(
        '{"vocab": 100, "k": 2, "eot": 0, "user": 1, "assistant": 2}\n'
    )
    result = run("insert", "-", contract=["--contract", "c.json"], stdin="[1,2,0]\n")
    assert result.stdout == "[1,2,0,100,101]\n"


@pytest.mark.parametrize(
    ("contract", "said"),
    [
        (
            [],
            "give --contract FILE, --gguf FILE, --tokenizer FILE with --k, or all of --vocab, --k",
        ),
        (NUMBERS[2:], "The contract is missing: give --vocab."),
        (["--k", "0", "--eot", "0"], "The contract is missing: give --vocab, --user, --assistant."),
        (["--contract", "c", "--k", "0"], "Give --contract or the numbers, not both: --k."),
        (["--contract", "c"], "The contract in c is wrong: a contract has the fields vocab, k"),
        (
            ["--contract", "nested"],
            "The contract in nested is wrong: a contract is a JSON object of numbers; this",
        ),
        (["--contract", "latin1"], "The contract in latin1 is wrong: 'utf-8' codec can't decode"),
        (["--contract", "none"], "'none' does not exist"),
        ([*NUMBERS, "--k", "-1"], "The contract is wrong: k is -1: it must be at least 0."),
        ([*NUMBERS, "--user", "0"], "The contract is wrong: eot, user and assistant must be"),
        ([*NUMBERS, "--k", str(2**31)], "The contract is wrong: k is 2147483648"),
    ],
)
@pytest.mark.parametrize("name", ["insert", "show"])
def test_contract_faults(run, tmp_path, name, contract, said):
    (tmp_path / "c").write_text('{"vocab": 100}')
    (tmp_path / "nested").write_text("[" * 100_000)
    (tmp_path / "latin1").write_bytes(b'"\xe9"')
    result = run(name, "-", contract=contract, stdin="[1]\n")
    assert said in result.stderr
    assert result.stdout == ""
    assert result.exit_code == 2


# -- where the output goes -------------------------------------------------------------------


def listing(path):
    return sorted(entry.name for entry in path.iterdir())


def test_output_replaces_an_input(run, tmp_path):
    (tmp_path / "a").write_text("[1, 2, 0]\n")
    assert run("insert", "a", "a", "-o", "a").exit_code == 0
    assert (tmp_path / "a").read_text() == "[1,2,0,100,101]\n" * 2
    assert listing(tmp_path) == ["a"]


@pytest.mark.parametrize("stdin", [f"[1]\n{BAD}", "[" * 100_000], ids=["second", "first"])
def test_failure_leaves_the_old_output(run, tmp_path, stdin):
    (tmp_path / "out").write_text("old")
    assert run("insert", "-", "-o", "out", stdin=stdin).exit_code == 1
    assert (tmp_path / "out").read_text() == "old"
    assert run("insert", "-", "-o", "new", stdin=stdin).exit_code == 1
    assert listing(tmp_path) == ["out"]


def test_output_permissions(run, tmp_path):
    umask = os.umask(0o027)
    try:
        run("insert", "-", "-o", "new", stdin="[1]\n")
        (tmp_path / "old").touch()
        (tmp_path / "old").chmod(0o606)
        run("insert", "-", "-o", "old", stdin="[1]\n")
    finally:
        os.umask(umask)
    modes = {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in listing(tmp_path)}
    assert modes == {"new": 0o640, "old": 0o606}
    assert (tmp_path / "old").read_text() == "[1]\n"


def test_output_link_stays(run, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "link").symlink_to("sub/target")  # dangling at first
    for stdin, expected in (("[1]\n", "[1]\n"), ("[2]\n", "[2]\n")):
        assert run("insert", "-", "-o", "link", stdin=stdin).exit_code == 0
        assert (tmp_path / "sub/target").read_text() == expected
    assert (tmp_path / "link").is_symlink()
    assert listing(tmp_path / "sub") == ["target"]


def test_output_to_standard_output(run):
    assert run("insert", "-", "-o", "-", stdin="[1]\n").stdout == "[1]\n"


def test_output_to_what_is_no_regular_file(start, tmp_path):
    # Never a real device: code that is broken here would replace it, for the whole machine.
    os.mkfifo(tmp_path / "pipe")
    pipe = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    process = start("insert", "-", "-o", "pipe")
    process.communicate(b"[1]\n", 120)
    assert os.read(pipe, 100) == b"[1]\n"
    os.close(pipe)
    assert process.returncode == 0
    assert listing(tmp_path) == ["pipe"]


@pytest.mark.parametrize("name", ["insert", "show"])
def test_full_disk(start, name):
    with open("/dev/full", "wb") as full:
        process = start(name, "-", stdout=full)
        _, said = process.communicate(b"[1]\n", 120)
    assert said == b"Error: [Errno 28] No space left on device\n"
    assert process.returncode == 1


@pytest.mark.parametrize(
    ("args", "status", "said"),
    [
        (["insert", "none"], 2, "File 'none' does not exist."),
        (["insert", "."], 2, "File '.' is a directory."),
        (["insert"], 2, "Missing argument 'FILE...'."),
        (["insert", "-", "-o", "."], 2, "File '.' is a directory."),
        (["insert", "-", "-o", "none/out"], 1, "none/out: No such file or directory"),
        (["show", "none"], 2, "File 'none' does not exist."),
        (["show", "-", "--tokenizer", "none"], 2, "File 'none' does not exist."),
    ],
)
def test_file_faults(run, args, status, said):
    result = run(*args, stdin="[1]\n")
    assert said in result.stderr
    assert (result.exit_code, result.stdout) == (status, "")


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 1), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -9)],
)
def test_interrupted_run_leaves_the_old_output(start, tmp_path, number, status):
    (tmp_path / "out").write_text("old")
    # A shell may have started the tests with these ignored, which children inherit.
    before = (
        "signal.signal(signal.SIGINT, signal.default_int_handler); "
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)"
    )
    process = start("insert", "-", "-o", "out", before=before)
    process.stdin.write(b"[1,2,0]\n" * 10_000)
    process.stdin.flush()
    deadline = time.monotonic() + 20
    while not any(path.stat().st_size for path in tmp_path.glob(".statetok*")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(number)
    assert process.wait(20) == status
    assert (tmp_path / "out").read_text() == "old"
    assert number == signal.SIGKILL or listing(tmp_path) == ["out"]
    assert b"Traceback" not in process.stderr.read()


def test_nohup_is_respected(start, tmp_path):
    process = start("show", "-", before="signal.signal(signal.SIGHUP, signal.SIG_IGN)")
    process.stdin.write(b"[7]\n")
    process.stdin.flush()
    assert process.stdout.readline()
    process.send_signal(signal.SIGHUP)
    process.communicate(None, 120)
    assert process.returncode == 0


@pytest.mark.parametrize("name", ["insert", "show"])
def test_broken_pipe_is_quiet(start, tmp_path, name):
    (tmp_path / "in").write_text("[1, 50, 2, 51, 0]\n" * 20_000)
    process = start(name, "in")
    assert process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(20) == 1


def test_lines_are_read_one_by_one(start):
    process = start("show", "-")
    process.stdin.write(b"[7]\n")
    process.stdin.flush()
    # Three screen lines, while the input is still open.
    said = [process.stdout.readline() for _ in range(3)]
    assert said == [b"<stdin>:1: 1 ids in, 1 out\n", b"0 7\n", b"\n"]


# -- terminals -------------------------------------------------------------------------------


@pytest.fixture
def terminal():
    """Open a terminal 24 columns wide; return its end for a process, and what reads the other."""
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (40, 24))

    def read():
        os.close(theirs)
        parts = []
        try:
            while part := os.read(ours, 65536):
                parts.append(part)
        except OSError:  # how Linux says that nobody holds the other end any more
            pass
        os.close(ours)
        return b"".join(parts).decode().replace("\r\n", "\n")

    return theirs, read


def test_show_on_a_narrow_terminal(start, terminal):
    theirs, read = terminal
    process = start("show", "-", stdout=theirs)
    process.communicate(b"[1, 50, 2, 51, 52, 53, 54, 55, 1]\n", 120)
    seen = read()
    assert "\x1b[36m<|user|>" in seen
    assert "\x1b[32m<|assistant|>" in seen
    plain = re.sub(r"\x1b\[[0-9;]*m", "", seen)
    assert [line.rstrip() for line in plain.splitlines()] == [
        "<stdin>:1: 9 ids in, 12",
        "out",
        "0 <|user|> 50",
        "2 <|assistant|> 51 52 53",
        "  54 55 +<|endoftext|>",
        "  +S0 +S1",
        "8 <|user|>",
        "",
    ]


def test_no_color(start, terminal):
    theirs, read = terminal
    start("show", "-", stdout=theirs, before="import os; os.environ['NO_COLOR'] = '1'").communicate(
        b"[1, 2]\n", 20
    )
    assert not re.search(r"\x1b\[[0-9;]*3\dm", read())


@pytest.mark.parametrize(
    ("before", "to_terminal", "bar"),
    [
        ("statetok.cli.PATIENCE = 0", ["stderr"], True),
        ("statetok.cli.PATIENCE = 0", ["stderr", "stdout"], False),
        ("statetok.cli.PATIENCE = 0", [], False),
        ("", ["stderr"], False),  # the work is short
    ],
)
def test_progress(start, terminal, tmp_path, before, to_terminal, bar):
    (tmp_path / "in").write_text("[1]\n" * 500)
    theirs, read = terminal
    process = start("insert", "in", before=before, **dict.fromkeys(to_terminal, theirs))
    _, said = process.communicate(None, 120)
    seen = read()
    assert ("2.0/2.0" in seen) == bar
    assert ("\x1b" in seen) == bar
    assert not said


# -- show ------------------------------------------------------------------------------------


def test_show(run, tmp_path):
    lines = [
        [1, 50, 2, 51, 52, 1, 53, 2, 54, 0, 100, 101, 55, 0, 0, 1, 2, 0],
        [],
        [5, 2, *range(10, 24), 1, *range(10, 23)],
    ]
    (tmp_path / "in").write_text("\n\n".join(map(json.dumps, lines)))
    result = run("show", "in")
    assert (
        result.stdout
        == """\
in:1: 18 ids in, 23 out
 0 <|user|> 50
 2 <|assistant|> 51 52 +<|endoftext|> +S0 +S1
 5 <|user|> 53
 7 <|assistant|> 54 <|endoftext|> S0 S1
12 55 <|endoftext|> <|endoftext|>
15 <|user|>
16 <|assistant|> <|endoftext|> +S0 +S1

in:3: 0 ids in, 0 out

in:5: 30 ids in, 30 out
 0 5 <|assistant|> 10 11 12 13 14 15 16 17 ... 20 21 22 23 (14 ids)
16 <|user|> 10 11 12 13 14 15 16 17 18 19 20 21 22

"""
    )
    assert (result.exit_code, result.stderr) == (0, "")


def test_show_shortens_a_long_state_block(run):
    twenty = [*NUMBERS, "--k", "20"]
    result = run("show", "-", contract=twenty, stdin="[1, 2, 0]\n", columns=120)
    assert "+S0 +S1 +S2 +S3 +S4 +S5 +S6 +S7 ... +S16 +S17 +S18 +S19 (20 ids)" in result.stdout


def test_show_without_state_tokens(run):
    result = run("show", "-", contract=[*NUMBERS, "--k", "0"], stdin="[-5, 0]\n")
    assert "\n0 -5 <|endoftext|>\n" in result.stdout


def test_show_bad_sequences(run):
    lines = [
        "[3, 4, 5, 1, 50, 2, 51, -100, 7, 8, 9, 10, 11, 12]",
        "[100]",
        "[1, 2, 0, 101]",
        "",
        "[3, [4]]",
        "5",
        "[6]",
    ]
    result = run("show", "-", stdin="\n".join(lines), columns=60)
    assert (
        without_trailing_spaces(result.stdout)
        == """\
<stdin>:1: token id -100 at position 7 is negative
  -100 marks ignored labels: were labels passed in place of
input ids?
... 5 <|user|> 50 <|assistant|> 51 -100 7 8 9 10 11 ...
                                   ^^^^

<stdin>:2: state id 100 at position 0 is not part of a
complete state block directly after an <|endoftext|> that
ends an assistant reply
100
^^^

<stdin>:3: the state block after the <|endoftext|> at
position 2 is not the 2 ids 100 .. 101 in order
<|user|> <|assistant|> <|endoftext|> 101
                       ^^^^^^^^^^^^^

<stdin>:5: the id at position 1 must be an int, not list:
pass one sequence at a time
3 [4]
  ^^^

<stdin>:6: a line must be a list, or an object with one, not
5

<stdin>:7: 1 ids in, 1 out
0 6

"""
    )
    assert result.stderr == "Error: 5 of 6 lines cannot be used\n"
    assert result.exit_code == 1


@pytest.mark.parametrize(
    ("columns", "line", "place"),
    [
        (80, "[5, 6, 7, 8, 9, -1, 5, 6, 7, 8, 9]", "5 6 7 8 9 -1 5 6 7 8 9"),
        (80, "[4, 5, 6, 7, 8, 9, -1, 5, 6, 7, 8, 9, 10]", "... 5 6 7 8 9 -1 5 6 7 8 9 ..."),
        (31, "[1, 50, 2, -1, 7, 8, 9]", "... 50 <|assistant|> -1 7 8 ..."),
        (30, "[1, 50, 2, -1, 7, 8, 9]", "... <|assistant|> -1 7 ..."),
        (20, "[1, 50, 2, -1, 7, 8, 9]", "-1"),
    ],
)
def test_show_points_at_the_place(run, columns, line, place):
    result = run("show", "-", stdin=line, columns=columns)
    assert f"\n{place}\n{' ' * place.index('-1')}^^\n\n" in result.stdout


def test_show_names_odd_elements_in_few_characters(run):
    stdin = json.dumps([1, "日\x1b" + "x" * 1000, 10**40, True])
    result = run("show", "-", stdin=stdin)
    assert result.stdout.endswith(
        "\n<|user|> '日\\x1bxxxxxxx... 1000000000000... True\n         " + "^" * 17 + "\n\n"
    )


@pytest.fixture
def tokenizer_json(tmp_path):
    words = {"e": 0, "u": 1, "a": 2, "hello": 50, "[bold]you[/]": 51, "\x1b[31m\n": 52, "日本": 53}
    Tokenizer(models.WordLevel(words, unk_token="e")).save(str(tmp_path / "t.json"))
    return "t.json"


def test_show_decoded(run, tokenizer_json):
    stdin = "[1, 50, 51, 2, 52, 60, 50, 1, 53, 53]\n"
    result = run("show", "-", "--tokenizer", tokenizer_json, stdin=stdin)
    assert (
        result.stdout
        == r"""<stdin>:1: 10 ids in, 13 out
 0 <|user|> 'hello [bold]you[/]'
 3 <|assistant|> '\x1b[31m\n' 60 'hello' +<|endoftext|> +S0 +S1
 7 <|user|> '日本 日本'

"""
    )
    result = run("show", "-", "--tokenizer", tokenizer_json, stdin=stdin, columns=20)
    narrow = [line.rstrip() for line in result.stdout.splitlines()]
    assert narrow == [
        "<stdin>:1: 10 ids",
        "in, 13 out",
        " 0 <|user|> 'hello",
        "   [bold]you[/]'",
        " 3 <|assistant|>",
        r"   '\x1b[31m\n' 60",
        "   'hello'",
        "   +<|endoftext|>",
        "   +S0 +S1",
        " 7 <|user|> '日本",
        "   日本'",
        "",
    ]


def test_show_decoded_without_state_tokens(run, tokenizer_json):
    no_state = [*NUMBERS, "--k", "0", "--tokenizer", tokenizer_json]
    result = run("show", "-", contract=no_state, stdin="[-5, 50]\n")
    assert "\n0 -5 'hello'\n" in result.stdout


def test_show_where_the_terminal_lacks_characters(start, tokenizer_json):
    in_ascii = "sys.stdout.reconfigure(encoding='ascii', errors='strict')"
    process = start("show", "-", "--tokenizer", tokenizer_json, before=in_ascii)
    shown, said = process.communicate(b"[53]\n", 120)
    assert b"\n0 '\\u65e5\\u672c'\n" in shown
    assert (process.returncode, said) == (0, b"")


def test_tokenizer_faults(run, tmp_path, tokenizer_json, monkeypatch):
    (tmp_path / "bad.json").write_text("{}")
    result = run("show", "-", "--tokenizer", "bad.json", stdin="[1]\n")
    assert "Invalid value for --tokenizer: bad.json: " in result.stderr
    assert result.exit_code == 2
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    result = run("show", "-", "--tokenizer", tokenizer_json, stdin="[1]\n")
    assert result.stderr == (
        "Error: --tokenizer needs the tokenizers library: pip install tokenizers\n"
    )
    assert result.exit_code == 1


# -- check -----------------------------------------------------------------------------------


def test_check(run, tmp_path):
    (tmp_path / "in").write_text('[1, 2, 0, 100, 101]\n{"input_ids": [5]}\n')
    result = run("check", "in")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "2 lines, all with their state blocks\n"


def test_check_names_what_is_wrong(run):
    result = run("check", "-", stdin=f"[1, 2, 0]\n[5]\n[1, 2, 7, 1]\n{BAD}nonsense\n")
    assert result.stdout == (
        "<stdin>:1: the state block after the <|endoftext|> at position 2 is missing\n"
        "<stdin>:3: the reply before the <|user|> at position 3 lacks its <|endoftext|> and state "
        "block\n"
        f"<stdin>:4: {BAD_SAID}"
        "<stdin>:5: not JSON: Expecting value: column 1\n"
    )
    assert result.stderr == "Error: 4 of 5 lines are wrong\n"
    assert result.exit_code == 1


def test_check_lists_twenty(run):
    result = run("check", "-", stdin="[1, 2, 0]\n" * 22)
    assert [result.stdout.count("is missing"), result.stdout.count("and 2 more")] == [20, 1]
    assert result.stderr == "Error: 22 of 22 lines are wrong\n"


# -- encode ----------------------------------------------------------------------------------


@pytest.fixture
def chat_json(tmp_path):
    words = ["<|endoftext|>", "<|user|>", "<|assistant|>", "a", "b", "<s>", "<", "|", ">", "user"]
    tokenizer = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="a")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(words[:3])
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 5)])
    tokenizer.enable_truncation(1)  # which would lose text,
    tokenizer.enable_padding(length=4)  # and this add ids that are none of it
    tokenizer.save(str(tmp_path / "chat.json"))
    return ["--tokenizer", "chat.json", "--k", "2"]


CHAT = [{"role": "user", "content": "b a"}, {"role": "assistant", "content": "b"}]


def test_encode(run, chat_json):
    lines = [json.dumps(CHAT), json.dumps({"id": 7, "messages": CHAT[:1], "n": 1})]
    result = run("encode", "-", contract=chat_json, stdin="\n".join(lines))
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == '[1,4,3,2,4,0,10,11]\n{"id":7,"input_ids":[1,4,3],"n":1}\n'


@pytest.mark.parametrize(
    ("options", "messages", "ids"),
    [
        (["--add-generation-prompt"], CHAT[:1], "[1,4,3,2]"),
        (["--continue-final-message"], CHAT, "[1,4,3,2,4]"),
        (["--prefix", "<s>", "--prefix", "7"], CHAT[:1], "[5,7,1,4,3]"),
        (["--field", "chat"], {"chat": CHAT[:1]}, '{"input_ids":[1,4,3]}'),
        (["--user", "b", "--eot", "4"], CHAT[:1], None),  # a control id twice
    ],
)
def test_encode_options(run, chat_json, options, messages, ids):
    result = run("encode", "-", *options, contract=chat_json, stdin=json.dumps(messages))
    assert result.exit_code == (0 if ids else 2)
    assert result.stdout == (f"{ids}\n" if ids else "")


def test_encode_reads_no_token_out_of_a_text(run, chat_json):
    line = json.dumps([{"role": "user", "content": "<|user|>"}])
    result = run("encode", "-", contract=chat_json, stdin=line)
    assert (result.exit_code, json.loads(result.stdout)[0]) == (0, 1)
    assert 1 not in json.loads(result.stdout)[1:]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ([CHAT[1]], "message 0 is of the assistant and follows no user"),
        ({"messages": CHAT, "input_ids": []}, "the object has a field 'input_ids' already"),
        ({"text": "a"}, "no field 'messages' in the object; it begins with: 'text'"),
        ([{"role": "user", "content": "\ud800"}], ""),
    ],
)
def test_encode_bad_lines(run, chat_json, line, said):
    result = run("encode", "-", contract=chat_json, stdin=json.dumps(line))
    assert f"Error: <stdin>:1: {said}" in result.stderr
    assert (result.exit_code, result.stdout) == (1, "")


@pytest.mark.parametrize(
    ("contract", "said"),
    [
        (NUMBERS, "'encode' needs --tokenizer FILE."),
        (["--tokenizer", "chat.json"], "with --tokenizer give --k"),
        (["--tokenizer", "chat.json", "--k", "2", "--vocab", "5"], "and not --vocab"),
        (["--tokenizer", "chat.json", "--k", "2", "--user", "<u>"], "no token '<u>'. Those that"),
        (["--tokenizer", "chat.json", "--k", "2", "--prefix", "<u>"], "--prefix: no token '<u>'"),
        (["--tokenizer", "chat.json", *NUMBERS, "--user", "x"], "user must be an int, not 'x'"),
    ],
)
def test_encode_contract_faults(run, chat_json, contract, said):
    result = run("encode", "-", contract=contract, stdin=json.dumps(CHAT))
    assert said in result.stderr
    assert (result.exit_code, result.stdout) == (2, "")


# -- info, help, and the way in --------------------------------------------------------------


def test_info(run):
    result = run("info", contract=[])
    facts = dict(line.split(maxsplit=1) for line in result.stdout.splitlines())
    assert facts["statetok"] == statetok.__version__
    assert facts["implementation"] == statetok.implementation
    assert facts["header"] == "e6262c39c2609c8eed129c2204dcefb0cbdf9065e5c05f89ecc1cf5003647fff"
    assert facts["python"].endswith(".".join(map(str, sys.version_info[:3])))
    assert "contract" not in facts
    assert result.exit_code == 0
    said = run("info").stdout.splitlines()
    assert said[-1] == "contract        StateTokens(vocab=100, k=2, eot=0, user=1, assistant=2)"
    assert run("info", contract=["--k", "2"]).exit_code == 2


@pytest.fixture
def model_gguf(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama")
    writer.add_token_list(["<|endoftext|>", "<|user|>", "<|assistant|>", "a"])
    writer.add_uint32("paperkiln.state_tokens.k", 2)
    writer.add_eos_token_id(3)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return "model.gguf"


EOS_WARNING = (
    "Warning: tokenizer.ggml.eos_token_id is 3 and eot is 0 ('<|endoftext|>' of "
    "tokenizer.ggml.tokens): is this the token that ends a reply?\n"
)


@pytest.mark.parametrize("options", [["model.gguf"], ["--gguf", "model.gguf"]])
def test_info_of_a_model(run, model_gguf, options):
    result = run("info", *options, "--user", "3", contract=[])
    assert result.exit_code == 0
    assert result.stderr == EOS_WARNING
    assert result.stdout.partition("contract")[2] == (
        "        StateTokens(vocab=4, k=2, eot=0, user=3, assistant=2)\n"
        "vocab           4           the number of tokenizer.ggml.tokens\n"
        "k               2           paperkiln.state_tokens.k\n"
        "eot             0           '<|endoftext|>' of tokenizer.ggml.tokens\n"
        "user            3           as given\n"
        "assistant       2           '<|assistant|>' of tokenizer.ggml.tokens\n"
    )


def test_a_contract_from_a_model(run, model_gguf):
    result = run("insert", "-", contract=["--gguf", model_gguf], stdin="[1,2,0]\n")
    assert (result.exit_code, result.stdout) == (0, "[1,2,0,4,5]\n")
    assert result.stderr == EOS_WARNING


@pytest.mark.parametrize(
    ("contract", "said"),
    [
        (["--gguf", "none"], "'none' does not exist"),
        (["--gguf", "text"], "The contract in text is wrong: this is no GGUF file"),
        (["--gguf", "model.gguf", "--user", "x"], "in model.gguf is wrong: user: tokenizer.ggml"),
        (["--gguf", "model.gguf", "--contract", "text"], "or the numbers, not both: --gguf."),
    ],
)
def test_contract_faults_of_a_model(run, tmp_path, model_gguf, contract, said):
    (tmp_path / "text").write_text("{}\n" * 9)
    for name, arguments in (("insert", ["-"]), ("info", [])):
        result = run(name, *arguments, contract=contract, stdin="[1]\n")
        assert said in result.stderr
        assert (result.exit_code, result.stdout) == (2, "")


@pytest.mark.parametrize("implementation", ["cpp", "python"])
def test_info_of_an_implementation(tmp_path, implementation):
    result = subprocess.run(
        [sys.executable, "-W", "error", "-m", "statetok", "info"],
        env=os.environ | {"STATETOK_IMPLEMENTATION": implementation},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.search(rf"^implementation +{implementation}$", result.stdout, re.M)
    assert bool(re.search(r"^compiler +\w+ [\d.]+$", result.stdout, re.M)) == (
        implementation == "cpp"
    )


def test_version_and_help(run):
    assert statetok.__version__ in run("--version", contract=[]).stdout
    for name in command.commands:
        result = run(name, "--help", contract=[])
        assert result.exit_code == 0
        options = [each for each in command.commands[name].params if isinstance(each, Option)]
        assert options
        assert all(option.help for option in options)


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_without_the_extra(tmp_path, missing):
    code = f"import sys; sys.modules[{missing!r}] = None; import statetok.__main__ as m; m.main()"
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert result.stderr == (
        f"statetok: the command needs {missing}: pip install 'statetok[cli]'\n"
    )
    assert (result.returncode, result.stdout) == (1, "")


def test_import_needs_no_extra(tmp_path):
    code = "import sys, statetok; assert not {'click', 'rich', 'tokenizers'} & set(sys.modules)"
    subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=tmp_path, check=True)


# -- streams that are closed, or open to others ------------------------------------------------


def shell(tmp_path, script):
    """Run a shell script in which `statetok` and `$numbers` are what they are called."""
    (tmp_path / "a.jsonl").write_text("[1, 2, 0]\n")
    preamble = (
        f'statetok() {{ "{sys.executable}" -m statetok "$@"; }}; numbers="{" ".join(NUMBERS)}"; '
    )
    return subprocess.run(
        ["sh", "-c", preamble + script], cwd=tmp_path, capture_output=True, text=True
    )


@pytest.mark.parametrize("out", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_an_open_descriptor_as_output_is_written_to(tmp_path, out):
    script = f"(echo kept; statetok insert a.jsonl $numbers -o {out}; echo more) >> log"
    assert shell(tmp_path, script).stderr == ""
    assert (tmp_path / "log").read_text() == "kept\n[1,2,0,100,101]\nmore\n"


def test_a_closed_stream_that_is_not_needed(tmp_path):
    ran = shell(tmp_path, "statetok insert a.jsonl $numbers -o b.jsonl >&- 2>&- <&-")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert (tmp_path / "b.jsonl").read_text() == "[1,2,0,100,101]\n"


@pytest.mark.parametrize(
    "command",
    ["insert a.jsonl $numbers >&-", "insert - $numbers <&-", "info >&-", "info > /dev/full"],
)
def test_a_closed_stream_that_is_needed(tmp_path, command):
    ran = shell(tmp_path, f"statetok {command}")
    assert ran.returncode == 1
    assert ran.stderr.startswith("Error: [Errno ")
    assert ran.stderr.count("\n") == 1


def test_output_errors_name_what_was_given(run, tmp_path):
    (tmp_path / "in.jsonl").write_text("[1]\n")
    (tmp_path / "loop").symlink_to("loop")
    for out, said in [
        ("missing/out.jsonl", "missing/out.jsonl: No such file or directory"),
        ("", "an empty name"),
        ("loop", "loop"),
    ]:
        result = run("insert", "in.jsonl", "-o", out)
        assert result.exit_code != 0
        assert said in result.stderr
        assert ".tmp" not in result.stderr
    assert (tmp_path / "loop").is_symlink()


def test_columns_0(run):
    result = run("show", "-", stdin="[1, 50, 2]\n", columns=0)
    assert "<|user|> 50" in result.stdout


def test_numbers_that_would_be_lost(run):
    for number in ("1e400", "-1e400", "1e-400", "9" * 5000):
        result = run("insert", "-", stdin=f'{{"input_ids": [1], "x": {number}}}\n')
        assert result.exit_code == 1
        assert "<stdin>:1: " in result.stderr
        assert len(result.stderr) < 200
    kept = '{"input_ids":[1],"x":0.0,"y":-0.0,"z":1e-300}\n'
    assert run("insert", "-", stdin=kept).stdout == kept
