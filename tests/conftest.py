"""Strict mode for all tests: a bug of ours raises instead of falling back. Kernel caches go to a folder of the test run."""

import os
import tempfile

os.environ["DYNCOMP_STRICT"] = "1"
os.environ.setdefault("DYNCOMP_CACHE_DIR", os.path.join(tempfile.gettempdir(), f"dyncomp-tests-{os.getuid()}"))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ["DYNCOMP_REMEMBER_SIZES"] = "0"  # what one run saw must not change what the next one compiles

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

    def _autocast_nesting():
        count = torch.autocast_increment_nesting() - 1
        torch.autocast_decrement_nesting()
        return count

    def _torch_state():
        """Torch's state of this thread and process, by name. A leak of it changes what later tests (and programs) compute."""
        return {
            "grad mode": torch.is_grad_enabled(),
            "inference mode": torch.is_inference_mode_enabled(),
            "open autocast blocks": _autocast_nesting(),  # above 0, weights cast once are used for ever
            "autocast": [
                torch.is_autocast_enabled("cpu"),
                torch.get_autocast_dtype("cpu"),
                torch.is_autocast_cache_enabled(),
            ],
            "default dtype": torch.get_default_dtype(),
            "default device": torch.get_default_device(),
            "function modes": torch._C._len_torch_function_stack(),
            "dispatch modes": torch._C._len_torch_dispatch_stack(),
            "torch functions": torch._C._is_torch_function_enabled(),
            "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
            "dispatch keys": str(torch._C._dispatch_tls_local_include_set())
            + str(torch._C._dispatch_tls_local_exclude_set()),
        }

    @pytest.fixture(autouse=True)
    def _deterministic():
        torch.manual_seed(0)
        before = _torch_state()
        yield
        after = _torch_state()
        for _ in range(_autocast_nesting() - before["open autocast blocks"]):
            torch.autocast_decrement_nesting()  # so that only the test that left them fails
        torch.set_grad_enabled(before["grad mode"])
        torch.set_autocast_enabled("cpu", before["autocast"][0])
        left = {name: (before[name], now) for name, now in after.items() if now != before[name]}
        assert not left, f"a test (or compiled code) left torch's state changed (before, after): {left}"


# Property tests draw the same examples in every run, so a green run says nothing of examples that were never drawn. A search
# for new ones: HYPOTHESIS_PROFILE=search DYNCOMP_EXAMPLES=20000 (tests that go by `examples` in tests/support.py draw that many).
from hypothesis import settings  # noqa: E402

settings.register_profile("same", derandomize=True)
settings.register_profile("search", derandomize=False, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))
