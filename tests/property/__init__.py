"""Promises checked over random histories."""
