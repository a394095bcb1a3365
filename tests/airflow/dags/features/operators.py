"""What a single task may be and do."""

from __future__ import annotations

import logging
import sys
from typing import Any

from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import BaseHook, BaseOperator, Context, Param, Variable, get_current_context, task

from tests.airflow.both import feature, instance


@task
def number() -> int:
    return 20


@task
def add(x: int, y: int = 1) -> int:
    return x + y


@task
def show(value: Any) -> str:
    print("got", value)
    return str(value)


@feature()
def taskflow() -> None:
    show(add(add(number()), 5))  # type: ignore[arg-type]


@feature()
def multiple_outputs() -> None:
    @task(multiple_outputs=True)
    def pair() -> dict[str, Any]:
        return {"first": 1, "second": [2, None]}

    both: Any = pair()
    show(both["second"])


@feature()
def classic_operators() -> None:
    first = PythonOperator(task_id="first", python_callable=lambda x, y: x * y, op_args=[6], op_kwargs={"y": 7})
    second = BashOperator(task_id="second", bash_command="echo {{ ti.xcom_pull('first') }}")
    first >> EmptyOperator(task_id="empty") >> second


@feature()
def bash() -> None:
    BashOperator(task_id="prints", bash_command="echo one; echo two >&2; echo $WORD", env={"WORD": "three"})
    BashOperator(task_id="skips", bash_command="exit 99")
    BashOperator(task_id="goes", bash_command="pwd", cwd="/")

    @task.bash
    def command() -> str:
        return "echo $((6 * 7))"

    command()


@feature()
def bash_fails() -> None:
    BashOperator(task_id="fails", bash_command="echo before; exit 3") >> BashOperator(task_id="after", bash_command="x")


@feature()
def external_python() -> None:
    @task.external_python(python=sys.executable, expect_airflow=False)
    def compute(x: int) -> dict[str, int]:
        print("elsewhere")
        return {"x": x + 1}

    show(compute(4))


@feature()
def virtualenv() -> None:
    @task.virtualenv(requirements=[], system_site_packages=True)
    def compute(x: int) -> int:
        return x + 1

    compute(4)


@feature(params={"word": "given"})
def templating() -> None:
    text = (
        "{{ params.word }} {{ ti.task_id }} {{ ti.try_number }} {{ macros.ds_add('2024-01-01', 2) }} {{ run_id[:3] }}"
    )
    BashOperator(task_id="renders", bash_command=f"echo '{text}'")
    PythonOperator(
        task_id="dictionary",
        python_callable=lambda templates_dict: templates_dict["word"],
        templates_dict={"word": "{{ params.word | upper }}"},
    )


@feature(params={"size": Param(3, type="integer", minimum=1), "name": "default"})
def params() -> None:
    @task
    def read() -> dict[str, Any]:
        return dict(get_current_context()["params"])

    read()


@feature()
def variables() -> None:
    @task
    def read() -> list[Any]:
        Variable.set("written", "by a task")
        return [Variable.get("stored"), Variable.get("missing", default="none"), Variable.get("written")]

    read()
    BashOperator(task_id="template", bash_command="echo {{ var.value.stored }} {{ var.json.object.key }}")

    @task
    def read_missing() -> None:
        Variable.get("missing")

    read_missing()


@feature()
def connections() -> None:
    @task
    def read() -> list[Any]:
        found = BaseHook.get_connection("stored")
        return [found.host, found.port, found.extra_dejson]

    read()
    BashOperator(task_id="template", bash_command="echo {{ conn.stored.host }}")


@feature()
def xcoms() -> None:
    @task
    def push() -> list[Any]:
        ti = instance()
        for key, value in {"text": "x" * 50_000, "nested": {"a": [1, {"b": None}]}, "number": 1.5}.items():
            ti.xcom_push(key=key, value=value)
        return [True, None, "ü"]

    @task(do_xcom_push=False)
    def push_nothing() -> int:
        return 5

    @task
    def pull() -> list[Any]:
        ti = instance()
        return [
            len(ti.xcom_pull(task_ids="push", key="text")),
            ti.xcom_pull(task_ids="push", key="nested"),
            ti.xcom_pull(task_ids=["push", "push_nothing"]),
            ti.xcom_pull(task_ids="missing"),
        ]

    [push(), push_nothing()] >> pull()


class Doubling(BaseOperator):
    """An operator with its own hooks."""

    template_fields = ("text",)

    def __init__(self, text: str, **options: Any) -> None:
        super().__init__(**options)
        self.text = text

    def pre_execute(self, context: Any) -> None:
        self.log.info("before %s", self.text)

    def execute(self, context: Context) -> str:
        return self.text * 2

    def post_execute(self, context: Any, result: Any = None) -> None:
        self.log.info("after %s", result)


@feature()
def custom_operator() -> None:
    Doubling(task_id="doubles", text="{{ ti.task_id }}")


@feature()
def run_if_skip_if() -> None:
    def never(context: Any) -> tuple[bool, str]:
        return False, "never"

    task.run_if(never)(task(task_id="not_run")(lambda: 1))()
    task.skip_if(lambda context: False)(task(task_id="run")(lambda: 2))()


@feature(default_args={"executor_config": {"orchestration_queue": {"memory_mib": 8192, "timeout": 900}, "other": 1}})
def executor_config() -> None:
    number()


@feature()
def logs() -> None:
    @task
    def loud() -> None:
        print("printed")
        print("an error", file=sys.stderr)
        logger = logging.getLogger("some.module")
        for level in ("debug", "info", "warning", "error"):
            getattr(logger, level)("%s line", level)
        try:
            raise LookupError("inner")
        except LookupError:
            logger.exception("caught")

    loud()


@feature()
def map_index_template() -> None:
    @task(map_index_template="{{ label }}")
    def named(x: int) -> int:
        context: Any = get_current_context()
        context["label"] = f"item {x}"
        return x

    named.expand(x=[3, 4])


@feature(tags=["documented"], doc_md="Its page.", owner_links={"team": "https://example.org"})
def documented() -> None:
    task(task_id="described", doc_md="What it does.", owner="team", task_display_name="Described")(lambda: 1)()
