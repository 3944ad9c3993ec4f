"""The debug folder: one sub-folder a compile, files numbered by stage, readable and where possible runnable.

`config.debug_dir` (or `options={"debug_dir": ...}`) switches it on; nothing is written otherwise.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
from collections.abc import Callable
from typing import Any

from dyncomp import config

_number = itertools.count()


@dataclasses.dataclass
class Folder:
    """`path` is None when the debug folder is off; every method is then a no-op."""

    path: str | None
    _files: Any = dataclasses.field(default_factory=lambda: itertools.count(1))

    def dump(self, stage: str, text: str) -> None:
        """Writes one file; `stage` is its name with the extension."""
        if self.path is not None:
            with open(os.path.join(self.path, f"{next(self._files):02d}_{stage}"), "w", encoding="utf-8") as f:
                f.write(text)

    def write(self, stage: str, make: Callable[[], str]) -> None:
        """As `dump`, with the text made only when it is wanted."""
        if self.path is not None:
            self.dump(stage, make())


def open_folder(name: str) -> Folder:
    """A fresh folder for one compile, or a folder that swallows everything when debugging is off."""
    base = config.debug_dir
    if not base:
        return Folder(None)
    safe = re.sub(r"[^\w.-]+", "_", name)[:60]
    path = os.path.join(base, f"{next(_number):04d}_{safe}")
    os.makedirs(path, exist_ok=True)
    return Folder(path)
