"""Strict mode for all tests: a bug of ours raises instead of falling back. Kernel caches go to a folder of the test run."""

import os
import tempfile

os.environ["DYNCOMP_STRICT"] = "1"
os.environ.setdefault("DYNCOMP_CACHE_DIR", os.path.join(tempfile.gettempdir(), f"dyncomp-tests-{os.getuid()}"))
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest

WITH_TORCH = os.environ.get("DYNCOMP_WITHOUT_TORCH") != "1"


@pytest.fixture
def fresh():
    """Compiled code and counters start empty."""
    import dyncomp

    dyncomp.reset()
    yield
    dyncomp.reset()


if WITH_TORCH:
    import torch

    @pytest.fixture(autouse=True)
    def _deterministic():
        torch.manual_seed(0)
        yield
        assert torch.is_grad_enabled(), "a test (or compiled code) left grad mode off"
        assert torch.get_default_dtype() is torch.float32, "a test (or compiled code) left another default dtype"


# The same examples in every run: a search with new ones belongs on a developer's machine (HYPOTHESIS_PROFILE=default).
from hypothesis import settings  # noqa: E402

settings.register_profile("same", derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))
