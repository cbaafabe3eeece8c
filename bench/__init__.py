"""Measurements of the real process: `make bench` is `python -m bench`, `make soak` is `python -m bench.soak`.

What is measured, and how, stands in docs/performance.md.
"""

import os

# As the plugin sets them, and before gRPC is imported anywhere here: this process starts others while it runs gRPC.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
