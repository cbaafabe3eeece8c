"""Offer x causes x what kubelet was shown -> Served. Leaving devices and the double-booking rule. Pure."""
