"""The async clients, from which the sync ones are generated."""
