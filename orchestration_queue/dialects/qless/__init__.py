"""qless's queues: its commands as a function library, on the keys that its clients share."""
