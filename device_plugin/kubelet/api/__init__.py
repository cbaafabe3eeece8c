"""gRPC stubs, made from the contracts in api/ by `make protos`."""
