/* A libnvidia-ml.so.1 of two GPUs, the second in MIG mode, with the C types that pynvml's ctypes must match. One XID waits. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct { int number; } device_t;
typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} pci_t;
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct {
    unsigned multiprocessors, copyEngines, decoders, encoders, jpegs, ofas, gpuSlices, computeSlices;
    unsigned long long memoryMiB;
} attributes_t;
typedef struct {
    device_t *device;
    unsigned long long type, data;
    unsigned gpuInstance, computeInstance;
} event_t;

enum { OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TIMEOUT = 10 };

static device_t gpus[2] = {{0}, {1}}, mig = {100};
static int users, events, set;
static const char *uuids[2] = {"GPU-00000000-0000-0000-0000-00000000000a", "GPU-00000000-0000-0000-0000-00000000000b"};

static int text(char *to, unsigned size, const char *from) {
    if (strlen(from) + 1 > size) return 7;
    strcpy(to, from);
    return OK;
}
static int is_gpu(device_t *d) { return d == &gpus[0] || d == &gpus[1]; }

int nvmlInitWithFlags(unsigned flags) { (void)flags; users++; return OK; }
int nvmlShutdown(void) { if (!users) return UNINITIALIZED; users--; return OK; }
const char *nvmlErrorString(int code) { (void)code; return "an error"; }
int nvmlSystemGetDriverVersion(char *v, unsigned n) { return text(v, n, "580.1.2"); }
int nvmlSystemGetCudaDriverVersion_v2(int *v) { *v = 12040; return OK; }
int nvmlDeviceGetCount_v2(unsigned *n) { if (!users) return UNINITIALIZED; *n = 2; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, device_t **d) { if (i > 1) return INVALID_ARGUMENT; *d = &gpus[i]; return OK; }
int nvmlDeviceGetHandleByUUID(const char *u, device_t **d) {
    for (int i = 0; i < 2; i++) if (!strcmp(u, uuids[i])) { *d = &gpus[i]; return OK; }
    return NOT_FOUND;
}
int nvmlDeviceGetName(device_t *d, char *s, unsigned n) { return text(s, n, d == &mig ? "Stub GPU MIG 1g.5gb" : "Stub GPU"); }
int nvmlDeviceGetUUID(device_t *d, char *s, unsigned n) {
    return text(s, n, d == &mig ? "MIG-00000000-0000-0000-0000-00000000000c" : uuids[d->number]);
}
int nvmlDeviceGetMinorNumber(device_t *d, unsigned *m) { *m = (unsigned)d->number + 4; return OK; }
int nvmlDeviceGetMemoryInfo(device_t *d, memory_t *m) {
    if (d == &gpus[0]) return NOT_SUPPORTED;
    m->total = 5ULL << 33;
    return OK;
}
int nvmlDeviceGetPciInfo_v3(device_t *d, pci_t *p) {
    memset(p, 0xff, sizeof *p); /* what follows the NUL is not text */
    sprintf(p->busId, "0000000F:%02X:00.0", d->number + 1);
    return OK;
}
int nvmlDeviceGetCudaComputeCapability(device_t *d, int *a, int *b) { (void)d; *a = 12; *b = 1; return OK; }
int nvmlDeviceGetMigMode(device_t *d, unsigned *now, unsigned *later) {
    if (d == &gpus[0]) return NOT_SUPPORTED;
    *now = *later = 1;
    return OK;
}
int nvmlDeviceGetMaxMigDeviceCount(device_t *d, unsigned *n) { (void)d; *n = 7; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(device_t *d, unsigned i, device_t **m) {
    (void)d;
    if (i != 2) return NOT_FOUND;
    *m = &mig;
    return OK;
}
int nvmlDeviceGetGpuInstanceId(device_t *d, unsigned *n) { (void)d; *n = 9; return OK; }
int nvmlDeviceGetComputeInstanceId(device_t *d, unsigned *n) { (void)d; *n = 0; return OK; }
int nvmlDeviceGetAttributes_v2(device_t *d, attributes_t *a) {
    if (is_gpu(d)) return INVALID_ARGUMENT;
    *a = (attributes_t){14, 1, 0, 0, 0, 0, 1, 1, 4864};
    return OK;
}
int nvmlDeviceGetTopologyCommonAncestor(device_t *a, device_t *b, int *level) { (void)a; (void)b; *level = 30; return OK; }
int nvmlDeviceGetTotalEccErrors(device_t *d, int kind, int counter, unsigned long long *n) {
    (void)d;
    *n = kind == 1 && counter == 0 ? 1ULL << 40 : 0;
    return OK;
}
int nvmlEventSetCreate(int **s) { *s = &set; return OK; }
int nvmlEventSetFree(int *s) { return s == &set ? OK : INVALID_ARGUMENT; }
int nvmlDeviceGetSupportedEventTypes(device_t *d, unsigned long long *t) { (void)d; *t = 8 | 2 | 1 | 16; return OK; }
int nvmlDeviceRegisterEvents(device_t *d, unsigned long long types, int *s) {
    if (types != (8 | 2 | 1) || s != &set) return INVALID_ARGUMENT;
    events += is_gpu(d);
    return OK;
}
int nvmlEventSetWait_v2(int *s, event_t *e, unsigned ms) {
    if (s != &set || events != 2) return INVALID_ARGUMENT;
    if (events == 2 && users < 100) {
        users += 100; /* the one event */
        *e = (event_t){&gpus[1], 8, 79, 0xffffffffu, 0xffffffffu};
        return OK;
    }
    usleep(ms * 1000);
    return TIMEOUT;
}
