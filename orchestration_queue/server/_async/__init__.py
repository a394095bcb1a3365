"""The connection: how calls reach the server and replies return."""
