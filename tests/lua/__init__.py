"""The `glidemq` function library against real servers, one raw call at a time."""
