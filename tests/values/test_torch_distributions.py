"""Distributions are made in one graph: which of their parameters are lazy is asked of the class."""

import pytest
import torch
import torch.distributions as D

import dyncomp

PROGRAMS = {
    "Bernoulli": lambda p: D.Bernoulli(p).entropy(),
    "Bernoulli of logits": lambda p: D.Bernoulli(logits=p).log_prob(p.round()),
    "Categorical": lambda p: D.Categorical(probs=p).entropy(),
    "Geometric": lambda p: D.Geometric(p).log_prob(p.round()),
    "divergence": lambda p: D.kl_divergence(D.Bernoulli(p), D.Bernoulli(p * 0.5)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph(fresh, name):
    program = PROGRAMS[name]
    compiled = dyncomp.optimize(program, fullgraph=True)
    for _ in range(2):
        theirs = torch.rand(4).requires_grad_()
        ours = theirs.detach().clone().requires_grad_()
        expected, found = program(theirs), compiled(ours)
        torch.testing.assert_close(found, expected)
        expected.sum().backward()
        found.sum().backward()
        torch.testing.assert_close(ours.grad, theirs.grad)
    assert dyncomp.stats().graphs == 1


def test_a_wrong_parameter_is_refused(fresh, monkeypatch):
    monkeypatch.setattr(D.Distribution, "_validate_args", True)  # torch.compile switches it off for the whole process
    compiled = dyncomp.optimize(PROGRAMS["Bernoulli"])
    compiled(torch.rand(3))
    with pytest.raises(ValueError, match="Expected parameter probs"):
        compiled(torch.rand(3) + 2)


def test_the_property_is_handed_out(fresh):
    def program(x):
        return D.Bernoulli.logits, D.Bernoulli.probs, isinstance(D.Bernoulli.logits, property), x + 1

    compiled = dyncomp.optimize(program, fullgraph=True)
    for _ in range(2):
        expected, found = program(torch.ones(2)), compiled(torch.ones(2))
        assert [type(item) for item in found] == [type(item) for item in expected]
        assert found[0].fget is expected[0].fget and found[1].fget is expected[1].fget
        assert found[2] is True
    assert compiled(torch.ones(2))[0] is not compiled(torch.ones(2))[0]
