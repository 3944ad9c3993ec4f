"""Every intermediate form is checked after every pass in these tests."""

import pytest

from dyncomp import config


@pytest.fixture(autouse=True)
def _verified():
    with config.patch(verify_passes=True):
        yield
