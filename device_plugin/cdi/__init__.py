"""Inventory x driver root -> CDI specification files.

`build_specs` reads the node and says what the files should hold, `write_specs` puts them in place, `list_devices` and `check_names`
look at the result as a container runtime does.
"""

from device_plugin.cdi.build import Built, build_specs
from device_plugin.cdi.listing import CDI_DIRECTORIES, ListedDevice, Listing, check_names, list_devices
from device_plugin.cdi.options import CdiFeature, CdiHook, CdiOptions, options_from
from device_plugin.cdi.roots import Roots, roots_from
from device_plugin.cdi.spec import Spec, encode
from device_plugin.cdi.write import DEFAULT_DIRECTORY, Written, write_specs

__all__ = [
    "CDI_DIRECTORIES",
    "DEFAULT_DIRECTORY",
    "Built",
    "CdiFeature",
    "CdiHook",
    "CdiOptions",
    "ListedDevice",
    "Listing",
    "Roots",
    "Spec",
    "Written",
    "build_specs",
    "check_names",
    "encode",
    "list_devices",
    "options_from",
    "roots_from",
    "write_specs",
]
