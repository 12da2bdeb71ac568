"""The `statetok` command: JSON Lines in, JSON Lines or something to look at out."""

from __future__ import annotations

import codecs
import json
import os
import platform
import re
import reprlib
import stat
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from itertools import groupby
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click
from rich.cells import cell_len
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

from . import HEADER_SHA256, StateTokens, __version__, implementation
from .files import replaced
from .jsonl import REFUSALS, list_in, parsed, reason, renamed, written

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["statetok"]

LISTED = 20  # skipped lines that are named at the end
NEIGHBOURS = 5  # ids shown on each side of a faulty one
HEAD, TAIL = 8, 4  # ids shown of a long run
PATIENCE = 1.0  # seconds before there is a progress bar


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def statetok() -> None:
    """State tokens for chat models: put the blocks in, take them out, look at them.

    Give the contract of the model to every command: --contract FILE, --gguf FILE, --tokenizer FILE
    with --k, or its five numbers.
    """


# -- options ---------------------------------------------------------------------------------


def token(value: str) -> int | str:
    """An id, or the text of a token whose id is looked up."""
    try:
        return int(value)
    except ValueError:
        return value


FILE = click.Path(exists=True, dir_okay=False)
EXISTING = click.Path(exists=True, dir_okay=False, allow_dash=True)
CONTRACT: list[click.Parameter] = [
    click.Option(
        ["--contract"],
        type=FILE,
        metavar="FILE",
        help="A JSON object with the five numbers, named as the options below.",
    ),
    click.Option(["--gguf"], type=FILE, metavar="FILE", help="A model file that says them."),
    click.Option(
        ["--tokenizer"],
        type=FILE,
        metavar="FILE",
        help="A tokenizer.json, to encode and decode text with. Without another contract it says "
        "all of the numbers but --k.",
    ),
    click.Option(["--vocab"], type=int, help="Number of ids of the tokeniser."),
    click.Option(["--k"], type=int, help="Number of state tokens after an exchange."),
    click.Option(["--eot"], type=token, help="<|endoftext|>, or its id."),
    click.Option(["--user"], type=token, help="<|user|>, or its id."),
    click.Option(["--assistant"], type=token, help="<|assistant|>, or its id."),
]
NUMBERS = ("vocab", "k", "eot", "user", "assistant")
INPUT = click.Argument(["files"], nargs=-1, required=True, type=EXISTING, metavar="FILE...")


def field(name: str, content: str) -> click.Option:
    return click.Option(
        ["--field"],
        default=name,
        show_default=True,
        metavar="NAME",
        help=f"The field with the {content}, where a line is an object.",
    )


REWRITE = [
    click.Option(
        ["-o", "--output"],
        default="-",
        show_default=True,
        type=click.Path(dir_okay=False, writable=True, allow_dash=True),
        metavar="OUT",
        help="Where to write, '-' for standard output. A file is replaced at the end, and only "
        "if all went well; it may be one of the inputs.",
    ),
    click.Option(
        ["--skip-invalid"],
        is_flag=True,
        help="Leave bad lines out and list them at the end; the exit status is then 0.",
    ),
    *CONTRACT,
]
IDS = field("input_ids", "ids")


def contract_of(
    contract: str | None, gguf: str | None, tokenizer: str | None, **given: int | str | None
) -> StateTokens:
    """Make what the contract options say, or say what is wrong with them."""
    numbers: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    lacking = ", ".join(f"--{name}" for name in given if name not in numbers)
    if contract and (gguf or numbers):
        clash = ", ".join(f"--{name}" for name in [*["gguf"] * bool(gguf), *numbers])
        raise click.UsageError(f"Give --contract or the numbers, not both: {clash}.")
    try:
        if contract:
            return StateTokens.from_json(Path(contract).read_bytes())
        if gguf:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                made = StateTokens.from_gguf(gguf, **numbers)
            for warning in said:
                click.echo(f"Warning: {warning.message}", err=True)
            return made
        if tokenizer and lacking:
            if "vocab" in numbers or "k" not in numbers:
                raise click.UsageError(
                    "The contract is missing: with --tokenizer give --k, and not --vocab; "
                    "--eot, --user and --assistant where the tokens have other texts."
                )
            return StateTokens.from_tokenizer(load_tokenizer(tokenizer), **numbers)
        if lacking:
            others = "--contract FILE, --gguf FILE, --tokenizer FILE with --k, or all of "
            raise click.UsageError(
                f"The contract is missing: give {'' if numbers else others}{lacking}."
            )
        return StateTokens(**numbers)
    except (*REFUSALS, OSError) as error:
        source = contract or gguf or (tokenizer if lacking else None)
        where = f" in {source}" if source else ""
        raise click.UsageError(f"The contract{where} is wrong: {reason(error)}.") from None


def load_tokenizer(path: str) -> Tokenizer:
    try:
        from tokenizers import Tokenizer
    except ModuleNotFoundError:
        raise click.ClickException(
            "--tokenizer needs the tokenizers library: pip install tokenizers"
        ) from None
    try:
        return Tokenizer.from_file(path)
    except Exception as error:  # the library raises no narrower one
        raise click.BadParameter(f"{path}: {error}", param_hint="--tokenizer") from None


# -- JSON Lines in ---------------------------------------------------------------------------


def lines(paths: Sequence[str], advance: Callable[[float], None]) -> Iterator[tuple[str, bytes]]:
    """Yield every line that is not blank with its place, and tell `advance` the bytes read."""
    for path in paths:
        name = "<stdin>" if path == "-" else path if path.isprintable() else repr(path)
        with click.open_file(path, "rb") as file:
            for number, line in enumerate(file, 1):
                content = line.removeprefix(codecs.BOM_UTF8).rstrip()
                if content:
                    yield f"{name}:{number}", content
                advance(len(line))


# -- JSON Lines out --------------------------------------------------------------------------


def rewrite(
    change: Callable[[Any], list[int]],
    files: Sequence[str],
    output: str,
    field: str,
    skip_invalid: bool,
    to: str | None = None,
) -> None:
    """Write every line of `files` with its list changed, as field `to`; the rest of it stays."""
    if not output:
        raise click.BadParameter("an empty name", param_hint="--output")
    skipped, listed = 0, []
    with plain_io_errors(), opened(output) as out, progress(files, output) as advance:
        for place, line in lines(files, advance):
            try:
                record = parsed(line)
                changed = change(list_in(record, field))
                if isinstance(record, dict):
                    record = renamed(record, field, to or field) | {to or field: changed}
                else:
                    record = changed
                text = written(record)
            except REFUSALS as error:
                message = f"{place}: {reason(error)}"
                if not skip_invalid:
                    raise click.ClickException(message) from None
                skipped += 1
                if skipped <= LISTED:
                    listed.append(message)
            else:
                out.write(text)
    if skipped:
        head = f"Skipped {skipped} bad line{'s' if skipped > 1 else ''}"
        click.echo("\n".join(shortlist(head, skipped, listed)), err=True)


@contextmanager
def plain_io_errors() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # the reader, e.g. head, has had enough
        Console().on_broken_pipe()
    except OSError as error:
        named = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        raise click.ClickException(named) from None


@contextmanager
def opened(output: str) -> Iterator[IO[bytes]]:
    """Open `output`; a regular file is replaced at the end, and only if all went well."""
    # click's own atomic=True is of no use: it replaces the file after a failure too.
    if descriptor := re.fullmatch(r"(?:/dev|/proc/self)/(?:fd/(\d+)|stdout|stderr)", output):
        # Whatever file is behind it is open already, and others may be writing to it.
        number = descriptor[1] or {"stdout": 1, "stderr": 2}[output[-6:]]
        with os.fdopen(os.dup(int(number)), "wb") as stream:
            yield stream
        return
    if output == "-" or (os.path.exists(output) and not os.path.isfile(output)):
        with click.open_file(output, "wb") as file:
            yield file
            file.flush()  # here, where an error is still reported
        return
    target = Path(os.path.realpath(output))  # a link stays one
    if target.is_symlink():
        raise click.ClickException(f"{output}: the link leads nowhere")
    with replaced(target, output) as file:
        yield file


@contextmanager
def progress(paths: Sequence[str], output: str) -> Iterator[Callable[[float], None]]:
    """Yield what takes the bytes read; on a terminal, a bar appears if it takes long."""
    console = Console(stderr=True)
    mixed = output == "-" and sys.stdout.isatty()  # the bar would run through the lines
    if mixed or not (sys.stderr.isatty() and console.is_interactive):
        yield lambda _: None
        return
    found = [os.stat(sys.stdin.fileno() if path == "-" else path) for path in paths]
    known = all(stat.S_ISREG(each.st_mode) for each in found)
    speed = [TransferSpeedColumn()] * (console.width >= 60)  # on fewer columns they would wrap
    columns = BarColumn(), DownloadColumn(), *speed, TimeRemainingColumn()
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task("", total=sum(each.st_size for each in found) if known else None)
    start = time.monotonic()

    def advance(size: float) -> None:
        bar.advance(task, size)
        if time.monotonic() - start > PATIENCE:
            bar.start()

    try:
        yield advance
    finally:
        bar.stop()


@statetok.command(params=[INPUT, IDS, *REWRITE])
def insert(files: Any, output: str, field: str, skip_invalid: bool, **contract: Any) -> None:
    """Insert the state blocks into the ids of JSON Lines.

    A line of FILE is a list of ids, or an object with such a list in a field; its other fields
    are kept (numbers as 64-bit floats, unless they are whole). '-' reads standard input. A bad
    line ends the run with exit status 1, and then OUT is left as it was.
    """
    rewrite(contract_of(**contract).insert, files, output, field, skip_invalid)


@statetok.command(params=[INPUT, IDS, *REWRITE])
def strip(files: Any, output: str, field: str, skip_invalid: bool, **contract: Any) -> None:
    """Leave the state ids out of the ids of JSON Lines.

    What remains is what the tokeniser can decode; an <|endoftext|> stays, also one that 'insert'
    added. FILE, OUT and bad lines are as for 'insert'.
    """
    rewrite(contract_of(**contract).strip, files, output, field, skip_invalid)


@statetok.command(
    params=[
        INPUT,
        field("messages", "messages"),
        click.Option(
            ["--prefix"],
            multiple=True,
            type=token,
            help="A token in front of each chat, e.g. a begin of sequence; may be repeated.",
        ),
        click.Option(
            ["--add-generation-prompt"], is_flag=True, help="End with <|assistant|>, for a reply."
        ),
        click.Option(["--continue-final-message"], is_flag=True, help="Leave the last reply open."),
        *REWRITE,
    ]
)
def encode(
    files: Any,
    output: str,
    field: str,
    skip_invalid: bool,
    prefix: tuple[int | str, ...],
    add_generation_prompt: bool,
    continue_final_message: bool,
    **contract: Any,
) -> None:
    """Encode the chats of JSON Lines, with control ids and state blocks; needs --tokenizer.

    A line of FILE is a list of messages, or an object with such a list in a field. A message is
    {"role": "user" or "assistant", "content": "..."}. The ids take the place of the messages, as
    'input_ids'. No text can forge a turn: what spells a control token is encoded as text. FILE,
    OUT and bad lines are else as for 'insert'.
    """
    if not contract["tokenizer"]:
        raise click.UsageError("'encode' needs --tokenizer FILE.")
    made = contract_of(**contract)
    tokenizer = load_tokenizer(contract["tokenizer"])
    tokenizer.encode_special_tokens = True  # as text, that is
    tokenizer.no_truncation()  # whatever the file says, every text is encoded whole
    tokenizer.no_padding()
    start = []
    for each in prefix:
        id = each if isinstance(each, int) else tokenizer.token_to_id(each)
        if id is None:
            raise click.BadParameter(f"no token {each!r}", param_hint="--prefix")
        start.append(id)

    def ids_of(messages: Any) -> list[int]:
        return made.encode_chat(
            messages,
            lambda text: tokenizer.encode(text, add_special_tokens=False).ids,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            system_prefix=start,
        )

    rewrite(ids_of, files, output, field, skip_invalid, to="input_ids")


# -- corpora ---------------------------------------------------------------------------------


class Fill(click.ParamType[tuple[str, Any]]):
    """``NAME=VALUE``, the value as JSON."""

    name = "name=value"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, Any]:
        name, equals, fill = value.rpartition("=")
        try:
            return name, json.loads(fill) if equals else self.fail("give NAME=VALUE", param, ctx)
        except ValueError:
            self.fail(f"{fill[:40]!r} is no JSON value", param, ctx)


@statetok.command(
    params=[
        click.Argument(
            ["inputs"],
            nargs=-1,
            required=True,
            metavar="IN...",
            type=click.Path(exists=True, path_type=Path),
        ),
        click.Option(
            ["-o", "--output"],
            required=True,
            metavar="OUT",
            help="A file for one file, else a directory.",
            type=click.Path(path_type=Path),
        ),
        click.Option(
            ["--column", "--field"],
            default="input_ids",
            show_default=True,
            metavar="NAME",
            help="The column or field with the ids.",
        ),
        click.Option(
            ["--carry"],
            multiple=True,
            type=Fill(),
            help="A column of lists beside the ids, and its value for ids that are "
            "inserted, e.g. labels=-100; may be repeated.",
        ),
        click.Option(
            ["--assistant-mask"],
            metavar="NAME",
            help="Add a column of this name: true on the ids of replies.",
        ),
        click.Option(
            ["--on-error"],
            type=click.Choice(["raise", "null", "drop"]),
            default="raise",
            show_default=True,
            help="What becomes of a row that is refused.",
        ),
        click.Option(
            ["--dtype"],
            type=click.Choice(["uint16", "uint32", "int32", "int64"]),
            help="Of the ids in .bin files.",
        ),
        *CONTRACT,
    ]
)
def convert(
    inputs: tuple[Path, ...],
    output: Path,
    column: str,
    carry: tuple[tuple[str, Any], ...],
    assistant_mask: str | None,
    on_error: Any,
    dtype: str | None,
    **contract: Any,
) -> None:
    """Insert the state blocks into files of a corpus, of any size.

    IN is a Parquet, Arrow (.arrow, .feather) or JSON Lines file (.jsonl, .jsonl.gz, .jsonl.zst),
    or one long sequence (.bin with --dtype, .npy), or a directory of such. The format stays, and a
    Parquet file keeps its row groups, compression and order of columns. A file is put in place
    when it is complete. In a directory there is a manifest, with which a run that was stopped goes
    on where it was: give the same command again.
    """
    made = contract_of(**contract)
    try:
        from . import corpus, manifest
        from .arrow import TablePlan
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"'convert' needs {error.name}: pip install 'statetok[arrow,cli]'"
        ) from None
    try:
        plan = TablePlan(made, column, dict(carry), assistant_mask, on_error)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    sources, others = corpus_files(inputs, output)
    as_file = len(inputs) == 1 and inputs[0].is_file() and not output.is_dir()
    run = corpus.Convert(plan, dtype)
    paths = [str(path) for path in sources.values()]
    pool = corpus.processes_for(sources.values())
    with plain_io_errors(), pool as run.workers, progress(paths, "") as advance:
        try:
            if as_file:
                counts = run(inputs[0], output, advance)
            else:
                counts = manifest.convert_directory(sources, output, run, advance)
        except corpus.CorpusError as error:
            raise click.ClickException(str(error)) from None
    report = [f"{len(sources)} {'file' if len(sources) == 1 else 'files'}: {counts}"]
    report += shortlist(f"Refused {counts.refused:,} rows", counts.refused, run.faults)
    report += shortlist("Split, as they were too large", len(run.split), run.split)
    report += shortlist("Left out, as they are of no known format", len(others), others)
    click.echo("\n".join(report), err=True)


def shortlist(head: str, n: int, items: Sequence[str]) -> list[str]:
    """Return lines about n things, a number of them by name; none about none."""
    if n == 0:
        return []
    shown = items[:LISTED]
    return [f"{head}:", *shown, *([f"and {n - len(shown):,} more"] if n > len(shown) else [])]


def corpus_files(inputs: Sequence[Path], output: Path) -> tuple[dict[str, Path], list[str]]:
    """Return the files of a corpus by their names in `output`, and the names of others there."""
    from .corpus import format_of

    sources: dict[str, Path] = {}
    others = []
    for each in inputs:
        found = [each]
        if each.is_dir():
            if output.resolve().is_relative_to(each.resolve()):
                raise click.UsageError(f"{output} is within {each}: give another directory.")
            found = sorted(path for path in each.rglob("*") if path.is_file())
        for path in found:
            name = str(path.relative_to(each)) if each.is_dir() else path.name
            if format_of(path) is None:
                if path == each:
                    raise click.UsageError(f"{path}: its name says no format that is known.")
                others.append(str(path))
            elif name in sources:
                raise click.UsageError(f"{path} and {sources[name]} would have the same name.")
            else:
                sources[name] = path
    if not sources:
        raise click.UsageError("There is no file of a known format.")
    return sources, others


# -- for a person to look at -----------------------------------------------------------------


@statetok.command(params=[INPUT, IDS, *CONTRACT])
def check(files: Any, field: str, **contract: Any) -> None:
    """Check that the ids of JSON Lines have all their state blocks.

    Every line that lacks one, has a wrong one or is no sequence at all is named with the place;
    the exit status is then 1. FILE is as for 'insert'.
    """
    made = contract_of(**contract)
    checked = bad = 0
    with plain_io_errors(), progress(files, "") as advance:
        for place, line in lines(files, advance):
            checked += 1
            try:
                made.check(list_in(parsed(line), field))
            except REFUSALS as error:
                bad += 1
                if bad <= LISTED:
                    click.echo(f"{place}: {reason(error)}")
        sys.stdout.flush()
    if bad > LISTED:
        click.echo(f"and {bad - LISTED} more")
    if bad:
        raise click.ClickException(f"{bad} of {checked} lines are wrong")
    click.echo(f"{checked} lines, all with their state blocks")


@statetok.command(params=[click.Argument(["file"], type=EXISTING), IDS, *CONTRACT])
def show(file: str, field: str, **contract: Any) -> None:
    """Show the conversations of JSON Lines as the engine sees them.

    Every turn starts a line, with its position in the input in the margin. What 'insert' would
    add is marked with '+', S0 S1 .. are the state ids, and a long run of ids is shortened.
    In a sequence that is refused the place is pointed at; the exit status is then 1.
    """
    made, tokenizer = contract_of(**contract), contract["tokenizer"]
    if isinstance(sys.stdout, TextIOWrapper):  # a terminal may not have every character
        sys.stdout.reconfigure(errors="backslashreplace")
    console = Console()
    console.width = max(console.width, 1) if console.width else 80  # COLUMNS may say 0
    wording = Wording(made, load_tokenizer(tokenizer) if tokenizer else None)
    shown = bad = 0
    with plain_io_errors():
        for place, line in lines([file], lambda _: None):
            ids: Any = None
            try:
                ids = list_in(parsed(line), field)
                out, sources = made.insert_with_sources(ids)
            except REFUSALS as error:
                bad += 1
                console.print(Text(f"{place}: {reason(error)}", "bold red"))
                if pointed := neighbours(ids, error, wording, console.width):
                    console.print(pointed)
            else:
                title = f"{place}: {len(ids)} ids in, {len(out)} out"
                console.print(Text(title, "bold"))
                for text in conversation(out, sources, wording, console):
                    console.print(text)
            shown += 1
            console.print()
    if bad:
        raise click.ClickException(f"{bad} of {shown} lines cannot be used")


class Wording:
    """How ids are written: control ids by name, text decoded where there is a tokenizer."""

    def __init__(self, contract: StateTokens, tokenizer: Tokenizer | None = None) -> None:
        self.contract = contract
        self.tokenizer = tokenizer
        self.names = {
            contract.eot: "<|endoftext|>",
            contract.user: "<|user|>",
            contract.assistant: "<|assistant|>",
        }

    def kind(self, id: int) -> str:
        if id in self.names:
            return self.names[id]
        if self.contract.is_state_id(id):
            return "state"
        # decode() drops what it does not know without a word
        known = self.tokenizer and id >= 0 and self.tokenizer.id_to_token(id) is not None
        return "text" if known else "number"

    def words(self, kind: str, ids: list[int], mark: str) -> str:
        """Return how a run of ids of one kind is written, `mark` before each."""
        if kind == "text" and self.tokenizer:
            # repr: quotes show where spaces are, and control characters come out escaped
            return repr(self.tokenizer.decode(ids, skip_special_tokens=False))
        if kind == "state":
            return shortened([f"{mark}S{id - self.contract.vocab}" for id in ids])
        return shortened([mark + self.names.get(id, str(id)) for id in ids])

    def name(self, element: object) -> str:
        """Return any element of a faulty list, a control id by its name, in a few characters."""
        if type(element) is int and element in self.names:
            return self.names[element]
        name = reprlib.repr(element)
        return name if len(name) <= 16 else f"{name[:13]}..."


def shortened(words: list[str]) -> str:
    if len(words) > HEAD + TAIL + 1:
        words = [*words[:HEAD], "...", *words[-TAIL:], f"({len(words)} ids)"]
    return " ".join(words)


def conversation(
    ids: list[int], sources: list[int], wording: Wording, console: Console
) -> Iterator[Text]:
    """Yield the screen lines of a conversation, with positions in the input in the margin."""
    styles = {"user": "cyan", "assistant": "green", None: ""}
    margin = len(str(max(sources, default=0) + 1))

    def run_of(each: tuple[int, int]) -> tuple[str, bool]:
        return wording.kind(each[0]), each[1] < 0

    placed = list(zip(ids, sources, strict=True))
    for turn in wording.contract.turns(ids):
        line = placed[turn.start : turn.stop]
        text = Text(style=styles[turn.role])
        for (kind, inserted), run in groupby(line, run_of):
            words = wording.words(kind, [id for id, _ in run], "+" if inserted else "")
            text.append(" " if text else "").append(words, "bold yellow" if inserted else "")
        position = str(line[0][1])
        for part in text.wrap(console, max(console.width - margin - 1, 1), overflow="fold"):
            yield Text.assemble((f"{position:>{margin}} ", "dim"), part)
            position = ""


def neighbours(ids: Any, error: Exception, wording: Wording, width: int) -> Text | None:
    """Return the faulty id, marked, between its neighbours; fewer where the screen is narrow."""
    place = re.search(r"at position (\d+)", str(error))
    if place is None or not isinstance(ids, list):
        return None
    fault = int(place[1])
    for reach in range(NEIGHBOURS, -1, -1):
        first, end = max(fault - reach, 0), fault + reach + 1
        before = [wording.name(id) for id in ids[first:fault]]
        word = wording.name(ids[fault])
        after = [wording.name(id) for id in ids[fault + 1 : end]]
        if reach and first > 0:
            before.insert(0, "...")
        if reach and end < len(ids):
            after.append("...")
        text = " ".join([*before, word, *after])
        if cell_len(text) <= width:
            break
    indent = " " * sum(len(each) + 1 for each in before)
    return Text(f"{text}\n{indent}{'^' * cell_len(word)}")


# -- about -----------------------------------------------------------------------------------


@statetok.command(
    params=[click.Argument(["model"], type=FILE, metavar="[MODEL.GGUF]", required=False), *CONTRACT]
)
def info(model: str | None, **contract: Any) -> None:
    """Show what is installed and, where it is given, the contract in use.

    Of a MODEL.GGUF the five numbers are shown with where each comes from.
    """
    facts = {"statetok": __version__, "implementation": implementation, "header": HEADER_SHA256}
    if implementation == "cpp":
        from ._core import compiler

        facts["compiler"] = compiler
    facts["python"] = f"{platform.python_implementation()} {platform.python_version()}"
    contract["gguf"] = model or contract["gguf"]
    if any(value is not None for value in contract.values()):
        facts["contract"] = repr(contract_of(**contract))
    if contract["gguf"] and not contract["contract"]:
        from . import gguf

        given = {name: contract[name] for name in NUMBERS if contract[name] is not None}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # said above
            found = gguf.numbers(contract["gguf"], **given)
        facts |= {name: f"{each.number:<11} {each.source}" for name, each in found.items()}
    with plain_io_errors():
        for name, fact in facts.items():
            click.echo(f"{name:14}  {fact}")
        sys.stdout.flush()
