"""A list that is too long."""

from device_plugin.kubelet.listing import list_from_resource
from device_plugin.serving.served import ServedDevice, ServedResource
from device_plugin.sharing.offer import Device, PreferencePolicy


def _served(name: str, *, leaving: bool = False) -> ServedDevice:
    return ServedDevice(Device(id=name, hardware_id=name, gpu_uuid=name, index="0"), leaving_since=1.0 if leaving else None)


def test_what_leaves_stays_in_a_list_that_is_cut():
    """A device that left the Offer comes on top of a full list; cutting its ID could kill kubelet, which looks it up."""
    devices = (_served("GPU-new-0"), _served("GPU-old-0", leaving=True), _served("GPU-new-1"), _served("GPU-new-2"))
    resource = ServedResource("nvidia.com/gpu", devices, PreferencePolicy.PACKED)
    whole, none_left_out = list_from_resource(resource)
    two_fewer = whole.ByteSize() - 25

    message, left_out = list_from_resource(resource, max_bytes=two_fewer)

    assert none_left_out == 0
    assert ([device.ID for device in message.devices], left_out) == (["GPU-new-0", "GPU-old-0"], 2)
