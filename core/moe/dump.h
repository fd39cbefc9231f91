/* Windows in a file: what was counted, under which placement, at which link costs. Little-endian, one pass, checksummed:

     0  char[8]  "GBWINDOW"          32  u32 ranks              followed by
     8  u32      format version 1    36  u32 slots_per_rank       f64 link cost [sources][ranks]
    12  u32      windows             40  u64 expert_bytes         i32 expert of slot [layers][ranks * slots_per_rank], -1: empty
    16  u32      flags, 0            48  u64 placement version    windows times: u64 id, u64 from_ns, u64 to_ns, u64 rounds,
    20  u32      layers                                                          u64 count [layers][sources][experts]
    24  u32      sources                                          u32 CRC-32 of all bytes before it (the CRC of zip and PNG)
    28  u32      experts

   Counts are at most 2^53, so that they are exact as doubles, and so are their sums per layer. Readers take a whole file in
   memory and check everything before they give anything back. No files are touched here. */
#ifndef GB_MOE_DUMP_H
#define GB_MOE_DUMP_H

#include "core/flow/placement.h"
#include "core/moe/score.h"
#include "core/moe/window.h"

enum { GB_DUMP_VERSION = 1, GB_DUMP_WINDOWS_MAX = 1000000, GB_DUMP_LAYERS_MAX = 4096 };

#define GB_DUMP_COUNT_MAX (UINT64_C(1) << 53)

typedef struct gb_dump {
    uint32_t windows;
    uint64_t expert_bytes;
    gb_links links;
    gb_placement placement;    /* routes go to the nearest copy */
    gb_window *window;         /* [windows] */
} gb_dump;

/* Memory for a dump of `windows` empty windows; linear placement, links by group. GB_EINVAL names what does not fit. */
int gb_dump_init(gb_dump *dump, gb_arena *arena, uint32_t windows, uint32_t layers, uint32_t sources, uint32_t experts,
                 uint32_t ranks, uint32_t spare, uint64_t expert_bytes, gb_error *err);

uint64_t gb_dump_bytes(const gb_dump *dump);
void     gb_dump_write(const gb_dump *dump, void *bytes);    /* gb_dump_bytes of them */

/* GB_EFORMAT with a sentence that names what is wrong; `dump` is written only when all is well. */
int gb_dump_read(gb_dump *dump, gb_arena *arena, const void *bytes, uint64_t n, gb_error *err);

uint32_t gb_crc32(const void *bytes, uint64_t n);

#endif
