"""A failed check in the user's words.

    (3, "type", "type: expected <class 'NoneType'>, found <class 'str'>"), (L['self'], ..., L['self'].config.kind)
    ->
    L['self'].config.kind: expected <class 'NoneType'>, found <class 'str'>
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dyncomp.guards.source import Source


def in_words(failed: tuple[int, str, str], places: Sequence[Source]) -> str:
    """What `GuardTree.explain` gave (node, kind, text), with the names of the values; `places[i]` is what node i is.

    A failure that is no node's (the global state) keeps its text, and so do sizes: those name all that they compare.
    """
    node, kind, text = failed
    text = re.sub(r"\bnodes? \d+(?: and \d+)?", lambda found: _named(found[0], places), text)
    if kind == "int_program" or not 0 <= node < len(places):
        return text
    return f"{places[node]}: {text.removeprefix(f'{kind}: ')}"


def _named(words: str, places: Sequence[Source]) -> str:
    numbers = [int(number) for number in re.findall(r"\d+", words)]
    return " and ".join([str(places[n]) if n < len(places) else f"node {n}" for n in numbers])
