"""What the node has: the Inventory, the driver behind it, and the files around it."""
