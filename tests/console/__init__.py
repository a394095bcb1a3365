"""A day of synthetic life in a server, and what the console's pages say of it."""
