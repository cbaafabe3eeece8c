"""What the operator wants: the Config, where its text comes from, and how it is read."""
