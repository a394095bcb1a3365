"""Links from a task's page in Airflow to the console."""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseOperatorLink

__all__ = ["ConsoleLink"]


class ConsoleLink(BaseOperatorLink):
    """Leads to the page of the task's job or flow; the connection's ``console_url`` or ``OQ_CONSOLE_URL`` names it."""

    name = "Queue console"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:  # noqa: ARG002  Airflow passes it
        """Return the page's URL; empty without a console."""
        return str(getattr(operator, "console_page", ""))
