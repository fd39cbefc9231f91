#include "core/model/weights_parts.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/base/rng.h"

/* ---- the set ---- */

int gb_weights_new(gb_weights **out)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return GB_ENOMEM;
    gb_arena_init(&(*out)->names);
    return GB_OK;
}

void gb_weights_free(gb_weights *w)
{
    if (!w) return;
    for (size_t i = 0; i < w->n_files; i++) munmap(w->files[i].base, w->files[i].bytes);
    free(w->files);
    free(w->tensors);
    free(w->slots);
    gb_arena_deinit(&w->names);
    free(w);
}

static size_t hash_name(const char *name)
{
    uint64_t h = 0;
    for (; *name; name++) h = gb_mix64(h + (unsigned char)*name);
    return (size_t)h;
}

/* The slot that holds name, or the free one where it belongs. */
static uint32_t *slot_of(const gb_weights *w, const char *name)
{
    for (size_t i = hash_name(name) & (w->n_slots - 1);; i = (i + 1) & (w->n_slots - 1))
        if (!w->slots[i] || !strcmp(w->tensors[w->slots[i] - 1].name, name)) return &w->slots[i];
}

static int grow(gb_weights *w)
{
    size_t capacity = w->capacity ? 2 * w->capacity : 64;
    gb_tensor *tensors = realloc(w->tensors, capacity * sizeof *tensors);
    if (!tensors) return GB_ENOMEM;
    w->tensors = tensors;
    uint32_t *slots = calloc(4 * capacity, sizeof *slots);
    if (!slots) return GB_ENOMEM;
    free(w->slots);
    w->slots = slots;
    w->n_slots = 4 * capacity;
    w->capacity = capacity;
    for (size_t i = 0; i < w->n; i++) *slot_of(w, w->tensors[i].name) = (uint32_t)i + 1;
    return GB_OK;
}

int gb_weights_add(gb_weights *w, const gb_tensor *tensor)
{
    if (w->n == w->capacity && grow(w)) return GB_ENOMEM;
    uint32_t *slot = slot_of(w, tensor->name);
    if (*slot) return GB_EEXIST;
    size_t bytes = strlen(tensor->name) + 1;
    char *name = gb_arena_take(&w->names, bytes, 1);
    if (!name) return GB_ENOMEM;
    memcpy(name, tensor->name, bytes);
    w->tensors[w->n] = *tensor;
    w->tensors[w->n++].name = name;
    *slot = (uint32_t)w->n;
    return GB_OK;
}

size_t gb_weights_count(const gb_weights *w) { return w->n; }

const gb_tensor *gb_weights_at(const gb_weights *w, size_t index) { return &w->tensors[index]; }

const gb_tensor *gb_weights_find(const gb_weights *w, const char *name)
{
    uint32_t index = w->n ? *slot_of(w, name) : 0;
    return index ? &w->tensors[index - 1] : NULL;
}

void gb_weights_release(const gb_weights *w)
{
    for (size_t i = 0; i < w->n_files; i++) madvise(w->files[i].base, w->files[i].bytes, MADV_DONTNEED);
}

/* ---- elements ---- */

float gb_f16_to_f32(uint16_t x)
{
    uint32_t sign = (uint32_t)(x & 0x8000) << 16, exponent = x >> 10 & 31, mantissa = x & 0x3ff;
    union { uint32_t u; float f; } v;
    if (exponent == 0) {
        v.f = (float)mantissa * 0x1p-24f;    /* zero and denormals: exact in float32 */
        v.u |= sign;
    } else {
        v.u = sign | (exponent == 31 ? 0xffu : exponent + 112) << 23 | mantissa << 13;
    }
    return v.f;
}

uint16_t gb_f32_to_bf16(float x)
{
    union { float f; uint32_t u; } v = {.f = x};
    if ((v.u & 0x7fffffff) > 0x7f800000) return (uint16_t)(v.u >> 16 | 0x40);    /* NaN: rounding could make it infinity */
    return (uint16_t)((v.u + 0x7fff + (v.u >> 16 & 1)) >> 16);
}

void gb_tensor_read_f32(const gb_tensor *t, float *out, size_t first, size_t count)
{
    const unsigned char *from = (const unsigned char *)t->data + first * gb_dtype_bytes(t->dtype);
    uint16_t half;
    switch (t->dtype) {
    case GB_F32: memcpy(out, from, count * sizeof *out); return;
    case GB_BF16:
        for (size_t i = 0; i < count; i++) {
            memcpy(&half, from + 2 * i, 2);
            out[i] = gb_bf16_to_f32(half);
        }
        return;
    case GB_F16:
        for (size_t i = 0; i < count; i++) {
            memcpy(&half, from + 2 * i, 2);
            out[i] = gb_f16_to_f32(half);
        }
        return;
    }
}
