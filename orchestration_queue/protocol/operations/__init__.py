"""What clients and workers say to the server, as values: calls, and how to read their replies."""
