"""How tasks depend on each other."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.operators.latest_only import LatestOnlyOperator
from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import TaskGroup, TriggerRule, task, task_group
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from tests.airflow.both import feature, instance


@task
def several() -> list[int]:
    return [1, 2, 3]


@task
def square(x: int) -> int:
    return x * x


@task
def total(values: Any) -> int:
    return sum(values)


@task
def succeed() -> str:
    return "done"


@task
def fail() -> None:
    raise RuntimeError("always")


@task
def skip() -> None:
    raise AirflowSkipException("not today")


@feature()
def mapping() -> None:
    total(square.expand(x=several()))


@feature()
def mapping_kwargs() -> None:
    @task
    def add(x: int, y: int) -> int:
        return x + y

    add.partial(y=10).expand(x=several())
    add.override(task_id="cross").expand(x=several(), y=[5, 6])
    add.override(task_id="kwargs").expand_kwargs([{"x": 1, "y": 2}, {"x": 3, "y": 4}])


@feature()
def mapping_transforms() -> None:
    numbers: Any = several()
    square.expand(x=numbers.map(lambda x: x + 1))

    @task
    def join(pair: Any) -> str:
        return f"{pair[0]}-{pair[1]}"

    others: Any = several.override(task_id="others")()
    join.expand(pair=numbers.zip(others, fillvalue=9))
    square.override(task_id="concatenated").expand(x=numbers.concat(others))


def empty_list() -> list[int]:
    return []


@feature()
def mapping_nothing() -> None:
    total(square.expand(x=task(task_id="nothing")(empty_list)()))


@feature()
def mapping_fails() -> None:
    @task(retries=1, retry_delay=timedelta(0))
    def invert(x: int) -> float:
        return 1 / x

    invert.expand(x=[0, 1, 2]) >> [succeed(), succeed.override(task_id="anyway", trigger_rule="all_done")()]


@feature()
def mapping_limited() -> None:
    square.override(max_active_tis_per_dagrun=1).expand(x=several())


@feature()
def mapping_classic() -> None:
    BashOperator.partial(task_id="echo").expand(bash_command=["echo 1", "exit 99", "echo 3"])
    PythonOperator.partial(task_id="call", python_callable=lambda x: x).expand(op_args=[[1], [2]])


@feature()
def mapped_group() -> None:
    @task_group
    def chain_of(x: int) -> Any:
        return square.override(task_id="again")(square(x))  # type: ignore[arg-type]

    total(chain_of.expand(x=several()))


@feature()
def groups() -> None:
    with TaskGroup("outer") as outer:
        first = succeed()
        with TaskGroup("inner", prefix_group_id=False) as inner:
            succeed.override(task_id="within")() >> fail()
        first >> inner
    outer >> [succeed(), succeed.override(task_id="anyway", trigger_rule="all_done")()]


def branches() -> list[Any]:
    left, right = succeed.override(task_id="left")(), succeed.override(task_id="right")()
    join = succeed.override(task_id="join", trigger_rule="none_failed_min_one_success")()
    left >> join
    right >> join
    return [left, right]


@feature()
def branch() -> None:
    @task.branch
    def choose() -> str:
        return "left"

    choose() >> branches()


@feature()
def branch_several() -> None:
    @task.branch
    def choose() -> list[str]:
        return ["left", "right"]

    choose() >> branches()


@feature()
def branch_nowhere() -> None:
    task.branch(task_id="choose")(lambda: None)() >> branches()


@feature()
def branch_wrong() -> None:
    task.branch(task_id="choose")(lambda: "missing")() >> branches()


@feature()
def branch_to_group() -> None:
    with TaskGroup("chosen") as chosen:
        succeed() >> succeed.override(task_id="then")()
    with TaskGroup("other") as other:
        succeed()
    task.branch(task_id="choose")(lambda: "chosen")() >> [chosen, other]


@feature()
def short_circuit() -> None:
    task.short_circuit(task_id="stop")(lambda: False)() >> succeed() >> succeed.override(task_id="then")()
    task.short_circuit(task_id="pass")(lambda: True)() >> succeed.override(task_id="passed")()


@feature()
def short_circuit_with_rules() -> None:
    stop = task.short_circuit(task_id="stop", ignore_downstream_trigger_rules=False)(lambda: False)()
    stop >> succeed() >> succeed.override(task_id="anyway", trigger_rule="all_done")()


def add_trigger_rules(*upstream: Any) -> None:
    before = [make.override(task_id=f"upstream_{index}")() for index, make in enumerate(upstream)]
    for rule in sorted(TriggerRule):
        if rule != TriggerRule.ALL_DONE_SETUP_SUCCESS:  # for teardown tasks
            before >> succeed.override(task_id=rule.value, trigger_rule=rule)()


@feature()
def trigger_rules_mixed() -> None:
    add_trigger_rules(succeed, fail, skip)


@feature()
def trigger_rules_good() -> None:
    add_trigger_rules(succeed, succeed)


@feature()
def trigger_rules_bad() -> None:
    add_trigger_rules(fail, fail)


@feature()
def trigger_rules_skipped() -> None:
    add_trigger_rules(skip, skip)


@feature()
def setup_teardown() -> None:
    start: Any = succeed.override(task_id="start")()
    work = fail()
    start >> work >> succeed.override(task_id="stop")().as_teardown(setups=start)


@feature()
def setup_fails() -> None:
    start: Any = fail.override(task_id="start")()
    work = succeed()
    start >> work >> succeed.override(task_id="stop")().as_teardown(setups=start)


@feature()
def teardown_fails() -> None:
    start: Any = succeed.override(task_id="start")()
    work = succeed()
    start >> work >> fail.override(task_id="stop")().as_teardown(setups=start, on_failure_fail_dagrun=True)


@feature()
def latest_only() -> None:
    LatestOnlyOperator(task_id="latest") >> succeed()


@feature()
def skips() -> None:
    skip() >> [succeed(), succeed.override(task_id="anyway", trigger_rule="none_failed")()]


@feature()
def fails_without_retry() -> None:
    @task(retries=3, retry_delay=timedelta(0))
    def give_up() -> None:
        raise AirflowFailException("no use")

    give_up() >> succeed()


@feature(fail_fast=True)
def fail_fast() -> None:
    fail() >> succeed()
    task.sensor(task_id="never", mode="reschedule", poke_interval=600)(lambda: False)()


@feature()
def depends_on_mapped_try() -> None:
    @task(retries=1, retry_delay=timedelta(0))
    def second_time(x: int) -> int:
        if instance().try_number == 1:
            raise RuntimeError("again")
        return x

    total(second_time.expand(x=several()))
