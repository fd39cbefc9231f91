/* The runtime functions that gimbal's host code and launchers call, over virtual devices. A function that is missing here shows at
   link time. */
#include "cuda/cuemu/streams.h"

#include <algorithm>
#include <chrono>
#include <map>

namespace cuemu {

static thread_local cudaError_t last_error;
static bool broken[CUEMU_MAX_DEVICES];
static std::map<const void *, size_t> shared_limits;    /* cudaFuncSetAttribute */
static std::map<void *, size_t> registered;             /* cudaHostRegister */

enum { kDefaultSharedLimit = 48 * 1024, kOptInSharedLimit = 227 * 1024, kMultiprocessors = 4 };

cudaError_t failed(cudaError_t error)
{
    if (error != cudaSuccess)
        last_error = error;
    return error;
}

void device_broken(int device) { broken[device] = true; }

/* What stands before every call: a made failure, no GPU, a GPU that a trap has broken. */
static bool may_call(const char *function, cudaError_t *error)
{
    int status;
    *error = cudaSuccess;
    if (call_fails(function, &status))
        *error = cudaError_t(status);
    else if (settings().devices == 0)
        *error = cudaErrorInsufficientDriver;
    else if (broken[current_device()])
        *error = cudaErrorLaunchFailure;
    failed(*error);
    return *error == cudaSuccess;
}

#define ENTER() \
    Locked locked; \
    cudaError_t refused; \
    if (!may_call(__func__, &refused)) \
        return refused

bool may_launch(const char *name, cudaStream_t stream, const void *where, cudaError_t *error)
{
    if (!may_call(name, error))
        return false;
    if (device_of_stream(stream) == current_device())
        return true;
    fault(where, "WRONG DEVICE: %s goes to a stream of device %d while device %d is current", name, device_of_stream(stream),
          current_device());
    *error = failed(cudaErrorInvalidResourceHandle);
    return false;
}

cudaError_t enqueue_kernel(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream, const void *kernel, const char *name,
                           std::function<void()> body, const void *where)
{
    Locked locked;
    cudaError_t refused;
    if (!may_launch(name, stream, where, &refused))
        return refused;
    auto limit = shared_limits.find(kernel);
    if (shared_bytes > (limit == shared_limits.end() ? size_t(kDefaultSharedLimit) : limit->second)) {
        fault(where, "SHARED MEMORY: %s asks for %zu bytes; over 48 KB cudaFuncSetAttribute must allow them", name, shared_bytes);
        return failed(cudaErrorInvalidValue);
    }
    if (!launchable(grid, block, shared_bytes)) {
        fault(where, "BAD LAUNCH of %s: grid (%u,%u,%u), block (%u,%u,%u), %zu bytes of shared memory", name, grid.x, grid.y, grid.z, block.x,
              block.y, block.z, shared_bytes);
        return failed(cudaErrorInvalidConfiguration);
    }
    Launch launch = {grid, block, shared_bytes, name, kernel, current_device(), std::move(body), where};
    push_work(stream, name, [launch] {
        if (!run_grid(launch))
            device_broken(launch.device);
    }, where);
    return cudaSuccess;
}

static double now_ms()
{
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}    // namespace cuemu

using namespace cuemu;

using EventHandle = std::shared_ptr<Event>;
static EventHandle &event_of(cudaEvent_t event) { return *reinterpret_cast<EventHandle *>(event); }

extern "C" {

/* --- devices ---------------------------------------------------------------------------------------------------------------- */

cudaError_t cudaGetDeviceCount(int *count)
{
    ENTER();
    *count = settings().devices;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    Locked locked;
    int status;
    if (call_fails(__func__, &status))
        return failed(cudaError_t(status));
    if (device < 0 || device >= settings().devices)
        return failed(settings().devices ? cudaErrorInvalidDevice : cudaErrorInsufficientDriver);
    set_current_device(device);
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    ENTER();
    *device = current_device();
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device)
{
    ENTER();
    if (device < 0 || device >= settings().devices)
        return failed(cudaErrorInvalidDevice);
    *properties = cudaDeviceProp{};
    snprintf(properties->name, sizeof properties->name, "cuemu (emulated on the CPU)");
    properties->major = 9;
    properties->minor = 0;
    properties->multiProcessorCount = kMultiprocessors;
    properties->totalGlobalMem = settings().memory;
    properties->sharedMemPerBlock = kDefaultSharedLimit;
    properties->sharedMemPerBlockOptin = kOptInSharedLimit;
    properties->sharedMemPerMultiprocessor = 228 * 1024;
    properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = 1024;
    properties->maxThreadsPerMultiProcessor = 2048;
    properties->l2CacheSize = 50 << 20;
    properties->asyncEngineCount = 2;
    properties->concurrentKernels = 1;
    properties->unifiedAddressing = 1;
    properties->canMapHostMemory = 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device)
{
    ENTER();
    if (device < 0 || device >= settings().devices)
        return failed(cudaErrorInvalidDevice);
    switch (attribute) {
    case cudaDevAttrMultiProcessorCount: *value = kMultiprocessors; return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor: *value = 9; return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = kDefaultSharedLimit; return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = kOptInSharedLimit; return cudaSuccess;
    case cudaDevAttrMaxThreadsPerBlock: *value = 1024; return cudaSuccess;
    case cudaDevAttrWarpSize: *value = 32; return cudaSuccess;
    case cudaDevAttrL2CacheSize: *value = 50 << 20; return cudaSuccess;
    default: return failed(cudaErrorInvalidValue);
    }
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *lowest, int *highest)
{
    ENTER();
    *lowest = 0;
    *highest = -5;
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    ENTER();
    *can = device != peer && device < settings().devices && peer < settings().devices;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned)
{
    ENTER();
    if (peer < 0 || peer >= settings().devices || peer == current_device())
        return failed(cudaErrorInvalidDevice);
    if (can_reach(current_device(), peer))
        return failed(cudaErrorPeerAccessAlreadyEnabled);
    allow_peer(current_device(), peer);
    return cudaSuccess;
}

cudaError_t cudaDeviceDisablePeerAccess(int peer)
{
    ENTER();
    if (peer == current_device() || !can_reach(current_device(), peer))
        return failed(cudaErrorPeerAccessNotEnabled);
    forbid_peer(current_device(), peer);
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    ENTER();
    if (thread_captures())
        return failed(spoil_capture(__func__, CUEMU_CALLER));
    drain_device(locked, current_device());
    return broken[current_device()] ? failed(cudaErrorLaunchFailure) : cudaSuccess;
}

/* Buffers of the device are gone, and with them whatever a trap broke. */
cudaError_t cudaDeviceReset(void)
{
    Locked locked;
    drain_device(locked, current_device());
    release_device(current_device());
    broken[current_device()] = false;
    last_error = cudaSuccess;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    Locked locked;
    *version = settings().devices ? CUDART_VERSION : 0;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void) { return last_error; }

const char *cudaGetErrorName(cudaError_t error)
{
    switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInsufficientDriver: return "cudaErrorInsufficientDriver";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    case cudaErrorLaunchTimeout: return "cudaErrorLaunchTimeout";
    case cudaErrorInvalidResourceHandle: return "cudaErrorInvalidResourceHandle";
    case cudaErrorPeerAccessAlreadyEnabled: return "cudaErrorPeerAccessAlreadyEnabled";
    default: return "a CUDA error";
    }
}

const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInsufficientDriver: return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorLaunchFailure: return "unspecified launch failure";
    case cudaErrorLaunchTimeout: return "the launch timed out and was terminated";
    case cudaErrorInvalidResourceHandle: return "invalid resource handle";
    default: return "an error of the emulated runtime";
    }
}

/* --- memory ----------------------------------------------------------------------------------------------------------------- */

cudaError_t cudaMalloc(void **pointer, size_t bytes)
{
    ENTER();
    *pointer = nullptr;
    if (thread_captures())
        return failed(spoil_capture(__func__, CUEMU_CALLER));
    if (bytes == 0)
        return cudaSuccess;
    *pointer = allocate(bytes, Space::device, current_device());
    return *pointer ? cudaSuccess : failed(cudaErrorMemoryAllocation);
}

cudaError_t cudaFree(void *pointer)
{
    ENTER();
    if (!pointer)
        return cudaSuccess;
    int device = device_of(pointer);
    if (device >= 0)
        drain_device(locked, device);    /* cudaFree waits for the device */
    if (device < 0 || !release(pointer, Space::device)) {
        fault(CUEMU_CALLER, "BAD FREE: cudaFree(%p) is no buffer's start", pointer);
        return failed(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned)
{
    ENTER();
    *pointer = allocate(bytes, Space::pinned, current_device());
    return *pointer ? cudaSuccess : failed(cudaErrorMemoryAllocation);
}

cudaError_t cudaMallocHost(void **pointer, size_t bytes)
{
    ENTER();
    *pointer = allocate(bytes, Space::pinned, current_device());
    return *pointer ? cudaSuccess : failed(cudaErrorMemoryAllocation);
}

cudaError_t cudaFreeHost(void *pointer)
{
    ENTER();
    if (!pointer || release(pointer, Space::pinned))
        return cudaSuccess;
    fault(CUEMU_CALLER, "BAD FREE: cudaFreeHost(%p) is no pinned buffer's start", pointer);
    return failed(cudaErrorInvalidValue);
}

cudaError_t cudaHostGetDevicePointer(void **device_pointer, void *host_pointer, unsigned)
{
    ENTER();
    *device_pointer = host_pointer;
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *pointer, size_t bytes, unsigned)
{
    ENTER();
    registered[pointer] = bytes;
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *pointer)
{
    ENTER();
    return registered.erase(pointer) ? cudaSuccess : failed(cudaErrorInvalidValue);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    ENTER();
    *free_bytes = device_bytes_free(current_device());
    *total_bytes = settings().memory;
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *pointer)
{
    ENTER();
    *attributes = cudaPointerAttributes{};
    int device = device_of(pointer);
    attributes->type = device >= 0 ? cudaMemoryTypeDevice : is_pinned(pointer) ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
    attributes->device = device;
    attributes->devicePointer = const_cast<void *>(pointer);
    return cudaSuccess;
}

static bool stays_put(const void *host)
{
    if (is_pinned(host))
        return true;
    auto next = registered.upper_bound(const_cast<void *>(host));
    if (next == registered.begin())
        return false;
    --next;
    return static_cast<const char *>(host) < static_cast<char *>(next->first) + next->second;
}

/* Pageable sources are copied out at the call, pinned ones when the copy runs: who reuses them too early sees it. A copy to pageable
   memory is over when the call returns. */
static cudaError_t copy_async(Locked &locked, void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream,
                              const void *where)
{
    bool from_pageable = kind == cudaMemcpyHostToDevice && !stays_put(from) && !is_capturing(stream);
    if (from_pageable) {
        auto staged = std::make_shared<std::vector<char>>(static_cast<const char *>(from), static_cast<const char *>(from) + bytes);
        push_work(stream, "a copy from host memory", [=] { copy_bytes(to, staged->data(), bytes, where); }, where);
        return cudaSuccess;
    }
    push_work(stream, "a copy", [=] { copy_bytes(to, from, bytes, where); }, where);
    if (kind == cudaMemcpyDeviceToHost && !stays_put(to) && !is_capturing(stream))
        return failed(drain(locked, stream));
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream)
{
    ENTER();
    return copy_async(locked, to, from, bytes, kind, stream, CUEMU_CALLER);
}

cudaError_t cudaMemcpyPeerAsync(void *to, int, const void *from, int, size_t bytes, cudaStream_t stream)
{
    ENTER();
    const void *where = CUEMU_CALLER;
    push_work(stream, "a copy between devices", [=] { copy_bytes(to, from, bytes, where); }, where);
    return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream)
{
    ENTER();
    if (width > to_pitch || width > from_pitch)
        return failed(cudaErrorInvalidPitchValue);
    for (size_t row = 0; row < height; row++) {
        cudaError_t error = copy_async(locked, static_cast<char *>(to) + row * to_pitch,
                                       static_cast<const char *>(from) + row * from_pitch, width, kind, stream, CUEMU_CALLER);
        if (error)
            return error;
    }
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int byte, size_t bytes, cudaStream_t stream)
{
    ENTER();
    const void *where = CUEMU_CALLER;
    push_work(stream, "a fill", [=] { fill_bytes(to, byte, bytes, where); }, where);
    return cudaSuccess;
}

/* The synchronous ones go through the legacy stream: streams made non-blocking do not wait for them, nor they for those. */
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind)
{
    ENTER();
    if (thread_captures())
        return failed(spoil_capture(__func__, CUEMU_CALLER));
    drain_legacy(locked);
    start_host_work();
    copy_bytes(to, from, bytes, CUEMU_CALLER);
    return cudaSuccess;
}

cudaError_t cudaMemset(void *to, int byte, size_t bytes)
{
    ENTER();
    if (thread_captures())
        return failed(spoil_capture(__func__, CUEMU_CALLER));
    drain_legacy(locked);
    start_host_work();
    fill_bytes(to, byte, bytes, CUEMU_CALLER);
    return cudaSuccess;
}

/* --- streams and events ------------------------------------------------------------------------------------------------------- */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    ENTER();
    Stream *made = new_stream(current_device(), !(flags & cudaStreamNonBlocking));
    made->priority = priority;
    *stream = reinterpret_cast<cudaStream_t>(made);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) { return cudaStreamCreateWithPriority(stream, flags, 0); }
cudaError_t cudaStreamCreate(cudaStream_t *stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority)
{
    ENTER();
    *priority = stream_of(stream)->priority;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    Locked locked;
    if (!stream || !known_stream(stream_of(stream)))
        return failed(cudaErrorInvalidResourceHandle);
    drain(locked, stream);
    delete_stream(stream_of(stream));
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    ENTER();
    if (is_capturing(stream))
        return failed(spoil_capture(__func__, CUEMU_CALLER));
    cudaError_t error = drain(locked, stream);
    return failed(broken[current_device()] ? cudaErrorLaunchFailure : error);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    ENTER();
    if (is_capturing(stream))
        return failed(spoil_capture(__func__, CUEMU_CALLER));
    bool done = poll_stream(stream_of(stream));
    return broken[current_device()] ? failed(cudaErrorLaunchFailure) : done ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    ENTER();
    return failed(wait_event(event_of(event), stream_of(stream), CUEMU_CALLER));
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *argument)
{
    ENTER();
    push_work(stream, "a host function", [=] { function(argument); }, CUEMU_CALLER);
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    ENTER();
    *event = reinterpret_cast<cudaEvent_t>(new EventHandle(std::make_shared<Event>()));
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    Locked locked;
    delete &event_of(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    ENTER();
    EventHandle handle = event_of(event);
    record_event(handle, stream_of(stream), CUEMU_CALLER);
    if (!is_capturing(stream))
        push_work(stream, "a time stamp", [handle] { handle->time_ms = now_ms(); }, CUEMU_CALLER);
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    ENTER();
    bool reached = drain_event(locked, event_of(event));
    return failed(broken[current_device()] ? cudaErrorLaunchFailure : reached ? cudaSuccess : cudaErrorLaunchTimeout);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    ENTER();
    bool done = poll_event(event_of(event));
    return broken[current_device()] ? failed(cudaErrorLaunchFailure) : done ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    ENTER();
    *ms = float(event_of(end)->time_ms - event_of(start)->time_ms);
    return cudaSuccess;
}

/* --- graphs ------------------------------------------------------------------------------------------------------------------- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode)
{
    ENTER();
    return failed(begin_capture(stream_of(stream)));
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    ENTER();
    return failed(end_capture(stream_of(stream), reinterpret_cast<Graph **>(graph)));
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status)
{
    ENTER();
    *status = is_capturing(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long)
{
    ENTER();
    *executable = reinterpret_cast<cudaGraphExec_t>(new Graph(*reinterpret_cast<Graph *>(graph)));
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream)
{
    ENTER();
    launch_graph(*reinterpret_cast<Graph *>(executable), stream_of(stream));
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    Locked locked;
    delete reinterpret_cast<Graph *>(graph);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable)
{
    Locked locked;
    delete reinterpret_cast<Graph *>(executable);
    return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    ENTER();
    if (nodes)
        return failed(cudaErrorNotSupported);
    *count = reinterpret_cast<Graph *>(graph)->ops.size();
    return cudaSuccess;
}

/* --- kernels ------------------------------------------------------------------------------------------------------------------ */

cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute attribute, int value)
{
    ENTER();
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
        return cudaSuccess;
    if (value < 0 || value > kOptInSharedLimit)
        return failed(cudaErrorInvalidValue);
    shared_limits[kernel] = size_t(value);
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *, int threads, size_t shared_bytes)
{
    ENTER();
    size_t by_shared = 228 * 1024 / (shared_bytes + 1024);
    *blocks = int(std::max<size_t>(1, std::min<size_t>(2048 / std::max(threads, 1), by_shared)));
    return cudaSuccess;
}

}    // extern "C"
