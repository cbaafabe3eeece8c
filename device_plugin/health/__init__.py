"""Causes: why a device must not get new work, and what clears them. Pure."""
