"""Facts that a captured frame relies on: sources, records, and the native tree built from them."""

from dyncomp.guards.record import GuardList, GuardRecord, describe
from dyncomp.guards.source import Source

__all__ = ["GuardList", "GuardRecord", "Source", "describe"]
