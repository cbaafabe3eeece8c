"""Simulated hardware and a stand-in kubelet, for tests, the demo, and trying the plugin by hand."""
