"""Policy of `dynamic=None`: a version with symbolic numbers must do no worse than one for this call's numbers alone.

static entry: 0 breaks    symbolic version: 1 break, or its training graph runs op by op
->  compiled again without symbolic numbers, counted `dynamic-to-static: <why>`, and this code stays with it
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from dyncomp import config, counters, log
from dyncomp._frame import _core
from dyncomp.context import CompileContext
from dyncomp.errors import DyncompError, InternalError

# Fallbacks that say nothing of symbolic numbers, or (the last) of single operations that run as in eager.
_UNRELATED = ("device-", "no-compiler", "stance-", "recompile-limit", "symbolic-sizes")


def plain_if_better(attempt: Callable[[], Any], code: types.CodeType, owner: CompileContext, entries: list[Any]) -> Any:
    """The entry that `attempt` compiles, or where it is worse for its symbolic numbers that of an attempt with plain ones.

    `entries` are the versions so far: what the newest of them could not do either is no reason to try again.
    """
    result, error = _outcome(attempt)
    known = owner.sizes.get(code)
    may_differ = owner.dynamic is None and known is not None and not known.static and known.any()
    why = _trouble(result, error, entries) if may_differ else None
    if why is None or known is None:
        return _result(result, error)
    known.static = why
    second, second_error = _outcome(attempt)
    if second_error is not None or error is None and _trouble(second, None, entries) is not None:
        known.static = None  # no better
        return _result(result, error)
    known.forget_on_disk()
    counters.add_fallback(f"dynamic-to-static: {why}")
    place = f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"
    log.write("dynamic", "%s is compiled for each size by itself: %s", place, why)
    return second


def _outcome(attempt: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """What it gives, or the error that it ends with; bugs of ours are raised at once in strict mode."""
    try:
        return attempt(), None
    except RecursionError:
        raise
    except Exception as error:  # raised again by `_result`, unless plain numbers do without it
        if config.strict and (isinstance(error, InternalError) or not isinstance(error, DyncompError)):
            raise
        return None, error


def _result(result: Any, error: BaseException | None) -> Any:
    if error is not None:
        raise error
    return result


def _trouble(entry: Any, error: BaseException | None, entries: list[Any]) -> str | None:
    """What this version cannot do, in a few words; None if it is as good as the newest one before."""
    if error is not None:
        return type(error).__name__
    old = entries[0].info if entries else None
    if not isinstance(entry, _core.Entry):  # the frame is left alone
        return "skipped-frame" if old is not None else None
    new = entry.info
    if len(new.breaks) > (0 if old is None else len(old.breaks)) and new.breaks[0].reason != "varying-key":
        return str(new.breaks[0].reason)
    more = [name for name in new.fallbacks if old is None or name not in old.fallbacks]
    return next((name for name in more if not name.startswith(_UNRELATED)), None)
