"""The smoke test of an installed wheel: no plugin, no peer, nothing but pytest and statetok."""

import statetok


def test_an_installed_wheel_works():
    contract = statetok.StateTokens(vocab=100, k=2, eot=0, user=1, assistant=2)
    assert contract.insert([1, 50, 2, 51, 0, 1]) == [1, 50, 2, 51, 0, 100, 101, 1]
    assert statetok.insert_state_blocks([1, 2, 1], 100, 2, 0, 1, 2) == [1, 2, 0, 100, 101, 1]
    assert statetok.implementation == "cpp"
    assert len(statetok.HEADER_SHA256) == 64
