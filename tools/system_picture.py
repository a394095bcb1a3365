"""The picture of the whole system, in a light and a dark version. :mod:`draw_diagrams` writes and checks both."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path

ASSETS = Path(__file__).resolve().parent.parent / "docs" / "assets"

_WIDTH, _HEIGHT = 960, 408
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_PALETTES = {  # the console's
    "light": {"panel": "#ffffff", "line": "#d8d5cf", "text": "#1d1c1a", "muted": "#66625c", "accent": "#4338ca",
              "wash": "#f4f3fd", "active": "#0f766e"},
    "dark": {"panel": "#18191d", "line": "#3a3b44", "text": "#e8e8ea", "muted": "#a0a1aa", "accent": "#a5a8ff",
             "wash": "#1d1d2b", "active": "#4fd1c1"},
}  # fmt: skip

_DECIDE = [
    ("Dagster", "assets, schedules, sensors, its UI"),
    ("Python", "tasks, flows, schedules"),
    ("Other programs", "Node (glide-mq), HTTP, Spark SQL"),
]
_SERVER = [
    "queues, priorities, delays",
    "leases, attempts, results",
    "graphs of jobs, schedules",
    "rate limits, pools, shares",
    "events, dead letters",
]
_RUN = [
    ("Dagster steps", "forked from a warm process"),
    ("Python tasks", "async, threads, or processes"),
    ("Spark work", "warm sessions, spark-submit"),
]
_WATCH = "Watch and repair:  web console  ·  oq CLI  ·  oq doctor  ·  Prometheus  ·  OpenTelemetry"


def pictures() -> dict[Path, str]:
    """Return the text of each picture by its path."""
    return {ASSETS / f"system-{name}.svg": _draw(palette) for name, palette in _PALETTES.items()}


def _draw(palette: dict[str, str]) -> str:
    parts = "\n".join(_parts(palette))
    marker = (
        f'<marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        f'<path d="M0 0 8 4 0 8z" fill="{palette["accent"]}"/></marker>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="{_FONT}" font-size="14">\n'
        f"<defs>{marker}</defs>\n{parts}\n</svg>\n"
    )


def _parts(palette: dict[str, str]) -> Iterator[str]:
    muted, text, accent = palette["muted"], palette["text"], palette["accent"]
    for x, width, words in ((0, 268, "decide what runs"), (366, 228, "keeps and orders it"), (692, 268, "run it")):
        yield _text(x + width / 2, 20, words, muted, anchor="middle", size=13)
    for row, (title, line) in enumerate(_DECIDE):
        yield from _card(palette, 0, 36 + row * 96, 268, 80, title, line)
        yield _arrow(palette, 268, 76 + row * 96, 362, 136 + row * 36)
    # The server.
    yield _box(366, 36, 228, 272, palette["wash"], accent, 2)
    yield _text(480, 70, "Valkey or Redis", text, anchor="middle", size=17, weight=650)
    yield _text(480, 91, "the only service to operate", muted, anchor="middle", size=13)
    for row, line in enumerate(_SERVER):
        width = (180, 156, 132, 108, 84)[row]
        yield f'<rect x="392" y="{112 + row * 37}" width="{width}" height="5" rx="2.5" fill="{accent}"/>'
        yield _text(392, 133 + row * 37, line, text, size=13)
    # The fleet: cards in front of the edges of others, as there are any number of workers.
    for edge in (12, 6):
        yield _box(704 + edge, 36 + edge, 244, 272 - edge, palette["panel"], palette["line"])
    yield _box(704, 36, 244, 272, palette["panel"], palette["line"])
    yield _text(826, 60, "Workers, on any machine", text, anchor="middle", size=14, weight=650)
    for row, (title, line) in enumerate(_RUN):
        top = 76 + row * 76
        yield _box(716, top, 220, 64, palette["wash"], palette["line"])
        yield _text(730, top + 27, title, palette["active"], size=14, weight=650)
        yield _text(730, top + 47, line, muted, size=12.5)
    yield _arrow(palette, 594, 132, 700, 132)
    yield _text(647, 122, "job and lease", muted, anchor="middle", size=12.5)
    yield _arrow(palette, 704, 214, 598, 214)
    yield _text(649, 204, "renewals,", muted, anchor="middle", size=12.5)
    yield _text(649, 234, "outcome", muted, anchor="middle", size=12.5)
    # The operators.
    yield _box(0, 352, 960, 48, palette["panel"], palette["line"])
    yield _text(480, 381, _WATCH, text, anchor="middle", size=14)
    yield _arrow(palette, 480, 352, 480, 312)


def _card(palette: dict[str, str], x: float, y: float, width: float, height: float, title: str, line: str
          ) -> Iterator[str]:  # fmt: skip
    yield _box(x, y, width, height, palette["panel"], palette["line"])
    yield _text(x + 18, y + 34, title, palette["text"], size=16, weight=650)
    yield _text(x + 18, y + 57, line, palette["muted"], size=13.5)


def _box(x: float, y: float, width: float, height: float, fill: str, line: str, thick: float = 1.2) -> str:
    inset = thick / 2
    return (
        f'<rect x="{x + inset}" y="{y + inset}" width="{width - thick}" height="{height - thick}" rx="10" '
        f'fill="{fill}" stroke="{line}" stroke-width="{thick}"/>'
    )


def _text(x: float, y: float, words: str, color: str, *, size: float, anchor: str = "start", weight: int = 400) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" fill="{color}" font-size="{size:g}" font-weight="{weight}" '
        f'text-anchor="{anchor}" xml:space="preserve">{escape(words)}</text>'
    )


def _arrow(palette: dict[str, str], x: float, y: float, to_x: float, to_y: float) -> str:
    bend = (x + to_x) / 2
    path = f"M{x:g} {y:g}C{bend:g} {y:g} {bend:g} {to_y:g} {to_x:g} {to_y:g}"
    return f'<path d="{path}" fill="none" stroke="{palette["accent"]}" stroke-width="1.6" marker-end="url(#end)"/>'
