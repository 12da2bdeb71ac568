"""The contract a third time, naively: from the words of the header's comment, not its code.

Quadratic and without a state: whether a reply is open before some position is read off all that
stands in front of it, each time anew.
"""

import re


def insert_state_blocks(ids, vocab, k, eot, user, assistant):
    """Return the ids with their blocks, or the text of the refusal as a str."""
    if k <= 0:
        for i, id in enumerate(ids):
            if id >= vocab:
                return (
                    f"token id {id} at position {i} is past the vocabulary ({vocab}) and the "
                    "model has no state tokens"
                )
        return list(ids)

    letter = {user: "U", assistant: "A", eot: "E"}

    def reply_is_open_before(i):
        control = "".join(letter.get(id, "") for id in ids[:i])
        return re.search("UA+$", control) is not None  # a user, since then assistants only

    block = list(range(vocab, vocab + k))
    out = []
    i = 0
    while i < len(ids):
        id = ids[i]
        if id < 0:
            return f"token id {id} at position {i} is negative"
        if id >= vocab:
            return (
                f"state id {id} at position {i} is not part of a complete state block directly "
                "after an <|endoftext|> that ends an assistant reply"
            )
        reply_is_open = id in (user, eot) and reply_is_open_before(i)
        if id == user and reply_is_open:
            out += [eot, *block]
        out.append(id)
        i += 1
        if id == eot and reply_is_open:
            out += block
            if i < len(ids) and ids[i] >= vocab:
                if ids[i : i + k] != block:
                    return (
                        f"the state block after the <|endoftext|> at position {i - 1} is not the "
                        f"{k} ids {vocab} .. {vocab + k - 1} in order"
                    )
                i += k
    return out
