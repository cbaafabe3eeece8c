"""Its only version."""
