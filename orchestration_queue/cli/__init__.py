"""The command `oq`."""
