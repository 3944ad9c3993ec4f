"""Functions of the standard library that are written in C, once more in Python, so that calls of them can be followed.

They compare, call and raise as the C code does, in the same order. What the C code refuses by the type of an argument never comes
here (`stand_in_calls.py`).
"""

from __future__ import annotations

from typing import Any


# -- heapq ---------------------------------------------------------------------------------------------------
def heappush(heap: Any, item: Any) -> None:
    heap.append(item)
    _to_the_front(heap, 0, len(heap) - 1)


def heappop(heap: Any) -> Any:
    if not heap:
        raise IndexError("index out of range")
    last = heap.pop()
    if not heap:
        return last
    first = heap[0]
    heap[0] = last
    _to_the_back(heap, 0)
    return first


def heapreplace(heap: Any, item: Any) -> Any:
    if not heap:
        raise IndexError("index out of range")
    first = heap[0]
    heap[0] = item
    _to_the_back(heap, 0)
    return first


def heappushpop(heap: Any, item: Any) -> Any:
    if heap and heap[0] < item:
        first = heap[0]
        heap[0] = item
        _to_the_back(heap, 0)
        return first
    return item


def heapify(heap: Any) -> None:
    for place in reversed(range(len(heap) // 2)):
        _to_the_back(heap, place)


def _to_the_front(heap: Any, start: int, place: int) -> None:
    item = heap[place]
    while place > start:
        parent = (place - 1) >> 1
        if not item < heap[parent]:
            break
        heap[place] = heap[parent]
        place = parent
    heap[place] = item


def _to_the_back(heap: Any, place: int) -> None:
    end, start = len(heap), place
    item = heap[place]
    child = 2 * place + 1
    while child < end:
        if child + 1 < end and not heap[child] < heap[child + 1]:
            child += 1
        heap[place] = heap[child]
        place = child
        child = 2 * place + 1
    heap[place] = item
    _to_the_front(heap, start, place)


def heapify_max(heap: Any) -> None:
    for place in reversed(range(len(heap) // 2)):
        _to_the_back_max(heap, place)


def heappop_max(heap: Any) -> Any:
    if not heap:
        raise IndexError("index out of range")
    last = heap.pop()
    if not heap:
        return last
    first = heap[0]
    heap[0] = last
    _to_the_back_max(heap, 0)
    return first


def heapreplace_max(heap: Any, item: Any) -> Any:
    if not heap:
        raise IndexError("index out of range")
    first = heap[0]
    heap[0] = item
    _to_the_back_max(heap, 0)
    return first


def _to_the_front_max(heap: Any, start: int, place: int) -> None:
    item = heap[place]
    while place > start:
        parent = (place - 1) >> 1
        if not heap[parent] < item:
            break
        heap[place] = heap[parent]
        place = parent
    heap[place] = item


def _to_the_back_max(heap: Any, place: int) -> None:
    end, start = len(heap), place
    item = heap[place]
    child = 2 * place + 1
    while child < end:
        if child + 1 < end and not heap[child + 1] < heap[child]:
            child += 1
        heap[place] = heap[child]
        place = child
        child = 2 * place + 1
    heap[place] = item
    _to_the_front_max(heap, start, place)


# -- bisect --------------------------------------------------------------------------------------------------
def bisect_right(a: Any, x: Any, lo: int = 0, hi: Any = None, *, key: Any = None) -> int:
    if lo < 0:
        raise ValueError("lo must be non-negative")
    if hi is None:
        hi = len(a)
    while lo < hi:
        mid = (lo + hi) // 2
        item = a[mid] if key is None else key(a[mid])
        if x < item:
            hi = mid
        else:
            lo = mid + 1
    return lo


def bisect_left(a: Any, x: Any, lo: int = 0, hi: Any = None, *, key: Any = None) -> int:
    if lo < 0:
        raise ValueError("lo must be non-negative")
    if hi is None:
        hi = len(a)
    while lo < hi:
        mid = (lo + hi) // 2
        item = a[mid] if key is None else key(a[mid])
        if item < x:
            lo = mid + 1
        else:
            hi = mid
    return lo


def insort_right(a: Any, x: Any, lo: int = 0, hi: Any = None, *, key: Any = None) -> None:
    a.insert(bisect_right(a, x if key is None else key(x), lo, hi, key=key), x)


def insort_left(a: Any, x: Any, lo: int = 0, hi: Any = None, *, key: Any = None) -> None:
    a.insert(bisect_left(a, x if key is None else key(x), lo, hi, key=key), x)


# -- collections ---------------------------------------------------------------------------------------------
def count_elements(mapping: Any, iterable: Any) -> None:
    for element in iterable:
        mapping[element] = mapping.get(element, 0) + 1


# -- functools -----------------------------------------------------------------------------------------------
class ByComparison:
    """What `functools.cmp_to_key(compare)` makes of an object."""

    __slots__ = ("compare", "obj")

    def __init__(self, compare: Any, obj: Any):
        self.compare = compare
        self.obj = obj

    def __lt__(self, other: Any) -> bool:
        return self.compare(self.obj, other.obj) < 0  # type: ignore[no-any-return]

    def __gt__(self, other: Any) -> bool:
        return self.compare(self.obj, other.obj) > 0  # type: ignore[no-any-return]

    def __eq__(self, other: Any) -> bool:
        return self.compare(self.obj, other.obj) == 0  # type: ignore[no-any-return]

    def __le__(self, other: Any) -> bool:
        return self.compare(self.obj, other.obj) <= 0  # type: ignore[no-any-return]

    def __ge__(self, other: Any) -> bool:
        return self.compare(self.obj, other.obj) >= 0  # type: ignore[no-any-return]

    __hash__ = None  # type: ignore[assignment]
