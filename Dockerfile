# The image of the DaemonSet in manifests/: the interpreter, the run-time set of requirements/runtime.lock and the package, all
# compiled to byte code. It runs with a read-only root file system and without any capability.

FROM python:3.11-slim-bookworm AS builder
WORKDIR /build

# The dependencies first: this layer changes with the locks only.
COPY requirements/build.lock requirements/runtime.lock requirements/
RUN pip install --no-cache-dir --require-hashes -r requirements/build.lock \
    && python -m venv --without-pip /opt/gpu-device-plugin \
    && pip --python /opt/gpu-device-plugin/bin/python install --no-cache-dir --no-compile --require-hashes \
        -r requirements/runtime.lock

COPY LICENSE README.md pyproject.toml ./
COPY device_plugin device_plugin
# Byte code saves more than a second at the start and some 10 MiB for good, and with a read-only root it has to be made here.
# `unchecked-hash`: valid whatever happens to the files' time stamps on the way into a registry and out again.
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir dist . \
    && pip --python /opt/gpu-device-plugin/bin/python install --no-cache-dir --no-compile --no-deps --no-index dist/*.whl \
    && python -m compileall -q --invalidation-mode unchecked-hash /opt/gpu-device-plugin/lib \
    && chmod -R a-w /opt/gpu-device-plugin

FROM python:3.11-slim-bookworm
LABEL org.opencontainers.image.title="gpu-device-plugin" \
      org.opencontainers.image.description="A Kubernetes device plugin for NVIDIA GPUs" \
      org.opencontainers.image.licenses="Apache-2.0"

# Nothing is ever installed into a running container. The base brings the standard library without byte code.
RUN pip uninstall --yes pip setuptools wheel \
    && stdlib="$(python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')" \
    && rm -rf "$stdlib/ensurepip" "$stdlib/idlelib" "$stdlib/lib2to3" "$stdlib/test" \
    && python -m compileall -q --invalidation-mode unchecked-hash "$stdlib"

COPY --from=builder /opt/gpu-device-plugin /opt/gpu-device-plugin

# gRPC: its fork handlers can abort a child process, and the plugin starts its helper programs without fork. NVIDIA_*: what
# NVIDIA's container runtime is asked for; `utility` is NVML, and no CUDA version is required of the driver.
ENV PATH=/opt/gpu-device-plugin/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    GRPC_ENABLE_FORK_SUPPORT=false \
    GRPC_VERBOSITY=ERROR \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    NVIDIA_DISABLE_REQUIRE=true

# What `--version` says: docker build --build-arg COMMIT="$(git rev-parse HEAD)"
ARG COMMIT=unknown
ENV GPU_DEVICE_PLUGIN_COMMIT=$COMMIT

# No USER: kubelet's socket directory belongs to root; the manifest takes away all else that root may do.
# argv[0] of the process is the interpreter, so the sidecar of NVIDIA's plugin, which looks for `nvidia-device-plugin` there to
# send it a SIGHUP, does not find it. It is not needed: this process notices new configs by itself.
ENTRYPOINT ["gpu-device-plugin"]
