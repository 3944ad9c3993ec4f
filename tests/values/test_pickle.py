"""`pickle.dumps` of arguments, as programs do that keep what they computed by the arguments it was computed with."""

import pickle

import pytest
import torch

import dyncomp


def program(x, **kwargs):
    key = pickle.dumps(kwargs)
    sized = pickle.dumps({"rows": x.shape[0], 3: True, "none": None})
    return key, sized, x + 1


@pytest.mark.parametrize("kwargs", [{}, {"diag": False}, {"a": "b", "c": 2.5, "d": 10**30}, {"a": None}])
def test_flat_containers(fresh, kwargs):
    compiled = dyncomp.optimize(program, fullgraph=True)
    for rows in (3, 4):
        x = torch.ones(rows)
        assert compiled(x, **kwargs)[:2] == program(x, **kwargs)[:2]


@pytest.mark.parametrize("kwargs", [{"a": "a"}, {"a": ["b"]}, {"a": torch.ones(1)}, {"a": torch.float32}])
def test_what_is_written_by_identity_runs_as_python(fresh, kwargs):
    compiled = dyncomp.optimize(program)
    x = torch.ones(3)
    expected, found = program(x, **kwargs), compiled(x, **kwargs)
    assert found[:2] == expected[:2]
    assert any("pickle.dumps" in record.detail for record in dyncomp.counters.breaks())


def test_another_argument_another_key(fresh):
    compiled = dyncomp.optimize(program)
    x = torch.ones(3)
    for kwargs in ({"a": 1}, {"a": 2}, {"b": 2}, {"a": 1}):
        assert compiled(x, **kwargs)[0] == pickle.dumps(kwargs)
