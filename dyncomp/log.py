"""Named log channels, switched on by `DYNCOMP_LOGS=graph_breaks,recompiles,...` or `set_logs`.

Ordinary `logging` loggers below `dyncomp.`; a channel that is off costs one set look-up.
"""

from __future__ import annotations

import difflib
import logging
import os
import sys

from dyncomp.errors import OptionError

CHANNELS = (
    "graph_breaks",
    "recompiles",
    "guards",
    "graph",
    "bytecode",
    "aot",
    "loops",
    "kernels",
    "plan",
    "dynamic",
    "perf",
    "cache",
)
_on: set[str] = set()


def set_logs(*channels: str) -> None:
    """Switches on exactly these channels (`all` for every one); an unknown name raises OptionError with the nearest match."""
    wanted: set[str] = set()
    for channel in channels:
        if channel == "all":
            wanted.update(CHANNELS)
        elif channel in CHANNELS:
            wanted.add(channel)
        else:
            near = difflib.get_close_matches(channel, CHANNELS, n=1)
            did = f" Did you mean {near[0]!r}?" if near else ""
            raise OptionError(f"no log channel {channel!r}.{did} Known: all, {', '.join(CHANNELS)}")
    _on.clear()
    _on.update(wanted)
    root = logging.getLogger("dyncomp")
    if _on and not root.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("[%(name)s] %(message)s"))
        root.addHandler(handler)
        root.propagate = False
    root.setLevel(logging.DEBUG if _on else logging.NOTSET)


def enabled(channel: str) -> bool:
    """True if the channel is on; guard costly formatting with it."""
    return channel in _on


def write(channel: str, message: str, *args: object) -> None:
    """Logs `message % args` on a channel if it is on."""
    if channel in _on:
        logging.getLogger(f"dyncomp.{channel}").debug(message, *args)


def _from_environment() -> None:
    text = os.environ.get("DYNCOMP_LOGS", "")
    if text:
        set_logs(*[part.strip() for part in text.split(",") if part.strip()])


_from_environment()
