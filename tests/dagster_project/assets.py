"""Assets without partitions, of every kind that Dagster has."""

import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import dagster as dg

from tests.dagster_project.traces import is_set, note, span

__all__ = ["CHECKS", "CLIENTS", "OTHERS", "PLAIN"]


def _table(number: int) -> dg.AssetsDefinition:
    @dg.asset(name=f"table_{number}", group_name="tables", op_tags={"dagster/priority": str(number)})
    def table() -> int:
        return number

    return table


def _clean(number: int) -> dg.AssetsDefinition:
    @dg.asset(name=f"clean_{number}", group_name="tables", ins={"table": dg.AssetIn(f"table_{number}")})
    def clean(table: int) -> int:
        return 10 * table

    return clean


@dg.asset(ins={f"clean_{number}": dg.AssetIn() for number in range(8)})
def total(**cleaned: int) -> int:
    """All tables together, 280."""
    return sum(cleaned.values())


@dg.multi_asset(outs={name: dg.AssetOut() for name in ("north", "south")})
def halves() -> tuple[int, int]:
    """Two assets of one step."""
    return 1, 2


@dg.multi_asset(specs=[dg.AssetSpec(name, skippable=True) for name in ("east", "west")], can_subset=True)
def quarters(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[None]]:
    """Two assets, of which either may be asked for alone."""
    for key in sorted(context.selected_asset_keys):
        yield dg.MaterializeResult(asset_key=key)


@dg.op
def fetch() -> int:
    """The first step of an asset of several."""
    return 20


@dg.op
def double(number: int) -> int:
    """Its second step."""
    return number * 2


@dg.graph_asset
def graph_backed() -> int:
    """Is made by two steps."""
    number: int = double(fetch())
    return number


@dg.asset(retry_policy=dg.RetryPolicy(max_retries=2))
def flaky(context: dg.AssetExecutionContext) -> int:
    """Fails at first."""
    note("flaky", context.retry_number)
    if context.retry_number == 0:
        raise ValueError("not yet")
    return int(context.retry_number)


@dg.asset
def piped(context: dg.AssetExecutionContext, pipes: dg.PipesSubprocessClient) -> dg.MaterializeResult[None]:
    """Is made by a program that reports by Pipes."""
    program = (
        "from dagster_pipes import open_dagster_pipes\n"
        "with open_dagster_pipes() as pipes: pipes.report_asset_materialization(metadata={'rows': 3})"
    )
    return pipes.run(context=context, command=[sys.executable, "-c", program]).get_materialize_result()


@dg.observable_source_asset
def upstream() -> dg.DataVersion:
    """Is made by others."""
    return dg.DataVersion("7")


@dg.asset
def checked() -> int:
    """Passes its check unless the test says otherwise."""
    return 1


@dg.asset_check(asset=checked, blocking=True)
def check_passes() -> dg.AssetCheckResult:
    """Blocks what comes after."""
    return dg.AssetCheckResult(passed=not is_set("check-fails"))


@dg.asset(deps=[checked])
def after_check() -> None:
    """Runs only behind a passed check."""
    note("after_check", os.getpid())


def _pooled(number: int) -> dg.AssetsDefinition:
    @dg.asset(name=f"pooled_{number}", pool="narrow")
    def pooled() -> None:
        with span("pooled"):
            pass

    return pooled


def _link(number: int) -> dg.AssetsDefinition:
    """One of a chain that takes some time, so that much can die meanwhile."""

    @dg.asset(name=f"link_{number}", group_name="chain", deps=[f"link_{number - 1}"] if number else [])
    def link(context: dg.AssetExecutionContext) -> None:
        note("links", f"{context.asset_key.to_user_string()} {os.getpid()}")
        if number == 1 and not is_set("killed"):
            time.sleep(600)  # until it is killed

    return link


@dg.asset
def breakable() -> int:
    """Is well."""
    note("breakable", os.getpid())
    return 1


@dg.asset
def broken_once(breakable: int) -> int:
    """Fails until the test has repaired it."""
    if not is_set("repaired"):
        raise ValueError("broken")
    return breakable + 1


PLAIN: list[dg.AssetsDefinition] = [
    *map(_table, range(8)),
    *map(_clean, range(8)),
    *map(_pooled, range(3)),
    *(total, halves, quarters, graph_backed, flaky, piped, checked, after_check),
]
OTHERS: list[Any] = [*map(_link, range(4)), upstream, breakable, broken_once]
CHECKS = [check_passes]
CLIENTS = {"pipes": dg.PipesSubprocessClient()}
