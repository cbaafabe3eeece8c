"""The pod-resources interface."""
