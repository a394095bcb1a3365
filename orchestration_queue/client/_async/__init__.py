"""The clients of a queue. Each module is loaded when one of its names is first used."""
