/* Checkpoints: safetensors files that are mapped and stay so as long as their tensors. */
#include "core/model/weights_parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/model/json.h"
#include "core/model/safetensors.h"

enum { SHARDS_MAX = 4096 };

static const char SINGLE_FILE[] = "model.safetensors", INDEX_FILE[] = "model.safetensors.index.json";

/* Tables that old checkpoints saved and everyone computes. */
static bool is_ignorable(const char *name)
{
    static const char *const SUFFIXES[] = {".rotary_emb.inv_freq", ".rotary_emb.cos_cached", ".rotary_emb.sin_cached"};
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof SUFFIXES / sizeof *SUFFIXES; i++) {
        size_t m = strlen(SUFFIXES[i]);
        if (n >= m && !strcmp(name + n - m, SUFFIXES[i])) return true;
    }
    return false;
}

static bool weight_dtype(const char *name, gb_dtype *dtype)
{
    static const struct {
        const char *name;
        gb_dtype dtype;
    } KNOWN[] = {{"BF16", GB_BF16}, {"F16", GB_F16}, {"F32", GB_F32}};
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++)
        if (!strcmp(name, KNOWN[i].name)) {
            *dtype = KNOWN[i].dtype;
            return true;
        }
    return false;
}

typedef struct file_visit {
    gb_weights *weights;
    const char *file;
} file_visit;

static int add_tensor(void *self, const gb_safetensor *from, gb_error *err)
{
    const file_visit *v = self;
    gb_tensor to = {.name = from->name, .n_dims = from->n_dims, .data = from->data, .bytes = from->bytes};
    if (is_ignorable(from->name)) return GB_OK;
    if (!weight_dtype(from->dtype, &to.dtype))
        return gb_fail(err, GB_EUNSUPPORTED, "%s: tensor %s has the dtype %s; supported are BF16, F16 and F32", v->file,
                       gb_json_quote(from->name).text, from->dtype);
    memcpy(to.dims, from->dims, sizeof to.dims);
    int status = gb_weights_add(v->weights, &to);
    if (status == GB_EEXIST)
        return gb_fail(err, GB_EFORMAT, "%s: tensor %s is in another shard, too", v->file, gb_json_quote(from->name).text);
    return status ? gb_fail(err, status, "no memory for the tensors of %s", v->file) : GB_OK;
}

int gb_weights_add_file(gb_weights *w, const void *file, size_t bytes, const char *name, gb_error *err)
{
    _Static_assert((int)GB_TENSOR_DIMS_MAX == (int)GB_SAFETENSORS_DIMS_MAX, "dims are copied whole");
    file_visit visit = {.weights = w, .file = name};
    return gb_safetensors_read(file, bytes, name, add_tensor, &visit, err);
}

static int map_file(gb_weights *w, const char *dir, const char *name, gb_error *err)
{
    int fd;
    size_t bytes;
    int status = gb_file_open(&fd, &bytes, dir, name, err);
    if (status) return status;
    gb_mapping *files = realloc(w->files, (w->n_files + 1) * sizeof *files);
    if (files) w->files = files;
    void *base = files && bytes ? mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    int reason = errno;
    close(fd);
    if (!files) return gb_fail(err, GB_ENOMEM, "no memory to map %s/%s", dir, name);
    if (!bytes) return gb_fail(err, GB_EFORMAT, "%s/%s is empty", dir, name);
    if (base == MAP_FAILED) return gb_fail(err, GB_EIO, "%s/%s cannot be mapped: %s", dir, name, strerror(reason));
    w->files[w->n_files++] = (gb_mapping){base, bytes};
    return gb_weights_add_file(w, base, bytes, name, err);
}

/* ---- shards ---- */

/* A shard lies beside its index: a name with a directory in it is not followed. */
static bool is_plain_name(const char *name)
{
    return name && name[0] && name[0] != '.' && !strchr(name, '/') && strlen(name) < 256;
}

/* Maps each file that the index names, once. `seen` is a JSON object used as a set. */
static int map_shards(gb_weights *w, const char *dir, json_t *map, json_t *seen, gb_error *err)
{
    const char *tensor;
    json_t *value;
    json_object_foreach(map, tensor, value) {
        const char *file = json_string_value(value);
        if (!is_plain_name(file))
            return gb_fail(err, GB_EFORMAT, "%s: the file of tensor %s must be a name beside the index", INDEX_FILE,
                           gb_json_quote(tensor).text);
        if (json_object_get(seen, file)) continue;
        if (json_object_size(seen) == SHARDS_MAX) return gb_fail(err, GB_ETOOBIG, "%s names more than %d files", INDEX_FILE, SHARDS_MAX);
        if (json_object_set_new(seen, file, json_true())) return gb_fail(err, GB_ENOMEM, "no memory for %s", INDEX_FILE);
        int status = map_file(w, dir, file, err);
        if (status == GB_ENOTFOUND)
            return gb_fail(err, GB_EFORMAT, "%s names the shard %s, which is not in %s; download it", INDEX_FILE,
                           gb_json_quote(file).text, dir);
        if (status) return status;
    }
    return GB_OK;
}

/* Every tensor that the index promises is in one of the shards. */
static int check_index(const gb_weights *w, json_t *map, gb_error *err)
{
    const char *tensor;
    json_t *value;
    json_object_foreach(map, tensor, value) {
        if (!gb_weights_find(w, tensor) && !is_ignorable(tensor))
            return gb_fail(err, GB_EFORMAT, "%s says that tensor %s is in %s, but it is not", INDEX_FILE, gb_json_quote(tensor).text,
                           gb_json_quote(json_string_value(value)).text);
    }
    return GB_OK;
}

static int open_shards(gb_weights *w, const char *dir, gb_error *err)
{
    char *text;
    size_t bytes;
    int status = gb_file_read(&text, &bytes, dir, INDEX_FILE, GB_JSON_INDEX_BYTES_MAX, err);
    if (status) return status;
    json_t *root = NULL, *seen = json_object();
    status = gb_json_parse(&root, text, bytes, INDEX_FILE, GB_JSON_EXACT_INTEGERS, err);
    free(text);
    json_t *map = json_object_get(root, "weight_map");
    if (!status && !json_is_object(map)) status = gb_fail(err, GB_EFORMAT, "%s has no weight_map", INDEX_FILE);
    if (!status) status = map_shards(w, dir, map, seen, err);
    if (!status) status = check_index(w, map, err);
    json_decref(seen);
    json_decref(root);
    return status;
}

int gb_weights_open(gb_weights **out, const char *dir, gb_error *err)
{
    *out = NULL;
    gb_weights *w;
    if (gb_weights_new(&w)) return gb_fail(err, GB_ENOMEM, "no memory to open %s", dir);
    int status = map_file(w, dir, SINGLE_FILE, err);
    if (status == GB_ENOTFOUND) status = open_shards(w, dir, err);
    if (status == GB_ENOTFOUND && access(dir, F_OK) == 0)
        gb_fail(err, status, "%s has neither %s nor %s; weights are read from safetensors only", dir, SINGLE_FILE, INDEX_FILE);
    if (status) {
        gb_weights_free(w);
        return status;
    }
    if (err) err->text[0] = '\0';    /* that there is no single file was no failure */
    *out = w;
    return GB_OK;
}
