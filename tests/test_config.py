import subprocess
import sys

import pytest

from dyncomp import config, errors, log


def test_reached_from_the_package_alone():
    code = "import dyncomp; dyncomp.config.strict = True; assert dyncomp.config.strict; assert dyncomp.errors.REASONS"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_patch_restores_on_exceptions():
    before = config.kernel_grain
    with pytest.raises(ZeroDivisionError), config.patch(kernel_grain=before + 1):
        assert config.kernel_grain == before + 1
        _ = 1 / 0
    assert config.kernel_grain == before


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("kernel_grian", 1, "Did you mean 'kernel_grain'"),
        ("kernel_grain", "many", "takes int"),
        ("kernel_grain", True, "takes int"),
        ("vector_isa", "avx1024", "'avx512'"),
        ("strict", 1, "takes bool"),
    ],
)
def test_wrong_knobs_name_the_cure(name, value, expected):
    with pytest.raises(errors.OptionError, match=expected):
        setattr(config, name, value)
    with pytest.raises(errors.OptionError, match=expected), config.patch(**{name: value}):
        pass


def test_reading_an_unknown_knob():
    with pytest.raises(errors.OptionError, match="no knob 'nothing'"):
        _ = config.nothing


def test_a_patch_with_one_wrong_knob_changes_nothing():
    before = config.snapshot()
    with pytest.raises(errors.OptionError), config.patch(kernel_grain=1, nothing=2):
        pass
    assert config.snapshot() == before


def test_code_key_holds_what_changes_code():
    with config.patch(vector_isa="scalar"):
        scalar = config.code_key()
    with config.patch(strict=not config.strict):
        assert config.code_key() != scalar
    assert "strict" not in dict(scalar)


def test_unknown_log_channel():
    with pytest.raises(errors.OptionError, match="Did you mean 'graph_breaks'"):
        log.set_logs("graph_break")


def test_channels_switch(capsys):
    log.set_logs("recompiles")
    try:
        assert log.enabled("recompiles") and not log.enabled("guards")
    finally:
        log.set_logs()
    assert not log.enabled("recompiles")
