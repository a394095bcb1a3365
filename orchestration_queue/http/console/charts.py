"""The geometry of charts over time: stacked bars, and lines on a logarithmic scale.

Positions along the time axis are percentages and heights are pixels, so that a chart fits any width and its text is not
stretched.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

__all__ = ["Series", "TimeChart", "draw_bars", "draw_lines"]

_TOP, _BOTTOM = 8, 116
_GAP = 0.18
"""Part of a bar's room that stays empty."""
_MOST_TICKS = 4
_BEFORE = "before"
"""The tone of what is compared: muted in bars, paler in lines."""
_STEPS = (1, 2, 5)
"""Ticks of a scale that spans one power of ten."""


@dataclass(frozen=True, slots=True)
class Series:
    """A series of values over time.

    Attributes:
        name: Its name in the legend and in the table.
        tone: The class that determines its color.
        values: A value per slot; None for a slot without one.
    """

    name: str
    tone: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class _Bar:
    x: float
    width: float
    y: float
    height: float
    tone: str


@dataclass(frozen=True, slots=True)
class _Stroke:
    x1: float
    y1: float
    x2: float
    y2: float
    tone: str


@dataclass(frozen=True, slots=True)
class _Slot:
    """A slot of the time axis with its values as text."""

    x: float
    width: float
    title: str


@dataclass(frozen=True, slots=True)
class TimeChart:
    """A chart and the table behind it.

    Attributes:
        series: The series, as in the legend.
        slots: The time of each value.
        columns: The series of the table: with those of an earlier time that is compared.
        rows: The table: the values of each slot as text.
        ticks: The labels of the vertical axis, each with its height.
        labels: The labels of the time axis: position, anchor and text.
        titles: What each slot holds, to be shown when it is pointed at.
        bars: The bars.
        strokes: The lines, by their parts.
        span: When the first slot begins, and how long each is, in seconds since the epoch and seconds; None if unknown.
        bottom: The height of the time axis.
    """

    series: Sequence[Series]
    slots: Sequence[str]
    columns: Sequence[Series]
    rows: Sequence[Sequence[str]]
    ticks: Sequence[tuple[float, str]]
    labels: Sequence[tuple[float, str, str]]
    titles: Sequence[_Slot]
    bars: Sequence[_Bar] = ()
    strokes: Sequence[_Stroke] = ()
    span: tuple[int, int] | None = None
    bottom: int = field(default=_BOTTOM)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not (self.bars or self.strokes)


def draw_bars(
    series: Sequence[Series],
    slots: Sequence[str],
    text: Callable[[float], str],
    before: Sequence[Series] = (),
    *,
    span: tuple[int, int] | None = None,
) -> TimeChart:
    """Draw counts as bars, the first series at the bottom of each.

    Args:
        series: The counts.
        slots: The time of each.
        text: Formats a count.
        before: The counts of an earlier time, whose sums are drawn as a line.
        span: When the first slot begins, and how long each is, in seconds.
    """
    step = 100 / max(1, len(slots))
    sums, sums_before = _sum(series, len(slots)), _sum(before, len(slots))
    most = _round_up(max([*sums, *sums_before], default=0))
    bars = []
    for place in range(len(slots)):
        below = 0.0
        for each in series:
            height = (each.values[place] or 0) / most * (_BOTTOM - _TOP)
            if height:
                # A single failure among thousands is visible.
                height = max(1.5, height)
                x = round((place + _GAP / 2) * step, 3)
                y = round(max(_TOP, _BOTTOM - below - height), 1)
                bars.append(_Bar(x, round(step * (1 - _GAP), 3), y, round(height, 1), each.tone))
            below += height
    ticks = [(_BOTTOM - part * (_BOTTOM - _TOP), text(most * part)) for part in (0, 0.5, 1)]
    strokes: list[_Stroke] = []
    if any(sums_before):
        line = Series("", _BEFORE, sums_before)
        strokes = _join(line, step, lambda value: round(_BOTTOM - (value or 0) / most * (_BOTTOM - _TOP), 1))
    return _chart(series, slots, text, ticks, before, bars=bars, strokes=strokes, span=span)


def _sum(series: Sequence[Series], slots: int) -> list[float]:
    return [sum(each.values[place] or 0 for each in series) for place in range(slots)]


def _join(series: Series, step: float, height: Callable[[float | None], float | None]) -> list[_Stroke]:
    """Return the parts of a line, which is interrupted where a value has no height."""
    strokes = []
    last: tuple[float, float] | None = None
    for place, value in enumerate(series.values):
        y = height(value)
        point = None if y is None else (round((place + 0.5) * step, 3), y)
        if point:
            # A point alone is a line of no length with round ends.
            strokes.append(_Stroke(*(last or point), *point, series.tone))
        last = point
    return strokes


def draw_lines(
    series: Sequence[Series],
    slots: Sequence[str],
    text: Callable[[float], str],
    mark_text: Callable[[float], str],
    before: Sequence[Series] = (),
    *,
    span: tuple[int, int] | None = None,
) -> TimeChart:
    """Draw values above 0 as lines on a logarithmic scale.

    Args:
        series: The values.
        slots: The time of each.
        text: Formats a value.
        mark_text: Formats a mark of the scale: a power of ten, or one times 2 or 5.
        before: The values of an earlier time, whose lines are paler.
        span: When the first slot begins, and how long each is, in seconds.
    """
    values = [value for each in (*series, *before) for value in each.values if value]
    low = math.floor(math.log10(min(values))) if values else 0
    high = max(low + 1, math.ceil(math.log10(max(values)))) if values else 1
    step = 100 / max(1, len(slots))

    def height(value: float) -> float:
        return round(_BOTTOM - (math.log10(value) - low) / (high - low) * (_BOTTOM - _TOP), 1)

    def height_or_none(value: float | None) -> float | None:
        return height(value) if value else None

    pale = [replace(each, tone=f"{each.tone} {_BEFORE}") for each in before]
    strokes = [stroke for each in (*pale, *series) for stroke in _join(each, step, height_or_none)]
    every = -(-(high - low) // _MOST_TICKS)
    steps = _STEPS if high - low == 1 else (1,)
    marks = [10.0**power * step for power in range(low, high + 1, every) for step in steps]
    ticks = [(height(mark), mark_text(mark)) for mark in marks if mark <= 10.0**high]
    return _chart(series, slots, text, ticks, before, strokes=strokes, span=span)


def _chart(
    series: Sequence[Series],
    slots: Sequence[str],
    text: Callable[[float], str],
    ticks: Sequence[tuple[float, str]],
    before: Sequence[Series],
    bars: Sequence[_Bar] = (),
    strokes: Sequence[_Stroke] = (),
    span: tuple[int, int] | None = None,
) -> TimeChart:
    step = 100 / max(1, len(slots))
    columns = [*series, *before]
    values = zip(*(each.values for each in columns), strict=True) if columns else ([] for _ in slots)
    rows = [["" if value is None else text(value) for value in of_slot] for of_slot in values]
    titles = [
        _Slot(round(place * step, 3), round(step, 3), f"{slot}: {_say(columns, row)}")
        for place, (slot, row) in enumerate(zip(slots, rows, strict=True))
    ]
    middle = len(slots) // 2
    ends = [(0.0, "start", slots[0]), (50.0, "middle", slots[middle]), (100.0, "end", slots[-1])] if slots else []
    return TimeChart(series, slots, columns, rows, ticks, ends, titles, bars, strokes, span)


def _say(series: Sequence[Series], row: Sequence[str]) -> str:
    return ", ".join(f"{value} {each.name}" for each, value in zip(series, row, strict=True) if value) or "none"


def _round_up(value: float) -> float:
    """Return the next round number, whose half is one, too; at least 2."""
    if value <= 2:
        return 2
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 6, 8, 10) if step * power >= value)
