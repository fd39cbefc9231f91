/* Streams, events and graphs. Work waits in a queue per stream; when it runs is a setting, because a missing wait shows in one
   order and hides in another. The legacy stream (handle 0) waits for the blocking streams of its device, as on hardware. */
#include "cuda/cuemu/streams.h"

#include <algorithm>

namespace cuemu {

static std::vector<Stream *> streams;
static Stream legacy[CUEMU_MAX_DEVICES];
static thread_local Capture *thread_capture;
static Clock host_clock;          /* of all host threads together: how they wait for each other is not seen here */
static unsigned last_number;

Stream *stream_of(cudaStream_t handle)
{
    bool is_legacy = !handle || handle == cudaStreamLegacy || handle == cudaStreamPerThread;
    if (!is_legacy)
        return reinterpret_cast<Stream *>(handle);
    Stream *stream = &legacy[current_device()];
    stream->device = current_device();
    return stream;
}

static bool is_legacy(const Stream *stream) { return stream >= legacy && stream < legacy + CUEMU_MAX_DEVICES; }

int device_of_stream(cudaStream_t handle) { return stream_of(handle)->device; }
bool is_capturing(cudaStream_t handle) { return stream_of(handle)->capture != nullptr; }
bool thread_captures() { return thread_capture != nullptr; }

Stream *new_stream(int device, bool blocking)
{
    auto *stream = new Stream;
    stream->device = device;
    stream->blocking = blocking;
    stream->number = ++last_number;
    streams.push_back(stream);
    return stream;
}

bool known_stream(const Stream *stream)
{
    return is_legacy(stream) || std::find(streams.begin(), streams.end(), stream) != streams.end();
}

void delete_stream(Stream *stream)
{
    streams.erase(std::find(streams.begin(), streams.end(), stream));
    delete stream;
}

/* --- what happened before what --------------------------------------------------------------------------------------------------- */

void Clock::join(const Clock &other)
{
    if (ticks.size() < other.ticks.size())
        ticks.resize(other.ticks.size());
    for (size_t i = 0; i < other.ticks.size(); i++)
        ticks[i] = std::max(ticks[i], other.ticks[i]);
}

void Clock::tick(unsigned stream)
{
    if (ticks.size() <= stream)
        ticks.resize(stream + 1);
    ticks[stream]++;
}

static void start_op(Stream *stream, const Op &op)
{
    stream->clock.join(op.since);
    stream->clock.tick(stream->number);
    start_work(stream->number, stream->clock);
}

const Clock &clock_of(const Stream *stream) { return stream->clock; }
void learn(Stream *stream, const Clock &clock) { stream->clock.join(clock); }

void start_host_work()
{
    host_clock.tick(0);
    start_work(0, host_clock);
}

void meet_streams(const std::vector<cudaStream_t> &handles)
{
    Clock all;
    for (cudaStream_t handle : handles)
        all.join(stream_of(handle)->clock);
    for (cudaStream_t handle : handles)
        stream_of(handle)->clock = all;
    start_work(stream_of(handles[0])->number, all);
}

/* --- running what is queued --------------------------------------------------------------------------------------------------- */

enum class Step { empty, moved, blocked };

static Step step(Stream *stream)
{
    if (stream->queue.empty())
        return Step::empty;
    Op &head = stream->queue.front();
    if (head.kind == Op::wait && head.event->done < head.version)
        return Step::blocked;
    if (head.kind == Op::collective) {
        if (!head.started.done) {
            start_op(stream, head);
            head.started = head.start();
        }
        if (!head.started.done())
            return Step::blocked;
    }
    Op op = std::move(head);
    stream->queue.pop_front();
    if (op.kind == Op::run) {
        start_op(stream, op);
        op.work();
    } else if (op.kind == Op::record) {
        op.event->done = std::max(op.event->done, op.version);
        op.event->clock = stream->clock;
    } else if (op.kind == Op::wait) {
        stream->clock.join(op.event->clock);
    }
    something_moved();
    return Step::moved;
}

/* One step of some other stream, the first that can. */
static bool step_another(const Stream *but)
{
    for (size_t i = 0; i < streams.size(); i++)
        if (streams[i] != but && step(streams[i]) == Step::moved)
            return true;
    return false;
}

static void run_all()
{
    for (bool any = true; any;) {
        any = false;
        for (size_t i = 0; i < streams.size(); i++)
            while (step(streams[i]) == Step::moved)
                any = true;
    }
}

static void describe_head(const Stream *stream)
{
    if (!stream->queue.empty())
        detail("a stream of device %d stands before %s, queued at %s", stream->device, stream->queue.front().name,
               place_of(stream->queue.front().where).c_str());
}

static void report_standstill(Stream *stream)
{
    const Op &head = stream->queue.front();
    fault(head.where, "STREAM DEADLOCK: %s can never run", head.name);
    for (const Stream *other : streams)
        if (other != stream)
            describe_head(other);
}

/* When the first of those that wait for other ranks gives up by itself. */
static int64_t next_due_ns()
{
    int64_t due = kNever;
    for (const Stream *stream : streams)
        if (!stream->queue.empty())
            due = std::min(due, stream->queue.front().started.due_ns);
    return due;
}

/* Runs until reached() holds. False: it never will. */
template <class Reached> static bool run_until(Locked &locked, Stream *stream, Reached reached)
{
    Wait wait;
    while (settings().streams == CUEMU_OTHERS_FIRST && step_another(stream))
        ;
    while (!reached()) {
        if (step(stream) == Step::moved || step_another(stream))
            continue;
        if (wait.for_others(locked, next_due_ns()))
            continue;
        if (reached())
            break;
        report_standstill(stream);
        stream->queue.clear();
        return false;
    }
    return true;
}

static bool drain_stream(Locked &locked, Stream *stream)
{
    bool drained = run_until(locked, stream, [stream] { return stream->queue.empty(); });
    host_clock.join(stream->clock);
    return drained;
}

cudaError_t drain(Locked &locked, cudaStream_t handle)
{
    Stream *stream = stream_of(handle);
    if (is_legacy(stream))
        drain_legacy(locked);
    else if (!drain_stream(locked, stream))
        return cudaErrorLaunchTimeout;
    return cudaSuccess;
}

void drain_legacy(Locked &locked)
{
    int device = current_device();
    for (size_t i = 0; i < streams.size(); i++)
        if (streams[i]->device == device && streams[i]->blocking)
            drain_stream(locked, streams[i]);
}

void drain_device(Locked &locked, int device)
{
    for (size_t i = streams.size(); i-- > 0;)
        if (streams[i]->device == device)
            drain_stream(locked, streams[i]);
}

bool drain_event(Locked &locked, const std::shared_ptr<Event> &event)
{
    uint64_t version = event->recorded;
    bool reached = !event->stream || event->done >= version || run_until(locked, event->stream, [&] { return event->done >= version; });
    host_clock.join(event->clock);
    return reached;
}

/* Polling moves things on, a step at a time, so that a host that polls gets there in every mode. */
bool poll_stream(Stream *stream)
{
    if (settings().streams != CUEMU_OTHERS_FIRST || !step_another(stream))
        if (step(stream) != Step::moved)
            step_another(stream);
    if (stream->queue.empty())
        host_clock.join(stream->clock);
    return stream->queue.empty();
}

bool poll_event(const std::shared_ptr<Event> &event)
{
    if (event->stream && event->done < event->recorded)
        poll_stream(event->stream);
    if (event->done >= event->recorded)
        host_clock.join(event->clock);
    return event->done >= event->recorded;
}

/* --- queueing ----------------------------------------------------------------------------------------------------------------- */

/* The legacy stream waits for the blocking streams of its device and does its work at once. */
static void run_on_legacy(const Stream *legacy_stream, const Op &op)
{
    if (op.kind != Op::run) {
        fault(op.where, "LEGACY STREAM: %s on stream 0 is not for serving code", op.name);
        return;
    }
    for (size_t i = 0; i < streams.size(); i++)
        while (streams[i]->device == legacy_stream->device && streams[i]->blocking && !streams[i]->queue.empty())
            if (step(streams[i]) != Step::moved && !step_another(streams[i])) {
                report_standstill(streams[i]);
                return;
            }
    for (const Stream *stream : streams)
        if (stream->device == legacy_stream->device && stream->blocking)
            host_clock.join(stream->clock);
    start_host_work();
    op.work();
}

void push(Stream *stream, Op op)
{
    if (stream->capture) {
        stream->capture->ops.push_back(std::move(op));
        return;
    }
    if (is_legacy(stream)) {
        run_on_legacy(stream, op);
        return;
    }
    if (tracking)
        op.since = host_clock;
    stream->queue.push_back(std::move(op));
    something_moved();
    if (settings().streams == CUEMU_EAGER)
        run_all();
}

void push_work(cudaStream_t handle, const char *name, std::function<void()> work, const void *where)
{
    push(stream_of(handle), {Op::run, name, where, std::move(work), nullptr, 0, nullptr, {}, {}});
}

/* --- events ------------------------------------------------------------------------------------------------------------------- */

void record_event(const std::shared_ptr<Event> &event, Stream *stream, const void *where)
{
    event->capture = stream->capture;
    if (stream->capture)    /* inside a graph an event only shows how streams fork and join */
        return;
    event->stream = is_legacy(stream) ? nullptr : stream;
    event->recorded++;
    if (is_legacy(stream))
        event->done = event->recorded;
    else
        push(stream, {Op::record, "cudaEventRecord", where, nullptr, event, event->recorded, nullptr, {}, {}});
}

cudaError_t wait_event(const std::shared_ptr<Event> &event, Stream *stream, const void *where)
{
    if (auto capture = event->capture.lock()) {
        if (stream->capture && stream->capture != capture)
            return cudaErrorStreamCaptureMerge;
        if (!stream->capture)
            capture->streams.push_back(stream);
        stream->capture = capture;
        return cudaSuccess;
    }
    if (stream->capture) {
        fault(where, "CAPTURE: a captured stream waits for an event that was recorded outside the capture");
        return cudaErrorStreamCaptureIsolation;
    }
    push(stream, {Op::wait, "cudaStreamWaitEvent", where, nullptr, event, event->recorded, nullptr, {}, {}});
    return cudaSuccess;
}

/* --- graphs ------------------------------------------------------------------------------------------------------------------- */

cudaError_t begin_capture(Stream *stream)
{
    if (is_legacy(stream))
        return cudaErrorStreamCaptureUnsupported;
    if (stream->capture || thread_capture)
        return cudaErrorIllegalState;
    stream->capture = std::make_shared<Capture>();
    thread_capture = stream->capture.get();
    stream->capture->streams.push_back(stream);
    return cudaSuccess;
}

cudaError_t end_capture(Stream *stream, Graph **graph)
{
    std::shared_ptr<Capture> capture = stream->capture;
    *graph = nullptr;
    if (!capture || capture->streams.front() != stream)
        return cudaErrorIllegalState;
    for (Stream *joined : capture->streams)
        joined->capture = nullptr;
    if (capture.get() == thread_capture)
        thread_capture = nullptr;
    if (capture->broken)
        return cudaErrorStreamCaptureInvalidated;
    *graph = new Graph{std::move(capture->ops)};
    return cudaSuccess;
}

/* A call that a capture forbids spoils it, as on hardware. */
cudaError_t spoil_capture(const char *function, const void *where)
{
    fault(where, "CAPTURE: %s while a stream is captured", function);
    if (thread_capture)
        thread_capture->broken = true;
    return cudaErrorStreamCaptureUnsupported;
}

/* The order of capture is one the graph allows; branches do not run side by side here. */
void launch_graph(const Graph &graph, Stream *stream)
{
    for (const Op &op : graph.ops)
        push(stream, op);
}

}    // namespace cuemu
