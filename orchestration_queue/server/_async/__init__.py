"""The connection: how calls get to the server and replies back."""
