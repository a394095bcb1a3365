"""A component for the queue as a resource."""

# No `from __future__ import annotations` here: Dagster reads the annotations of the fields, and strings fail.

import dagster as dg
from pydantic import Field

from orchestration_queue.dagster.resources import QueueResource
from orchestration_queue.protocol.keys import DEFAULT_PREFIX

__all__ = ["QueueResourceComponent"]


class QueueResourceComponent(dg.Component, dg.Model, dg.Resolvable):
    """The queue's server, for the other components. Its URL comes from the environment, never from the file."""

    resource_key: str = Field(default="queue", description="What the other components call it.")
    url_variable: str = Field(default="OQ_URL", description="The environment variable that says where the server is.")
    prefix: str = Field(default=DEFAULT_PREFIX, description="What the server's keys begin with.")

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:  # noqa: ARG002  Dagster's
        """The resource."""
        resource = QueueResource(url=dg.EnvVar(self.url_variable), prefix=self.prefix)
        return dg.Definitions(resources={self.resource_key: resource})
