"""`python -m device_plugin`."""

import sys

from device_plugin.cli import main

if __name__ == "__main__":
    sys.exit(main())
