"""Guard records: repeats, rewinding, weak payloads, text."""

import gc
import weakref

import pytest

from dyncomp.guards.record import GuardList, GuardRecord, describe
from dyncomp.guards.source import ListItem, Local

X, Y = Local(0, "x"), Local(1, "y")


def test_a_fact_is_kept_once():
    guards = GuardList()
    guards.add(X, "type", int)
    guards.add(X, "type", int)
    guards.add(X, "equals", 3)
    assert [r.kind for r in guards.records()] == ["type", "equals"]


def test_rewind_forgets_later_facts():
    guards = GuardList()
    guards.add(X, "type", int)
    mark = guards.mark()
    guards.add(X, "equals", 3)
    guards.rewind(mark)
    assert len(guards) == 1
    guards.add(X, "equals", 3)
    assert len(guards) == 2


def test_records_do_not_keep_objects_alive():
    class Thing:
        pass

    thing = Thing()
    record, alive = GuardRecord(X, "id", thing), weakref.ref(thing)
    assert record.expected() is thing
    del thing
    gc.collect()
    assert alive() is None
    with pytest.raises(ReferenceError):
        record.expected()
    assert "<dead>" in describe(record)


def test_a_weak_reference_may_itself_be_the_payload():
    class Thing:
        pass

    thing = Thing()
    reference = weakref.ref(thing)
    assert GuardRecord(X, "id", reference).expected() is reference


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (GuardRecord(X, "type", int), "type(L['x']) is int"),
        (GuardRecord(X, "equals", "a"), "L['x'] == 'a'"),
        (GuardRecord(X, "same_as", Y), "L['x'] is L['y']"),
        (GuardRecord(X, "distinct", (((X,),), (Y,))), "L['x'] is none of L['y']"),
        (GuardRecord(X, "distinct", (((X,), (Y,)), ())), "L['x'], L['y'] are different objects"),
        (
            GuardRecord(X, "distinct", (((X,), (Y, ListItem(Y, 0))), (ListItem(X, 0),))),
            "L['x'], L['y'] or L['y'][0] are different objects, and each is none of L['x'][0]",
        ),
        (GuardRecord(X, "no_item", ("forward",)), "'forward' not in L['x']"),
        (GuardRecord(X, "range", (2, None)), "2 <= L['x']"),
        (GuardRecord(X, "truth", False), "not L['x']"),
    ],
)
def test_reads_like_python(record, text):
    assert describe(record) == text


def test_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="unknown guard kind"):
        GuardRecord(X, "nearly", 1)
