import pytest

from dyncomp import errors


def test_break_reasons_are_known():
    with pytest.raises(errors.InternalError, match="unknown graph break reason"):
        errors.GraphBreak("no-such-reason", "x")


def test_every_reason_has_a_cure():
    assert all(cure.strip() for cure in errors.REASONS.values())


def test_record_names_place_reason_and_cure():
    record = errors.BreakRecord("side-effect", "print", "model.py", 12, "forward", stack=(("model.py", 3, "outer"),))
    text = str(record)
    assert (
        "model.py:12 in forward" in text
        and "[side-effect] print" in text
        and "cure:" in text
        and "from model.py:3" in text
    )


def test_full_graph_error_carries_the_record():
    record = errors.BreakRecord("random", "random.random()", "a.py", 1, "f")
    error = errors.FullGraphError(record)
    assert error.record is record and "a.py:1" in str(error)
