import json

import pytest
import torch

import dyncomp


def broken(x):
    y = x.sin()
    print(end="")
    return y.cos()


def test_explain_tells_graphs_breaks_and_guards(tmp_path):
    told = dyncomp.explain(broken)(torch.ones(3))
    assert told.graph_count == 2 and told.graph_break_count == 1
    assert told.breaks[0].reason == "side-effect" and told.breaks[0].filename.endswith("test_explain.py")
    assert any("x" in guard for guard in told.guards)
    text = str(told)
    assert "2 graph(s), 1 graph break(s)" in text and "cure:" in text
    torch.testing.assert_close(told.result, broken(torch.ones(3)))
    assert json.loads(told.json())["target"] == "broken"
    page = open(told.html(str(tmp_path / "page.html"))).read()
    assert "broken" in page and "side-effect" in page


def test_explain_leaves_other_code_alone(fresh):
    fast = dyncomp.optimize(torch.nn.Linear(2, 2))
    fast(torch.ones(1, 2))
    told = dyncomp.explain(fast)(torch.ones(1, 2))
    assert told.graph_count == 1 and not told.breaks
    graphs = dyncomp.stats().graphs
    fast(torch.ones(1, 2))
    assert dyncomp.stats().graphs == graphs


@pytest.mark.parametrize("wrap", [lambda fn: fn, lambda fn: Calls(fn)], ids=["function", "module"])
def test_what_was_optimised_is_explained_with_its_options(fresh, wrap):
    fast = dyncomp.optimize(wrap(lambda x: x * x.shape[0]), dynamic=True, backend="eager")
    (frame,) = dyncomp.explain(fast)(torch.ones(5)).frames
    assert "symbolic" in str(frame.numbers[0])
    (frame,) = dyncomp.explain(fast, dynamic=False)(torch.ones(5)).frames
    assert "symbolic" not in str(frame.numbers[0])


class Calls(torch.nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, x):
        return self.fn(x)
