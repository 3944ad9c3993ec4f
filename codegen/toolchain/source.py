"""One generated kernel: the unit of compilation, of the disk cache and of de-duplication."""

from __future__ import annotations

import dataclasses
import hashlib

PLACEHOLDER = "KERNEL_SYMBOL"


@dataclasses.dataclass(frozen=True)
class KernelSource:
    """`text` defines the one function `symbol` and needs nothing but the math header."""

    symbol: str
    text: str

    @staticmethod
    def from_text(text: str) -> KernelSource:
        """Names a kernel by its content: equal bodies get equal symbols and are compiled once.

        `text` holds `KERNEL_SYMBOL` where the function's name belongs.
        """
        digest = hashlib.sha256(text.encode()).hexdigest()[:20]
        symbol = f"k_{digest}"
        return KernelSource(symbol, text.replace(PLACEHOLDER, symbol))
