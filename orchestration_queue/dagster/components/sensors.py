"""Base of the components that are sensors: their common fields and checks."""

# No `from __future__ import annotations` here: Dagster reads the annotations of the fields, and strings fail.

from abc import abstractmethod
from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

import dagster as dg
from pydantic import Field

from orchestration_queue.dagster.components.base import function
from orchestration_queue.dagster.sensors.options import SensorOptions
from orchestration_queue.errors import InvalidOptionError, OrchestrationQueueError

__all__ = ["TARGET", "Function", "SensorComponent", "parse_target"]

Function: TypeAlias = Callable[..., Any]
TARGET = "The assets of its runs: a selection such as 'key:report' or 'group:daily'."


class SensorComponent(dg.Component, dg.Model, dg.Resolvable):
    """A sensor. Pass functions as template variables."""

    name: str = Field(description="The sensor's name.")
    react: Annotated[Function | None, function("react")] = Field(
        default=None, description="'{{ name }}' of a function that handles an event; default requests a run."
    )
    running: bool = Field(default=False, description="Whether it runs without being switched on.")
    description: str | None = Field(default=None, description="Text for the UI.")
    resource_key: str

    def model_post_init(self, context: Any) -> None:
        """Check the values; constraints of the fields themselves would reject templates."""
        super().model_post_init(context)
        self._build()

    def _build(self) -> dg.SensorDefinition:
        try:
            return self.sensor(self._options())
        except OrchestrationQueueError as error:
            raise InvalidOptionError(f"Sensor {self.name!r}: {error}") from None

    def _options(self) -> SensorOptions:
        options: SensorOptions = {
            "resource_key": self.resource_key,
            "default_status": dg.DefaultSensorStatus.RUNNING if self.running else dg.DefaultSensorStatus.STOPPED,
        }
        return options if self.description is None else {**options, "description": self.description}

    @abstractmethod
    def sensor(self, options: SensorOptions) -> dg.SensorDefinition:
        """Build the sensor.

        Args:
            options: The options that all sensors have.
        """

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:  # noqa: ARG002  Dagster's
        """Build the sensor."""
        return dg.Definitions(sensors=[self._build()])


def parse_target(target: str) -> dg.AssetSelection:
    """Parse a target into a selection of assets.

    Raises:
        InvalidOptionError: The target is not a selection of assets.
    """
    try:
        return dg.AssetSelection.from_string(target)
    except dg.DagsterError as error:
        raise InvalidOptionError(
            f"`target` must be a selection of assets, got {target!r} ({error}); use 'key:report' or 'group:daily', say."
        ) from None
