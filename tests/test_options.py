"""Every wrong option is a clear error before anything is compiled."""

import pytest
import torch

import dyncomp
from dyncomp import errors


def plus(x):
    return x + 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(mode="max-autotun"), "Did you mean 'max-autotune'"),
        (dict(mode=3), "unknown mode 3"),
        (dict(fullgraph="yes"), "fullgraph takes True or False"),
        (dict(dynamic=1), "dynamic takes True, False or None"),
        (dict(recompile_limit=0), "positive integer"),
        (dict(recompile_limit=True), "positive integer"),
        (dict(options={"fusoin": True}), "Did you mean 'fusion'"),
        (dict(options={"fusion": "no"}), "config.fusion takes bool"),
        (dict(name=7), "name takes a string"),
        (dict(disable=None), "disable takes True or False"),
        (dict(backend="codegn"), "Did you mean 'codegen'"),
        (dict(backend=12), "backend takes a name or a callable"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(errors.OptionError, match=message):
        dyncomp.optimize(plus, **options)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs", None])
def test_modes_are_accepted(mode):
    assert torch.equal(dyncomp.optimize(plus, mode=mode)(torch.zeros(2)), torch.ones(2))


@pytest.mark.parametrize("target", [3, "model", torch.nn.Linear])
def test_wrong_targets(target):
    with pytest.raises(errors.OptionError, match="optimize takes"):
        dyncomp.optimize(target)


def test_wrong_option_in_a_region():
    with pytest.raises(errors.OptionError), dyncomp.enable(mode="fast"):
        pass


def test_unknown_stance():
    with pytest.raises(errors.OptionError, match="force_eager"):
        dyncomp.set_stance("eager")


def test_unknown_keyword_is_a_type_error():
    with pytest.raises(TypeError):
        dyncomp.optimize(plus, full_graph=True)


def test_compiled_autograd_takes_a_truth():
    with pytest.raises(errors.OptionError, match="compiled_autograd"):
        dyncomp.optimize(lambda x: x, options={"compiled_autograd": "yes"})
    with pytest.raises(errors.OptionError, match="compiled_autograd"), dyncomp.enable(compiled_autograd=3):
        pass
