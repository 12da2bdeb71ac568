"""One suite for both implementations: the fixture `impl` is each of them in turn."""

from concurrent.futures import ThreadPoolExecutor

import pytest

import statetok
import statetok._core
import statetok.twin

IMPLEMENTATIONS = {"cpp": statetok._core, "python": statetok.twin}


def in_eight_threads(work):
    """Call `work` in eight threads at once; what fails in one of them fails here."""
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(work) for _ in range(8)]:
            done.result()


@pytest.fixture(params=IMPLEMENTATIONS)
def impl(request, monkeypatch):
    """The module of one implementation, which a `StateTokens` made in the test uses too."""
    module = IMPLEMENTATIONS[request.param]
    for name in ("bind", "insert_ragged"):
        monkeypatch.setattr(statetok.contract, name, getattr(module, name))
    return module
