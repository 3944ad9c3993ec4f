"""The kernel cache on disk: compiled libraries by content, and one small reference file a kernel.

    <folder>/lib/<sha256>.so         several kernels, named by the digest of its own bytes
    <folder>/ref/<kernel key>        one line: the digest of the library that defines the kernel

A library is loaded only after its digest was checked, so that a torn or edited file is never executed; the
folder
must belong to this user alone, since what it holds will run. Writers use a temporary name and rename, so any
number of processes may share the folder. The least recently used libraries go when it outgrows its bound.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import stat
import tempfile
import warnings

from dyncomp import config, log

FORMAT = "kernels-1"
_warned: set[str] = set()


def _warn_once(what: str, text: str) -> None:
    if what not in _warned:
        _warned.add(what)
        warnings.warn(text, RuntimeWarning, stacklevel=2)
    log.write("cache", "%s", text)


class DiskCache:
    """A usable cache folder. `open_cache` makes one."""

    def __init__(self, root: pathlib.Path):
        self.root = root
        self.libraries = root / "lib"
        self.references = root / "ref"
        for folder in (self.libraries, self.references):
            folder.mkdir(mode=0o700, exist_ok=True)

    def find(self, key: str) -> pathlib.Path | None:
        """The checked library that defines a kernel, or None. A damaged one is dropped with one warning."""
        try:
            digest = (self.references / key).read_text().strip()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as e:
            _warn_once(
                "damaged",
                f"dyncomp: unreadable kernel cache entry {self.references / key}: {e}; compiling again",
            )
            return None
        library = self.libraries / f"{digest}.so"
        try:
            data = library.read_bytes()
        except FileNotFoundError:
            return None  # evicted by size
        except (OSError, ValueError) as e:
            _warn_once("damaged", f"dyncomp: unreadable kernel cache file {library}: {e}; compiling again")
            return None
        if hashlib.sha256(data).hexdigest() != digest:
            _warn_once(
                "damaged", f"dyncomp: damaged kernel cache file {library}; it is removed and compiled again"
            )
            library.unlink(missing_ok=True)
            return None
        with contextlib.suppress(OSError):
            os.utime(library)  # least recently used goes first
        return library

    def store(self, built: pathlib.Path, keys: list[str]) -> pathlib.Path:
        """Moves a freshly built library in and points the kernels at it; returns where it lies."""
        digest = hashlib.sha256(built.read_bytes()).hexdigest()
        library = self.libraries / f"{digest}.so"
        os.replace(built, library)
        for key in keys:
            self._write(self.references / key, digest)
        return library

    def workplace(self) -> tempfile.TemporaryDirectory[str]:
        """A private folder on the same file system, so that `store` can rename out of it."""
        return tempfile.TemporaryDirectory(prefix="tmp-", dir=self.root, ignore_cleanup_errors=True)

    def trim(self, limit_bytes: int) -> None:
        """Drops the least recently used libraries until the rest is within the bound, and their
        references."""
        files = []
        for path in self.libraries.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another process trims too
                status = path.stat()
                files.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in files)
        if total <= limit_bytes:
            return
        gone = set()
        for _, size, path in sorted(files):
            if total <= limit_bytes:
                break
            path.unlink(missing_ok=True)
            gone.add(path.stem)
            total -= size
        for reference in self.references.iterdir():
            with contextlib.suppress(OSError):
                if reference.read_text().strip() in gone:
                    reference.unlink()

    def _write(self, path: pathlib.Path, text: str) -> None:
        handle, name = tempfile.mkstemp(dir=self.root, prefix="tmp-")
        with os.fdopen(handle, "w") as file:
            file.write(text + "\n")
        os.replace(name, path)


def open_cache() -> DiskCache | None:
    """The cache of the knobs `cache_dir` and `disk_cache`; None (with one warning) if the folder cannot be
    trusted."""
    if not config.disk_cache:
        return None
    root = (pathlib.Path(config.cache_dir) if config.cache_dir else _default_folder()) / FORMAT
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = root.stat()
        if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o022:
            _warn_once(
                str(root),
                f"dyncomp: kernel cache {root} is not used: it must be yours and writable by you alone",
            )
            return None
        return DiskCache(root)
    except OSError as e:
        _warn_once(str(root), f"dyncomp: kernel cache {root} is not used: {e}")
        return None


def _default_folder() -> pathlib.Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(base) / "dyncomp"


def describe_cache() -> str:
    """Folder, number of libraries and size of the kernel cache, for people. Raises OSError if it cannot be read."""
    cache = open_cache()
    if cache is None:
        return "off" if not config.disk_cache else "not usable (see the warning)"
    sizes = [path.stat().st_size for path in cache.libraries.iterdir()]
    return f"{cache.root}: {len(sizes)} libraries, {sum(sizes) / 2**20:.1f} of at most {config.cache_size_mb} MiB"


def clear_cache() -> None:
    """Deletes every kernel on disk; those loaded in running processes stay usable."""
    cache = open_cache()
    if cache is not None:
        cache.trim(0)
