"""Turn the delay tables into a chart and a self-contained page."""

from __future__ import annotations

import base64
import html
import io
import os
import time
from pathlib import Path
from typing import Any, TypedDict

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

__all__ = ["Report", "write_report"]

AIRPORTS = {"EWR": "Newark", "JFK": "Kennedy", "LGA": "LaGuardia"}
COLORS = {"EWR": "#c8553d", "JFK": "#2d6a8f", "LGA": "#6b9080"}
WIND_ORDER = ["0-5", "5-10", "10-15", "15-20", "20-25", "25+"]
MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
INK, FAINT = "#2b2b2b", "#8a8a8a"

FLIGHTS_TO_SHOW = 50
"""Means over fewer flights are left blank, because they would be mostly noise."""

STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": "#cccccc",
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 12.5,
    "axes.titleweight": "bold",
    "axes.titlepad": 14,
    "xtick.color": INK,
    "ytick.color": INK,
}


class Report(TypedDict):
    """What was written."""

    rows: int
    seconds: float
    path: str
    picture: str


def write_report(data_dir: str) -> Report:
    """Draw the delays and write the page.

    Args:
        data_dir: The data directory, with the tables of :mod:`examples.flights.delays` in it.

    Returns:
        ``rows`` read, ``seconds``, ``path`` of the page, ``picture`` (its PNG).
    """
    started = time.monotonic()
    data = Path(data_dir).absolute()
    names = ("by_origin_hour", "by_carrier", "by_wind", "by_month")
    tables = {name: pd.read_parquet(data / "delays" / name) for name in names}
    with mpl.rc_context(STYLE):
        png = _picture(tables)
    folder = data / "report"
    folder.mkdir(parents=True, exist_ok=True)
    picture = _put(folder / "delays.png", png)
    page = _put(folder / "index.html", _page(tables, png).encode())
    return Report(
        rows=sum(map(len, tables.values())),
        seconds=round(time.monotonic() - started, 3),
        path=str(page),
        picture=str(picture),
    )


def _put(path: Path, content: bytes) -> Path:
    """Write a file atomically."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_bytes(content)
    return unfinished.replace(path)


def _picture(tables: dict[str, pd.DataFrame]) -> bytes:
    figure = Figure(figsize=(15, 12.2), dpi=110, facecolor="white")
    across = figure.add_gridspec(1, 1, left=0.09, right=0.97, top=0.86, bottom=0.685)
    below = figure.add_gridspec(2, 2, left=0.14, right=0.97, top=0.59, bottom=0.06, hspace=0.5, wspace=0.2)
    _draw_hours(figure.add_subplot(across[0, 0]), tables["by_origin_hour"])
    _draw_carriers(figure.add_subplot(below[:, 0]), tables["by_carrier"])
    _draw_wind(figure.add_subplot(below[0, 1]), tables["by_wind"])
    _draw_months(figure.add_subplot(below[1, 1]), tables["by_month"])
    flights, cancelled = _sum(tables, "flights"), _sum(tables, "cancelled")
    figure.text(0.03, 0.958, "Delays grow through the day, and with the wind", fontsize=21, fontweight="bold")
    figure.text(
        0.03,
        0.93,
        f"Mean departure delay in minutes of the {flights:,} flights scheduled out of New York in 2013; "
        f"the {cancelled:,} that were cancelled have none",
        fontsize=12,
        color=FAINT,
    )
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _sum(tables: dict[str, pd.DataFrame], column: str) -> int:
    return int(tables["by_origin_hour"][column].sum())


def _draw_hours(axes: Axes, table: pd.DataFrame) -> None:
    """Draw a heat map: airports down, hours across, the minutes in each cell."""
    known = table[table["flights"] >= FLIGHTS_TO_SHOW]
    frame = known.pivot_table(index="origin", columns="local_hour", values="mean_dep_delay").reindex(list(AIRPORTS))
    matrix = frame.to_numpy(dtype=float)
    highest = float(np.nanmax(matrix))
    axes.set_facecolor("#f3f3f3")
    axes.imshow(matrix, cmap=mpl.colormaps["YlOrRd"], aspect="auto", vmin=0, vmax=highest)
    for row, column in np.argwhere(~np.isnan(matrix)):
        minutes = matrix[row, column]
        color = "white" if minutes > 0.6 * highest else INK
        axes.text(column, row, f"{round(minutes)}", ha="center", va="center", color=color, fontsize=12)
    axes.set_title("By airport and hour of scheduled departure")
    axes.set_xticks(range(matrix.shape[1]), [f"{hour:02d}:00" for hour in frame.columns])
    axes.set_yticks(range(matrix.shape[0]), [f"{AIRPORTS[code]} ({code})" for code in frame.index])
    axes.set_xticks(np.arange(-0.5, matrix.shape[1]), minor=True)
    axes.set_yticks(np.arange(-0.5, matrix.shape[0]), minor=True)
    axes.grid(which="minor", color="white", linewidth=2)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)


def _draw_carriers(axes: Axes, table: pd.DataFrame) -> None:
    """Bars, longest delay on top, with the number of flights of each."""
    ordered = table[table["flights"] >= FLIGHTS_TO_SHOW].sort_values("mean_dep_delay")
    mean = float(np.average(table["mean_dep_delay"], weights=table["flights"] - table["cancelled"]))
    above = ordered["mean_dep_delay"] > mean
    axes.axvline(mean, color=INK, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    names = ordered["name"].str.replace(r",? (Inc\.|Co\.|Corporation)$", "", regex=True)
    axes.barh(names, ordered["mean_dep_delay"], color=above.map({True: "#c8553d", False: "#9db4c0"}), height=0.72)
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
    for place, (delay, flights) in enumerate(zip(ordered["mean_dep_delay"], ordered["flights"], strict=True)):
        axes.text(delay + 0.25, place, f"{delay:.1f}", va="center", fontweight="bold", bbox=box)
        axes.text(0.3, place, f"{flights:,} flights", va="center", fontsize=8.5, color="white" if delay > mean else INK)
    axes.text(mean + 0.25, -1, f"all flights {mean:.1f}", fontsize=9.5)
    axes.set_xlim(0, float(ordered["mean_dep_delay"].max()) * 1.12)
    axes.set_ylim(-1.4, len(ordered) - 0.4)
    axes.set_title("By airline")
    axes.set_xlabel("minutes")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def _draw_wind(axes: Axes, table: pd.DataFrame) -> None:
    _draw_lines(axes, table.pivot_table(index="wind", columns="origin", values="mean_dep_delay").reindex(WIND_ORDER))
    axes.set_title("By wind at the airport in that hour")
    axes.set_xlabel("wind speed, miles per hour")


def _draw_months(axes: Axes, table: pd.DataFrame) -> None:
    matrix = table.pivot_table(index="month", columns="origin", values="mean_dep_delay").sort_index()
    _draw_lines(axes, matrix.set_axis([MONTHS[int(month) - 1] for month in matrix.index]))
    axes.set_title("By month")


def _draw_lines(axes: Axes, matrix: pd.DataFrame) -> None:
    """One line for each airport, named at its end rather than in a legend."""
    places = np.arange(len(matrix))
    for code in AIRPORTS:
        axes.plot(places, matrix[code], color=COLORS[code], marker="o", markersize=5, linewidth=2.2)
    ends = matrix.iloc[-1].sort_values()
    height = -np.inf
    gap = 0.075 * float(np.nanmax(matrix))
    for airport, end in zip(ends.index.astype(str), ends, strict=True):
        height = max(float(end), height + gap)
        axes.annotate(
            AIRPORTS[airport],
            (places[-1], height),
            xytext=(9, 0),
            textcoords="offset points",
            color=COLORS[airport],
            va="center",
            fontweight="bold",
        )
    axes.set_xticks(places, list(matrix.index))
    axes.set_xlim(-0.3, places[-1] + 0.18 * len(matrix))
    axes.set_ylim(0, float(np.nanmax(matrix)) * 1.12)
    axes.set_ylabel("minutes")
    axes.grid(axis="y", color="#eeeeee")
    axes.set_axisbelow(True)


_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Flight delays, New York 2013</title>
<style>
  body {{ font: 16px/1.5 system-ui, sans-serif; color: #2b2b2b; max-width: 1080px; margin: 2rem auto; }}
  img {{ width: 100%; }}
  .tables {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(320px, 1fr)); gap: 2rem; }}
  table {{ border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }}
  th, td {{ padding: .3rem .6rem; text-align: right; border-bottom: 1px solid #eee; }}
  th:first-child, td:first-child {{ text-align: left; }}
  th {{ font-weight: 600; border-bottom: 2px solid #ccc; }}
</style>
<h1>Flight delays, New York 2013</h1>
<p>{summary}</p>
<img alt="Mean departure delay by airport and hour, airline, wind and month" src="data:image/png;base64,{picture}">
<div class="tables">
{sections}
</div>
</html>
"""


def _page(tables: dict[str, pd.DataFrame], png: bytes) -> str:
    hours = tables["by_origin_hour"]
    late = hours["late"].sum() / (hours["flights"].sum() - hours["cancelled"].sum())
    summary = (
        f"{_sum(tables, 'flights'):,} flights, of which {_sum(tables, 'cancelled'):,} were cancelled; "
        f"{late:.1%} of those that left did so at least 15 minutes late."
    )
    frequent = hours[hours["flights"] >= 500]
    worst = frequent.sort_values("mean_dep_delay", ascending=False).head(10)
    places = zip(worst["origin"], worst["local_hour"], strict=True)
    worst = worst.assign(when=[f"{AIRPORTS[origin]}, {hour:02d}:00" for origin, hour in places])
    carriers = tables["by_carrier"].sort_values("mean_dep_delay", ascending=False)
    sections = _section("The ten worst hours", "When", worst, "when")
    sections += _section("Airlines", "Airline", carriers, "name")
    return _PAGE.format(summary=summary, picture=base64.b64encode(png).decode("ascii"), sections=sections)


def _section(title: str, first: str, table: pd.DataFrame, name: str) -> str:
    rows = "".join(
        f"<tr><td>{html.escape(str(row[name]))}</td><td>{row['flights']:,}</td><td>{row['mean_dep_delay']:.1f}</td>"
        f"<td>{row['late_share']:.0%}</td><td>{row['cancelled_share']:.1%}</td></tr>\n"
        for row in table.to_dict("records")
    )
    head = "".join(f"<th>{column}</th>" for column in (first, "Flights", "Delay, min", "Late", "Cancelled"))
    return f"<section><h2>{title}</h2>\n<table><tr>{head}</tr>\n{rows}</table></section>\n"
