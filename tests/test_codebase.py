"""The house itself: the header's bytes, the versions, the types, nothing built in the tree."""

import hashlib
import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest

import statetok
import statetok._core
import statetok.twin

ROOT = Path(__file__).parents[1]
SUPPLIED = "e6262c39c2609c8eed129c2204dcefb0cbdf9065e5c05f89ecc1cf5003647fff"


def test_the_header_is_the_supplied_one():
    assert hashlib.sha256((ROOT / "src/state_tokens.h").read_bytes()).hexdigest() == SUPPLIED


def test_the_build_compiled_the_header_that_the_twin_was_written_beside():
    assert statetok._core.HEADER_SHA256 == SUPPLIED
    assert statetok.twin.HEADER_SHA256 == SUPPLIED


def test_versions_agree():
    assert importlib.metadata.version("statetok") == statetok.__version__
    newest = re.search(r"^## (?:\[)?([\d.]+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)
    assert newest[1] == statetok.__version__


def test_all_is_there():
    assert all(hasattr(statetok, name) for name in statetok.__all__)


@pytest.mark.parametrize(
    "command",
    [["mypy"], ["mypy.stubtest", "statetok._core", "--ignore-missing-stub"]],
    ids=["mypy", "stubtest"],
)
def test_types(command, tmp_path):
    arguments = []
    cwd = tmp_path  # away from the tree, where mypy would find the package a second time
    if command == ["mypy"]:
        arguments = ["--cache-dir", str(tmp_path)]
        cwd = ROOT
    ran = subprocess.run(
        [sys.executable, "-m", *command, *arguments], cwd=cwd, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_nothing_built_is_beside_the_source():
    built = {".so", ".pyd", ".dylib", ".dll", ".a", ".o", ".obj", ".lib", ".whl"}
    folders = ("benchmarks", "examples", "python", "src", "tests")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    assert ROOT / "src/state_tokens.h" in files
    assert [path for path in files if path.suffix in built] == []
