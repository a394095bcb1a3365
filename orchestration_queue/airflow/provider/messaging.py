"""Queues for Airflow's ``MessageQueueTrigger(scheme="orchestration_queue", ...)``."""

from __future__ import annotations

from airflow.sdk.exceptions import AirflowOptionalProviderFeatureException

from orchestration_queue.airflow.provider.event_triggers import QueueEventTrigger

try:
    from airflow.providers.common.messaging.providers.base_provider import BaseMessageQueueProvider
except ImportError as error:
    raise AirflowOptionalProviderFeatureException(
        "MessageQueueTrigger needs the package apache-airflow-providers-common-messaging; install it."
    ) from error

__all__ = ["QueueMessageProvider"]


class QueueMessageProvider(BaseMessageQueueProvider):
    """Names the trigger for the scheme ``orchestration_queue``."""

    scheme = "orchestration_queue"

    def trigger_class(self) -> type[QueueEventTrigger]:
        """Return the trigger."""
        return QueueEventTrigger
