"""Many facts about the entries of one dict become one check on the dict.

    type(L['self']._forward_hooks) is OrderedDict, list(L['self']._forward_hooks) == []      a node with two checks each
    type(L['self']._backward_hooks) is OrderedDict, ...
    ->
    L['self'].__dict__: ("empty_items", (("_forward_hooks", OrderedDict), ("_backward_hooks", OrderedDict), ...))

A module has four to six such dicts of hooks that nearly always are empty, so most nodes of a large model's tree were theirs.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable
from typing import Any

from dyncomp.guards.record import GuardRecord
from dyncomp.guards.source import DictItem, Source

_CLASSES = (dict, collections.OrderedDict)
_SAID_BY_EMPTY = {"type", "empty", "dict_keys", "len", "no_item"}


def fold_empty_dicts(
    facts: dict[Source, list[GuardRecord]], needed: Iterable[Source]
) -> dict[Source, list[tuple[str, type]]]:
    """Takes the facts "this entry is an empty dict of that class" out of `facts`; gives them back by the dict
    they are entries of.

    `needed`: sources that must have nodes of their own (captures, relations). So must what others hang on.
    """
    candidates = {source: cls for source, records in facts.items() if (cls := _empty_class(source, records))}
    if not candidates:
        return {}
    seen: set[Source] = set()
    for source in (*needed, *(base for source in facts if (base := source.base) is not None)):
        for link in source.chain():
            if link in seen:
                break
            seen.add(link)
            candidates.pop(link, None)
    folded: dict[Source, list[tuple[str, type]]] = {}
    for source, cls in candidates.items():
        del facts[source]
        assert source.base is not None
        folded.setdefault(source.base, []).append((source.arg, cls))
    return folded


def _empty_class(source: Source, records: list[GuardRecord]) -> type | None:
    """The class of the dict, if the facts say just that it is an empty one of that class."""
    if type(source) is not DictItem or type(source.arg) is not str:
        return None
    values: dict[str, Any] = {record.kind: record.payload for record in records}
    if "type" not in values or not values.keys() <= _SAID_BY_EMPTY:
        return None
    if "empty" not in values and values.get("dict_keys") != () and values.get("len") != 0:
        return None
    cls = next(record.expected() for record in records if record.kind == "type")
    return cls if cls in _CLASSES else None
