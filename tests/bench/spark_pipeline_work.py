"""The pipeline that is measured: six tables are made, cleaned, joined, summed up and told, in fourteen steps."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from orchestration_queue.flows import Dag, Node
from orchestration_queue.spark import SparkOptions, spark_task
from orchestration_queue.tasks import Tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["QUEUE", "RESULTS", "STEPS", "pipeline", "run_plainly", "tasks"]

QUEUE = "pipeline"
RESULTS = "BENCH_RESULTS"
"""The variable that says where what the steps return is written."""

_PARTS, _SUPPLIERS, _NATIONS = 200_000, 10_000, 25

tasks = Tasks()
_step = spark_task(runtime="connect", options=SparkOptions(results=os.environ.get(RESULTS)))


@tasks.task
@_step
def nations(spark: SparkSession, rows: int) -> DataFrame:
    """Make as many as there are."""
    return spark.range(_NATIONS).selectExpr("id AS nation", "concat('nation ', id) AS nation_name")


@tasks.task
@_step
def customers(spark: SparkSession, rows: int) -> DataFrame:
    """Make one for ten orders."""
    return spark.range(rows // 40).selectExpr("id AS customer", f"id % {_NATIONS} AS nation", "id % 5 AS segment")


@tasks.task
@_step
def suppliers(spark: SparkSession, rows: int) -> DataFrame:
    """Make this number."""
    return spark.range(_SUPPLIERS).selectExpr("id AS supplier", f"id * 7 % {_NATIONS} AS supplier_nation")


@tasks.task
@_step
def parts(spark: SparkSession, rows: int) -> DataFrame:
    """Make this number."""
    return spark.range(_PARTS).selectExpr(
        "id AS part", "concat('brand ', id % 50) AS brand", "id % 900 + 100 AS retail"
    )


@tasks.task
@_step
def raw_orders(spark: SparkSession, rows: int) -> DataFrame:
    """Make one for four items, some without a customer."""
    return spark.range(rows // 4).selectExpr(
        "id AS order",
        f"IF(id % 997 = 0, NULL, id * 31 % {max(1, rows // 40)}) AS customer",
        "date_add(DATE'1992-01-01', CAST(id * 17 % 2400 AS INT)) AS day",
    )


@tasks.task
@_step
def raw_items(spark: SparkSession, rows: int) -> DataFrame:
    """Make the largest table, with prices as text."""
    return spark.range(rows).selectExpr(
        f"id % {max(1, rows // 4)} AS order",
        f"id * 13 % {_PARTS} AS part",
        f"id * 11 % {_SUPPLIERS} AS supplier",
        "CAST(id * 7 % 100000 / 100 AS STRING) AS price",
        "id % 11 / 100 AS discount",
    )


@tasks.task
@_step
def orders(spark: SparkSession, raw_orders: DataFrame) -> DataFrame:
    """Drop those without a customer."""
    return raw_orders.where("customer IS NOT NULL").selectExpr("*", "year(day) AS year")


@tasks.task
@_step
def items(spark: SparkSession, raw_items: DataFrame) -> DataFrame:
    """Type the prices."""
    return raw_items.selectExpr("order", "part", "supplier", "CAST(price AS DOUBLE) * (1 - discount) AS revenue")


@tasks.task
@_step
def sales(spark: SparkSession, items: DataFrame, orders: DataFrame) -> DataFrame:
    """Join what was sold with who ordered it."""
    return items.join(orders, "order")


@tasks.task
@_step
def by_customer(spark: SparkSession, sales: DataFrame) -> DataFrame:
    """Sum up."""
    return sales.groupBy("customer").agg({"revenue": "sum", "order": "count"}).toDF("customer", "revenue", "orders")


@tasks.task
@_step
def by_brand(spark: SparkSession, sales: DataFrame, parts: DataFrame) -> DataFrame:
    """Sum up."""
    return sales.join(parts, "part").groupBy("brand", "year").agg({"revenue": "sum"}).toDF("brand", "year", "revenue")


@tasks.task
@_step
def by_supplier(spark: SparkSession, sales: DataFrame, suppliers: DataFrame) -> DataFrame:
    """Sum up."""
    joined = sales.join(suppliers, "supplier").groupBy("supplier_nation", "year").agg({"revenue": "sum"})
    return joined.toDF("nation", "year", "revenue")


@tasks.task
@_step
def top_customers(spark: SparkSession, by_customer: DataFrame, customers: DataFrame, nations: DataFrame) -> DataFrame:
    """Name the best hundred."""
    return (
        by_customer.join(customers, "customer").join(nations, "nation").orderBy("revenue", ascending=False).limit(100)
    )


@tasks.task
@_step
def report(
    spark: SparkSession, top_customers: DataFrame, by_brand: DataFrame, by_supplier: DataFrame
) -> dict[str, Any]:
    """Count and sum what all came to."""
    (total,) = by_brand.agg({"revenue": "sum"}).first() or (None,)
    return {"customers": top_customers.count(), "nations": by_supplier.count(), "revenue": total}


STEPS: Mapping[str, tuple[str, ...]] = {
    "nations": (),
    "customers": (),
    "suppliers": (),
    "parts": (),
    "raw_orders": (),
    "raw_items": (),
    "orders": ("raw_orders",),
    "items": ("raw_items",),
    "sales": ("items", "orders"),
    "by_customer": ("sales",),
    "by_brand": ("sales", "parts"),
    "by_supplier": ("sales", "suppliers"),
    "top_customers": ("by_customer", "customers", "nations"),
    "report": ("top_customers", "by_brand", "by_supplier"),
}
"""The steps in an order in which they can run, and what each waits for."""


def pipeline(rows: int) -> Dag:
    """Return the steps as a flow."""
    each = [Node(name, data={} if deps else {"rows": rows}, deps=list(deps)) for name, deps in STEPS.items()]
    return Dag("pipeline", each, QUEUE)


def run_plainly(spark: SparkSession, rows: int, directory: str) -> Any:
    """Run the same functions one after the other in a session; what they return is written and read as in a flow."""
    results: dict[str, Any] = {}
    for name, deps in STEPS.items():
        function = globals()[name].function.__wrapped__
        returned = function(spark, **({dep: results[dep] for dep in deps} if deps else {"rows": rows}))
        if name != "report":
            path = f"{directory}/{name}"
            returned.write.parquet(path)
            returned = spark.read.parquet(path)
        results[name] = returned
    return results["report"]
