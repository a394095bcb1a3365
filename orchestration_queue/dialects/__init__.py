"""Other queues' wires, each with clients and workers of its own on this package's connections."""
