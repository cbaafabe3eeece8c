"""The commands. The only place that reads argv and the environment."""
