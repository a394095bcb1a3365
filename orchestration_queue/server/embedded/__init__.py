"""The embedded server: a server per data directory, its supervisor, and the supervisor's clients."""
