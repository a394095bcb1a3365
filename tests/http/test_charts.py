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


def test_an_earlier_time_is_a_line_over_bars_and_has_its_columns() -> None:
    now = [Series("done", "a", [3, 0, 1]), Series("bad", "b", [1, 0, 0])]
    before = [Series("done, then", "a", [5, 2, 0]), Series("bad, then", "b", [3, 0, 0])]
    chart = draw_bars(now, ["x", "y", "z"], count, before, span=(60, 60))
    assert [text for _, text in chart.ticks] == ["0", "4", "8"]
    assert {stroke.tone for stroke in chart.strokes} == {"before"}
    assert [stroke.y2 for stroke in chart.strokes] == [TOP, BOTTOM - 27, BOTTOM]  # 8, 2 and 0 of 8
    assert [each.name for each in chart.series] == ["done", "bad"]
    assert [each.name for each in chart.columns] == ["done", "bad", "done, then", "bad, then"]
    assert chart.rows == [["3", "1", "5", "3"], ["0", "0", "2", "0"], ["1", "0", "0", "0"]]
    assert chart.titles[1].title == "y: 0 done, 0 bad, 2 done, then, 0 bad, then"
    assert not draw_bars(now, ["x", "y", "z"], count, [Series("done, then", "a", [0, 0, 0])]).strokes


def test_an_earlier_time_is_a_paler_line_of_the_same_color_and_scale() -> None:
    chart = draw_lines(
        [Series("p50", "a", [1, 2])], ["x", "y"], count, _mark_text, [Series("p50, then", "a", [0.1, None])]
    )
    assert [stroke.tone for stroke in chart.strokes] == ["a before", "a", "a"]
    assert chart.ticks[0][1] == "100 ms"
    assert chart.rows == [["1", "0"], ["2", ""]]


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
