"""Inventory x Config -> Offer: names, MIG strategies, replicas. Pure."""
