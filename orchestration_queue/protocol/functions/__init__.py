"""The server's functions as typed calls. Generated."""
