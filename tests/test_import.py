"""What an import does and does not do: each in an interpreter of its own."""

import os
import subprocess
import sys

import statetok.twin


def run(program, **environment):
    environment = os.environ | environment
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        env={name: value for name, value in environment.items() if value is not None},
    )


SHOW = "import statetok; print(statetok.implementation, statetok.insert_state_blocks.__module__)"


def test_the_default_is_the_compiled_header():
    assert run(SHOW, STATETOK_IMPLEMENTATION=None).stdout == "cpp statetok._core\n"


def test_the_switch():
    assert run(SHOW, STATETOK_IMPLEMENTATION="cpp").stdout == "cpp statetok._core\n"
    assert run(SHOW, STATETOK_IMPLEMENTATION="python").stdout == "python statetok.twin\n"
    for other in ("", "CPP", "rust"):
        refused = run(SHOW, STATETOK_IMPLEMENTATION=other)
        assert refused.returncode == 1
        assert f"STATETOK_IMPLEMENTATION is {other!r}: set it to 'cpp' or" in refused.stderr


WITHOUT_CORE = "import sys; sys.modules['statetok._core'] = None; "  # any import of it fails


def test_no_silent_fallback():
    refused = run(WITHOUT_CORE + SHOW, STATETOK_IMPLEMENTATION=None)
    assert refused.returncode == 1
    assert "pip install ." in refused.stderr
    assert "STATETOK_IMPLEMENTATION=python" in refused.stderr


def test_the_twin_needs_no_build():
    use = "; print(statetok.StateTokens(10, 1, 0, 1, 2).insert([1, 2, 0]), statetok.HEADER_SHA256)"
    ran = run(WITHOUT_CORE + SHOW + use, STATETOK_IMPLEMENTATION="python")
    shown = f"python statetok.twin\n[1, 2, 0, 10] {statetok.twin.HEADER_SHA256}\n"
    assert (ran.stdout, ran.stderr) == (shown, "")


def test_what_an_import_leaves_alone():
    """Each would cost more than the whole of statetok; a list in, a list out needs none."""
    program = """
import sys
before = set(sys.modules)
import statetok
statetok.StateTokens(10, 1, 0, 1, 2).insert([1, 2, 0])
statetok.insert_state_blocks((1, 2, 0), 10, 1, 0, 1, 2)
heavy = "numpy torch click rich typing dataclasses inspect json importlib.metadata"
print([name for name in heavy.split() if name in sys.modules.keys() - before])
"""
    ran = run(program, STATETOK_IMPLEMENTATION=None)
    assert (ran.stdout, ran.stderr) == ("[]\n", "")
