"""Everything we take from Dagster's private modules, in one place, because it may move."""

from __future__ import annotations

from typing import TypeAlias

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

__all__ = ["RunTarget"]

RunTarget: TypeAlias = dg.JobDefinition | UnresolvedAssetJobDefinition | dg.AssetSelection
"""What a sensor's runs execute. The second is what ``dagster.define_asset_job`` returns, a type it does not export."""
