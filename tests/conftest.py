"""One suite for both implementations: the fixture `impl` is each of them in turn."""

import pytest

import statetok
import statetok._core
import statetok.twin

IMPLEMENTATIONS = {"cpp": statetok._core, "python": statetok.twin}


@pytest.fixture(params=IMPLEMENTATIONS)
def impl(request, monkeypatch):
    """The module of one implementation, which a `StateTokens` made in the test uses too."""
    module = IMPLEMENTATIONS[request.param]
    for name in ("bind", "insert_ragged"):
        monkeypatch.setattr(statetok.contract, name, getattr(module, name))
    return module
