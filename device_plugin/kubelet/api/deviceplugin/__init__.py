"""The device-plugin interface."""
