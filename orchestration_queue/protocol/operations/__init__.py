"""The operations of clients and workers, as values: calls, and how to read their replies."""
