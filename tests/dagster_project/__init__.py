"""A Dagster project with assets of all kinds, for a deployment as the Helm chart makes it."""
