"""Its stable version."""
