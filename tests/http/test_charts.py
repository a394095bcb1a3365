"""Charts over time: bars and lines in their places, and the tables behind them."""

from __future__ import annotations

import pytest

from orchestration_queue.http.console.calendar import _brief, _level
from orchestration_queue.http.console.charts import Series, TimeChart, draw_bars, draw_lines
from orchestration_queue.http.console.statistics import _mark_text

TOP, BOTTOM = 8, 116


def count(value: float) -> str:
    return f"{value:.0f}"


def test_bars_stand_on_each_other_and_keep_within_the_chart() -> None:
    chart = draw_bars([Series("done", "a", [3, 0, 1]), Series("bad", "b", [1, 0, 0])], ["x", "y", "z"], count)
    first, above, last = chart.bars
    assert first.y + first.height == BOTTOM
    assert above.y + above.height == pytest.approx(first.y, abs=0.2)
    assert above.y == TOP  # 4 of 4
    assert last.x > 66
    assert [text for _, text in chart.ticks] == ["0", "2", "4"]
    assert chart.rows == [["3", "1"], ["0", "0"], ["1", "0"]]
    assert [slot.title for slot in chart.titles] == ["x: 3 done, 1 bad", "y: 0 done, 0 bad", "z: 1 done, 0 bad"]


def test_one_failure_among_a_million_jobs_is_visible() -> None:
    chart = draw_bars([Series("done", "a", [10**6]), Series("bad", "b", [1])], ["x"], count)
    assert chart.bars[1].height >= 1.5
    assert min(bar.y for bar in chart.bars) >= TOP


@pytest.mark.parametrize(
    ("most", "top"), [(1, "2"), (3, "4"), (225, "400"), (1000, "1000"), (1001, "2000"), (99_999, "100000")]
)
def test_the_scale_of_bars_ends_at_a_round_number(most: int, top: str) -> None:
    assert draw_bars([Series("done", "a", [most])], ["x"], count).ticks[-1] == (TOP, top)


def test_lines_are_logarithmic_and_interrupted_where_there_is_no_value() -> None:
    values = [0.01, 1, None, 0.1, 0, 10]
    chart = draw_lines([Series("p50", "a", values)], list("uvwxyz"), count, _mark_text)
    heights = {stroke.y2: stroke.x2 for stroke in chart.strokes}
    assert len(chart.strokes) == 4
    assert (min(heights), max(heights)) == (TOP, BOTTOM)
    assert chart.strokes[1].y1 == chart.strokes[0].y2
    assert (chart.strokes[2].x1, chart.strokes[2].y1) == (chart.strokes[2].x2, chart.strokes[2].y2)
    assert [text for _, text in chart.ticks] == ["10 ms", "100 ms", "1 s", "10 s"]


@pytest.mark.parametrize("values", [[0.001], [2.0, 3.0], [1e-3, 1e6]])
def test_a_scale_of_durations_has_some_marks_but_not_many(values: list[float]) -> None:
    chart = draw_lines([Series("p50", "a", values)], [str(value) for value in values], count, _mark_text)
    assert 3 <= len(chart.ticks) <= 6
    assert all(TOP <= height <= BOTTOM for height, _ in chart.ticks)


@pytest.mark.parametrize(
    "chart",
    [
        draw_bars([], ["x"], count),
        draw_bars([Series("done", "a", [0])], ["x"], count),
        draw_bars([Series("done", "a", [])], [], count),
        draw_lines([Series("p50", "a", [None])], ["x"], count, count),
    ],
)
def test_nothing_to_draw_is_empty(chart: TimeChart) -> None:
    assert chart.is_empty


def test_the_busiest_hour_has_the_darkest_shade() -> None:
    assert [_level(runs, 1000) for runs in (None, 0, 1, 1000)] == [0, 0, 1, 5]
    for most in (1, 2, 3, 7, 10**9):
        assert _level(most, most) == 5


@pytest.mark.parametrize(
    ("runs", "text"),
    [
        (7, "7"),
        (999, "999"),
        (1000, "1k"),
        (3607, "3.6k"),
        (99_999, "100k"),
        (720_000, "720k"),
        (7_200_000, "7.2M"),
        (12 * 10**9, "12G"),
    ],
)
def test_runs_are_brief(runs: int, text: str) -> None:
    assert _brief(runs) == text
