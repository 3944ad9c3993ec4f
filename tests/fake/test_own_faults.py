"""A slip in our own code is not taken for an error of the program."""

import pytest
import torch

from dyncomp import interp
from dyncomp.errors import InternalError
from dyncomp.fake import mode
from dyncomp.fake.errors import is_own_fault


def caught(call):
    with pytest.raises(Exception) as info:
        call()
    return info.value


def test_errors_of_programs_are_theirs():
    assert not is_own_fault(caught(lambda: torch.ones(2).no_such_name))
    assert not is_own_fault(caught(lambda: torch.ones(2) @ torch.ones(3)))
    assert not is_own_fault(caught(lambda: no_such_name))  # noqa: F821
    assert not is_own_fault(AttributeError("made, not raised"))


@pytest.mark.parametrize("error", [NameError, AttributeError, AssertionError])
def test_a_slip_in_a_shape_rule_is_ours(error, monkeypatch):
    source = {"NameError": "no_such_name", "AttributeError": "None.no_such_name", "AssertionError": "assert 0"}[
        error.__name__
    ]
    namespace = {}
    exec(compile(f"def slip(*args):\n    {source}", mode.__file__, "exec"), namespace)
    monkeypatch.setattr(mode, "infer", namespace["slip"])
    with pytest.raises(InternalError, match=error.__name__):
        interp.trace_frame(lambda x: x.cumsum(0), (torch.ones(2),), None)
