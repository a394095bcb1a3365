"""What happens to a task in time: tries, waits, deferrals, callbacks and limits."""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import timedelta
from functools import partial
from typing import Any

from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.sensors.bash import BashSensor
from airflow.providers.standard.sensors.python import PythonSensor
from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger
from airflow.sdk import BaseOperator, Context, ExceptionRetryPolicy, PokeReturnValue, RetryAction, RetryRule, task
from airflow.sdk.definitions.callback import AsyncCallback, SyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference
from airflow.sdk.exceptions import AirflowException, AirflowSkipException

from tests.airflow.both import EXECUTORS, current_kind, feature, instance, mark, position, report_deadline
from tests.airflow.both import report_deadline_async as report_async

AT_ONCE = timedelta(0)


@task
def succeed() -> str:
    return "done"


@feature()
def retries() -> None:
    @task(retries=2, retry_delay=AT_ONCE)
    def fails_once() -> int:
        if instance().try_number == 1:
            raise RuntimeError("the first try fails")
        return int(instance().try_number)

    @task(retries=1, retry_delay=AT_ONCE)
    def fails() -> None:
        raise RuntimeError("always")

    fails_once() >> fails()


@feature()
def retries_with_backoff() -> None:
    @task(retries=2, retry_delay=timedelta(seconds=0.2), retry_exponential_backoff=2.0, max_retry_delay=1)
    def third_time() -> int:
        if (tries := int(instance().try_number)) < 3:
            raise RuntimeError("again")
        return tries

    third_time()


@feature()
def retry_policy() -> None:
    rules = [
        RetryRule(exception=ConnectionError, action=RetryAction.RETRY, retry_delay=AT_ONCE),
        RetryRule(exception=LookupError, action=RetryAction.FAIL, reason="no use"),
    ]

    @task(retries=3, retry_delay=timedelta(minutes=9), retry_policy=ExceptionRetryPolicy(rules=rules))
    def judged() -> None:
        raise ConnectionError("again") if instance().try_number == 1 else LookupError("gone")

    judged()


@feature()
def execution_timeout() -> None:
    @task(execution_timeout=timedelta(seconds=8), retries=1, retry_delay=AT_ONCE)
    def slow_at_first() -> str:
        if instance().try_number == 1:
            signal.pause()
        return "in time"

    slow_at_first()
    BashOperator(task_id="shell", bash_command="sleep 600", execution_timeout=timedelta(seconds=8))


@feature()
def killed() -> None:
    @task(retries=1, retry_delay=AT_ONCE)
    def dies_once() -> str:
        if instance().try_number == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return "alive"

    dies_once()


@feature()
def exits() -> None:
    task(task_id="with_3")(lambda: sys.exit(3))()
    task(task_id="with_0")(lambda: sys.exit(0))()


@feature()
def sensors() -> None:
    def second_time(name: str) -> bool:
        ti = instance()
        return mark(f"{ti.dag_id}.{name}", "poke") > 1

    for mode in ("poke", "reschedule"):
        PythonSensor(task_id=mode, python_callable=partial(second_time, mode), mode=mode, poke_interval=3)
    BashSensor(task_id="shell", bash_command="true")

    @task.sensor(poke_interval=0.5)
    def with_value() -> PokeReturnValue:
        return PokeReturnValue(is_done=True, xcom_value=[1, 2])

    with_value() >> succeed()


@feature()
def sensors_that_fail() -> None:
    never: dict[str, Any] = {"python_callable": lambda: False, "poke_interval": 0.3, "timeout": 1}
    PythonSensor(task_id="poke", **never) >> succeed()
    PythonSensor(task_id="reschedule", mode="reschedule", **never)
    PythonSensor(task_id="soft", soft_fail=True, **never)
    PythonSensor(task_id="soft_reschedule", soft_fail=True, mode="reschedule", **never)

    @task.sensor(poke_interval=0.3, timeout=5)
    def skips() -> bool:
        raise AirflowSkipException("not today")

    skips()


class Deferring(BaseOperator):
    """Waits without a process, as often as it is told."""

    def __init__(self, times: int = 1, limit: timedelta | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.times, self.limit = times, limit

    def execute(self, context: Context) -> Any:
        return self.resume(context)

    def resume(self, context: Context, event: Any = None, done: int = 0) -> str:
        self.log.info("resumed %d times", done)
        if done < self.times:
            trigger = TimeDeltaTrigger(timedelta(seconds=600 if self.limit else 3))
            self.defer(trigger=trigger, method_name="resume", kwargs={"done": done + 1}, timeout=self.limit)
        return f"deferred {done} times"


class DeferringOnce(Deferring):
    """Fails after its first deferral."""

    def resume(self, context: Context, event: Any = None, done: int = 0) -> str:
        if done and instance().try_number == 1:
            raise AirflowException("the first try fails after its deferral")
        return super().resume(context, event, done)


@feature()
def deferrals() -> None:
    Deferring(task_id="once") >> succeed()
    Deferring(task_id="thrice", times=3)
    DeferringOnce(task_id="retried", retries=1, retry_delay=AT_ONCE)
    Deferring.partial(task_id="mapped").expand(times=[1, 2])


@feature()
def deferral_timeout() -> None:
    Deferring(task_id="late", limit=timedelta(seconds=1)) >> succeed()


def note(word: str, context: Any) -> None:
    """A callback of a task or a DAG."""
    mark(context["dag"].dag_id, f"{word} {getattr(context.get('ti'), 'task_id', '')}")


@feature(
    default_args={
        f"on_{event}_callback": partial(note, event) for event in ("execute", "success", "failure", "retry", "skipped")
    }
)
def callbacks() -> None:
    @task(retries=1, retry_delay=AT_ONCE)
    def fails() -> None:
        raise RuntimeError("always")

    @task
    def skip() -> None:
        raise AirflowSkipException("not today")

    succeed()
    fails()
    skip()


@feature(on_success_callback=partial(note, "dag success"))
def dag_callback_success() -> None:
    succeed()


@feature(on_failure_callback=partial(note, "dag failure"))
def dag_callback_failure() -> None:
    task(task_id="fails")(lambda: 1 / 0)()


def is_marked(name: str) -> bool:
    """Whether a mark is there."""
    return os.path.exists(f"{os.environ['OQ_TEST_MARKS']}/{name}")  # noqa: PTH110


def deadline(kind: str) -> DeadlineAlert:
    """Missed by a DAG that takes two seconds."""
    own = SyncCallback(report_deadline, {"dag_id": f"deadline_{kind}"}, executor=EXECUTORS[kind])
    return DeadlineAlert(reference=DeadlineReference.DAGRUN_QUEUED_AT, interval=timedelta(seconds=1), callback=own)


@feature(deadline=deadline)
def deadline_sync() -> None:
    name = f"deadline_{current_kind()}"
    PythonSensor(task_id="waits", python_callable=partial(is_marked, name), poke_interval=1)


def deadline_in_triggerer(kind: str) -> DeadlineAlert:
    """Missed by a DAG that takes two seconds."""
    own = AsyncCallback(report_async, {"dag_id": f"deadline_async_{kind}"})
    return DeadlineAlert(reference=DeadlineReference.DAGRUN_QUEUED_AT, interval=timedelta(seconds=1), callback=own)


@feature(deadline=deadline_in_triggerer)
def deadline_async() -> None:
    name = f"deadline_async_{current_kind()}"
    PythonSensor(task_id="waits", python_callable=partial(is_marked, name), poke_interval=1)


def overlap() -> int:
    """Return how many tasks of this DAG run while this one does."""
    ti = instance()
    path = f"{ti.dag_id}.overlap"
    mark(path, "+")
    time.sleep(0.3)
    mark(path, "-")
    with open(f"{os.environ['OQ_TEST_MARKS']}/{path}") as file:  # noqa: PTH123
        lines = file.read().split()
    return max(lines[:index].count("+") - lines[:index].count("-") for index in range(len(lines) + 1))


@feature()
def max_active_tis() -> None:
    alone = task(task_id="alone_of_dag", max_active_tis_per_dag=1)(lambda x: overlap())
    alone.expand(x=[1, 2, 3])


@feature(max_active_tasks=1)
def max_active_tasks() -> None:
    for number in range(3):
        task(task_id=f"alone_{number}")(overlap)()


@feature()
def pools() -> None:
    pool = f"narrow_{current_kind()}"
    for number in range(3):
        task(task_id=f"alone_{number}", pool=pool)(overlap)()


@feature()
def priorities() -> None:
    pool = f"narrow_{current_kind()}"
    first = succeed()
    for weight in (1, 50, 7, 3000):
        first >> task(task_id=f"weight_{weight}", priority_weight=weight, weight_rule="absolute", pool=pool)(position)()


@feature(dagrun_timeout=timedelta(seconds=30))
def dagrun_timeout() -> None:
    task(task_id="endless")(lambda: signal.pause())() >> succeed()
