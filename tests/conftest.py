"""One suite for both implementations: the fixture `impl` is each of them in turn."""

import importlib.util
from concurrent.futures import ThreadPoolExecutor

import pytest

import statetok
import statetok._core
import statetok.stream
import statetok.twin

IMPLEMENTATIONS = {"cpp": statetok._core, "python": statetok.twin}


def in_eight_threads(work):
    """Call `work` in eight threads at once; what fails in one of them fails here."""
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(work) for _ in range(8)]:
            done.result()


def stream_on(module):
    """Return the class `Stream` as it is where `module` is the implementation."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statetok._implementation, "StreamBase", module.StreamBase)
        spec = importlib.util.find_spec("statetok.stream")
        again = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(again)
    return again.Stream


STREAMS = {name: stream_on(module) for name, module in IMPLEMENTATIONS.items()}


@pytest.fixture(params=IMPLEMENTATIONS)
def impl(request, monkeypatch):
    """The module of one implementation, which a `StateTokens` made in the test uses too."""
    module = IMPLEMENTATIONS[request.param]
    for name in ("bind", "insert_ragged", "insert_with_edits"):
        monkeypatch.setattr(statetok.contract, name, getattr(module, name))
    monkeypatch.setattr(statetok.stream, "Stream", STREAMS[request.param])
    return module
