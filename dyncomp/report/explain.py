"""`dyncomp.explain(fn)(*args)`: run once, and tell what was captured, where it broke, and what is guarded."""

from __future__ import annotations

import dataclasses
import html
import json
from collections.abc import Callable
from typing import Any

from dyncomp import api
from dyncomp._frame import _core
from dyncomp.driver import CompileRecord
from dyncomp.errors import REASONS, BreakRecord
from dyncomp.interp.number_report import NumberReport
from dyncomp.optimized_module import original_of


@dataclasses.dataclass
class Explanation:
    """What one call compiled. `result` is the call's own result; `frames` one record a compiled (or skipped) frame, in order."""

    target: str
    frames: list[CompileRecord]
    result: Any = dataclasses.field(repr=False, default=None)

    @property
    def graphs(self) -> list[str]:
        """Readable code of every captured graph."""
        return [f.graph for f in self.frames if f.graph is not None]

    @property
    def breaks(self) -> list[BreakRecord]:
        return [b for f in self.frames for b in f.breaks]

    @property
    def skipped(self) -> list[BreakRecord]:
        return [f.skipped for f in self.frames if f.skipped is not None]

    @property
    def guards(self) -> list[str]:
        return [g for f in self.frames for g in f.guards]

    @property
    def numbers(self) -> list[NumberReport]:
        """Each size and number that the call brought: symbolic or not, its range, who pinned it, what would free it."""
        return [n for f in self.frames for n in f.numbers]

    @property
    def recompiles(self) -> list[str]:
        return [f.recompile_reason for f in self.frames if f.recompile_reason is not None]

    @property
    def graph_count(self) -> int:
        return len(self.graphs)

    @property
    def graph_break_count(self) -> int:
        return len(self.breaks)

    def __str__(self) -> str:
        lines = [
            f"{self.target}: {len(self.graphs)} graph(s), {len(self.breaks)} graph break(s), "
            f"{len(self.skipped)} frame(s) left alone, {len(self.guards)} guards"
        ]
        for i, frame in enumerate(self.frames):
            lines.append(
                f"\n[{i}] {frame.name} ({frame.filename}:{frame.line}), {frame.graph_size} operations, {frame.seconds * 1e3:.0f} ms"
            )
            if frame.recompile_reason:
                lines.append(f"  compiled again because {frame.recompile_reason}")
            lines += [f"  break {record}" for record in frame.breaks]
            if frame.skipped is not None:
                lines.append(f"  left alone: {frame.skipped}")
            lines += [f"  number {number}" for number in frame.numbers]
            lines += [f"  guard {guard}" for guard in frame.guards]
        return "\n".join(lines)

    def json(self) -> str:
        """All of it as a JSON text."""
        return json.dumps({"target": self.target, "frames": [_plain(frame) for frame in self.frames]}, indent=1)

    def html(self, path: str) -> str:
        """Writes a page that stands alone and returns its path."""
        body = []
        for frame in self.frames:
            body.append(
                f"<h2>{html.escape(frame.name)}</h2><p>{html.escape(frame.filename)}:{frame.line}, {frame.graph_size} operations</p>"
            )
            for record in [*frame.breaks, *([frame.skipped] if frame.skipped else [])]:
                body.append(f"<pre class=break>{html.escape(str(record))}</pre>")
            body.append(
                "<details><summary>guards</summary><pre>" + html.escape("\n".join(frame.guards)) + "</pre></details>"
            )
            if frame.numbers:
                numbers = html.escape("\n".join(map(str, frame.numbers)))
                body.append(f"<details><summary>sizes and numbers</summary><pre>{numbers}</pre></details>")
            if frame.graph:
                body.append("<details><summary>graph</summary><pre>" + html.escape(frame.graph) + "</pre></details>")
        style = "body{font-family:sans-serif;max-width:70em;margin:2em auto}pre{background:#f4f4f4;padding:.6em;overflow:auto}.break{background:#fdeaea}"
        text = (
            f"<!doctype html><meta charset=utf-8><title>{html.escape(self.target)}</title><style>{style}</style>"
            f"<h1>{html.escape(self.target)}</h1><p>{len(self.graphs)} graphs, {len(self.breaks)} breaks</p>{''.join(body)}"
        )
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return path


def _plain(frame: CompileRecord) -> dict[str, Any]:
    """A record as JSON types: the guards in words instead of the facts themselves."""
    not_plain = ("facts", "places", "breaks", "skipped", "numbers")
    names = [field.name for field in dataclasses.fields(frame) if field.name not in not_plain]
    plain = {name: getattr(frame, name) for name in names}
    plain["guards"] = frame.guards
    plain["numbers"] = [dataclasses.asdict(number) for number in frame.numbers]
    plain["breaks"] = [dataclasses.asdict(record) for record in frame.breaks]
    plain["skipped"] = None if frame.skipped is None else dataclasses.asdict(frame.skipped)
    return plain


def _options_of(fn: Any, target: Any) -> dict[str, Any]:
    """What decides how something optimised is captured (`fullgraph` would only turn breaks into errors)."""
    if fn is target and not isinstance(fn, _core.Dispatcher):
        return {}
    context = api.context_of(fn)
    return {"backend": context.backend, "dynamic": context.dynamic, "options": dict(context.options) or None}


def explain(fn: Callable[..., Any], **options: Any) -> Callable[..., Explanation]:
    """Returns a function that calls `fn` once under a fresh capture and returns the Explanation.

    Takes the options of `optimize`; what `optimize` returned is explained with its own, where none are given in their place.
    Compiled code of other calls is neither used nor replaced.
    """

    def run(*args: Any, **kwargs: Any) -> Explanation:
        frames: list[CompileRecord] = []
        target = original_of(fn)
        fast = api.optimize(target, **{**_options_of(fn, target), **options})
        context = api.context_of(fast)
        context.observers.append(frames.append)
        result = fast(*args, **kwargs)
        name = getattr(target, "__qualname__", type(target).__name__)
        return Explanation(name, frames, result)

    return run


__all__ = ["REASONS", "Explanation", "explain"]
