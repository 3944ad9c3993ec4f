"""Which numbers of a function's calls varied so far: sizes, strides, ints and floats, by where they come from.

    first compile    x.shape == (8, 128)    nothing is known: all numbers are plain
    second compile   x.shape == (8, 200)    position 1 of "L['x']" varies: symbolic from now on

One `Varied` a code object and set of options. What varied is written to the cache folder (knob `remember_sizes`), so that
the next process starts with it: a file for each code object, found by its place and a digest of what it does.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import stat
import struct
import sys
import tempfile
import types
import warnings
import weakref
from typing import Any

from dyncomp import config, log

FORMAT = "sizes-1"
Numbers = tuple[Any, ...]
_warned: set[str] = set()
_generation = 0


@dataclasses.dataclass
class Seen:
    """The numbers of one source at the last compile (None: of an earlier process), how many, and positions that varied."""

    numbers: Numbers | None
    count: int
    varied: set[int] = dataclasses.field(default_factory=set)

    def meet(self, numbers: Numbers) -> bool:
        """True if more positions vary than before."""
        before = len(self.varied)
        if len(numbers) != self.count:  # a tensor of another rank: nothing tells which of its sizes will stay
            self.count, self.numbers, self.varied = len(numbers), None, set(range(len(numbers) // 2))
            before = -1
        if self.numbers is not None:
            pairs = zip(self.numbers, numbers, strict=True)
            self.varied.update(i for i, (old, new) in enumerate(pairs) if not _equal(old, new))
        self.numbers = numbers
        return len(self.varied) > before


def _equal(a: Any, b: Any) -> bool:
    """Floats by their bits, as guards compare them."""
    if isinstance(a, float) and isinstance(b, float):
        return struct.pack("d", a) == struct.pack("d", b)
    return bool(a == b)


class Varied:
    """`static` holds why symbolic numbers were given up for this code, if they were."""

    def __init__(self, code: types.CodeType):
        self._code = weakref.ref(code)  # whose life is the program's affair
        self._seen: dict[str, Seen] = _load(code)
        self._grown = False
        self.keys: dict[str, set[Any]] = {}  # what look-ups were made with, and classes by id, by place
        self.generation = _generation
        self.static: str | None = None

    def meet(self, key: str, numbers: Numbers) -> set[int]:
        """The positions that varied, this call included."""
        known = self._seen.setdefault(key, Seen(None, len(numbers)))
        if known.meet(numbers):
            self._grown = True
            log.write("dynamic", "%s varies in %s", key, sorted(known.varied))
        return known.varied

    def meet_key(self, place: str, key: Any) -> int:
        """How many different keys a look-up at this place was compiled with, this call included."""
        met = self.keys.setdefault(place, set())
        met.add(key)
        return len(met)

    def has(self, key: str) -> bool:
        return key in self._seen

    def any(self) -> bool:
        return any(seen.varied for seen in self._seen.values())

    def forget_on_disk(self) -> None:
        """Symbolic numbers were given up: the next process is to start with plain ones too."""
        self._write({})

    def _write(self, rows: dict[str, Any]) -> None:
        code = self._code()
        if code is not None:
            _store(code, rows)

    def save(self) -> None:
        """Called once a compile is done."""
        if self._grown:
            self._grown = False
            self._write({key: [s.count, sorted(s.varied)] for key, s in self._seen.items() if s.varied})


def of(context: Any, code: types.CodeType) -> Varied:
    known = context.sizes.get(code)
    if known is None or known.generation != _generation:
        known = context.sizes[code] = Varied(code)
    return known  # type: ignore[no-any-return]


def forget() -> None:
    """What this process saw so far does not count any more; what is on disk stays."""
    global _generation
    _generation += 1


# ---- on disk


def _folder() -> pathlib.Path | None:
    """The folder of this user alone, made if need be; None if it is switched off or cannot be used."""
    if not (config.remember_sizes and config.disk_cache):
        return None
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    root = (pathlib.Path(config.cache_dir) if config.cache_dir else pathlib.Path(base) / "dyncomp") / FORMAT
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = root.stat()
    except OSError as error:
        _tell("folder", f"dyncomp: {root} cannot be used to remember sizes: {error}")
        return None
    if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o022:
        _tell("folder", f"dyncomp: {root} is not used: it must be yours and writable by you alone")
        return None
    return root


def _tell(what: str, text: str) -> None:
    if what not in _warned:
        _warned.add(what)
        warnings.warn(text, RuntimeWarning, stacklevel=2)
    log.write("cache", "%s", text)


def _name(code: types.CodeType) -> str:
    """Digest of where the code stands and of what it does."""
    digest = hashlib.sha256(f"{FORMAT} {sys.version_info[:2]} {code.co_filename} {code.co_qualname}".encode())
    digest.update(f" {code.co_firstlineno} ".encode())
    _add_code(digest, code)
    return digest.hexdigest()


def _add_code(digest: Any, code: types.CodeType) -> None:
    digest.update(code.co_code)
    digest.update(repr((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)).encode())
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            _add_code(digest, constant)
        elif not isinstance(constant, frozenset):  # whose order is not the same in every process
            digest.update(repr(constant).encode())


def _load(code: types.CodeType) -> dict[str, Seen]:
    folder = _folder()
    if folder is None:
        return {}
    path = folder / f"{_name(code)}.json"
    try:
        return {key: _checked(*row) for key, row in json.loads(path.read_text()).items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        _tell("damaged", f"dyncomp: {path} is damaged and ignored: {type(error).__name__}: {error}")
        return {}


def _checked(count: int, varied: list[int]) -> Seen:
    if type(count) is not int or not all(type(i) is int and 0 <= i < count for i in varied):
        raise ValueError(f"{count}, {varied}")
    return Seen(None, count, set(varied))


def _store(code: types.CodeType, rows: dict[str, Any]) -> None:
    folder = _folder()
    if folder is None:
        return
    try:
        handle, name = tempfile.mkstemp(dir=folder, prefix="tmp-")
        with os.fdopen(handle, "w") as file:
            json.dump(rows, file)
        os.replace(name, folder / f"{_name(code)}.json")
    except OSError as error:
        _tell("store", f"dyncomp: sizes that varied cannot be remembered in {folder}: {error}")
