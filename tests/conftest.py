"""One suite for both implementations: the fixture `impl` is each of them in turn."""

import pytest

import statetok
import statetok._core
import statetok.twin

IMPLEMENTATIONS = {"cpp": statetok._core, "python": statetok.twin}


@pytest.fixture(params=IMPLEMENTATIONS)
def impl(request, monkeypatch):
    """The module of one implementation, which `StateTokens` uses too while the test runs."""
    module = IMPLEMENTATIONS[request.param]
    monkeypatch.setattr(statetok.contract, "insert_state_blocks", module.insert_state_blocks)
    return module
