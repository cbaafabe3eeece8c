"""The reconcile loop: all that waits, retries, watches or keeps state."""
