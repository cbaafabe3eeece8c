"""The gRPC edge towards kubelet: servers, registration, presence, pod-resources."""
