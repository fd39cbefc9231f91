/* What cudart.cpp needs to know of streams, events and graphs. */
#ifndef GB_CUEMU_STREAMS_H
#define GB_CUEMU_STREAMS_H

#include "cuda/cuemu/internal.h"

namespace cuemu {

/* The work of all streams that joined a capture, in the order of the calls. */
struct Capture {
    std::vector<Op> ops;
    std::vector<Stream *> streams;    /* the first began it */
    bool broken = false;
};

struct Stream {
    std::deque<Op> queue;
    unsigned number = 0;              /* of its ticks in clocks */
    Clock clock;                      /* of the last work that ran */
    std::shared_ptr<Capture> capture;
    int device = 0;
    int priority = 0;
    bool blocking = true;             /* waits for the legacy stream, and it for this one */
};

struct Event {
    uint64_t recorded = 0, done = 0;  /* versions */
    Stream *stream = nullptr;         /* of the last record */
    Clock clock;                      /* of the stream when the record ran */
    std::weak_ptr<Capture> capture;   /* recorded inside it */
    double time_ms = 0;
};

struct Graph {
    std::vector<Op> ops;
};

Stream *new_stream(int device, bool blocking);
bool known_stream(const Stream *stream);
void delete_stream(Stream *stream);
void drain_device(Locked &locked, int device);
bool drain_event(Locked &locked, const std::shared_ptr<Event> &event);
bool poll_stream(Stream *stream);
bool poll_event(const std::shared_ptr<Event> &event);
void record_event(const std::shared_ptr<Event> &event, Stream *stream, const void *where);
cudaError_t wait_event(const std::shared_ptr<Event> &event, Stream *stream, const void *where);
cudaError_t begin_capture(Stream *stream);
cudaError_t end_capture(Stream *stream, Graph **graph);
cudaError_t spoil_capture(const char *function, const void *where);
void launch_graph(const Graph &graph, Stream *stream);

}    // namespace cuemu

#endif
