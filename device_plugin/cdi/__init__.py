"""Inventory x driver root -> CDI specification files."""
