"""Assets whose work is done by tasks and flows on a queue."""
