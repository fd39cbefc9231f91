#include "bindings/c/backend.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/cpu/cpu.h"

/* Where the program is; "." when the system does not say. */
static void program_directory(char *out, size_t capacity)
{
    ssize_t bytes = readlink("/proc/self/exe", out, capacity - 1);
    if (bytes > 0) out[bytes] = 0;
    char *slash = bytes > 0 ? strrchr(out, '/') : NULL;
    if (slash) *slash = 0;
    else snprintf(out, capacity, ".");
}

/* The libraries behind the plugin take half a second to load and are for nothing without a driver. */
static int find_driver(gb_error *err)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (!driver)
        return gb_fail(err, GB_ENOTFOUND, "backend cuda: no NVIDIA driver on this machine (libcuda.so.1 was not found); "
                       "install one, or use --backend cpu");
    dlclose(driver);
    return GB_OK;
}

static int check_version(const gb_backend *backend, const char *path, gb_error *err)
{
    gb_backend_sizes sizes = GB_BACKEND_SIZES;
    if (backend && backend->abi == GB_BACKEND_ABI && memcmp(&backend->sizes, &sizes, sizeof sizes) == 0) return GB_OK;
    return gb_fail(err, GB_EVERSION, "%s belongs to another version of gimbal (this one speaks plugin ABI %d): build both together, or use "
                   "--backend cpu", path, GB_BACKEND_ABI);
}

int gb_backend_load(const gb_backend **out, const char *name, const char *directory, gb_error *err)
{
    char own[PATH_MAX], path[PATH_MAX + 64];
    if (!directory) program_directory(own, sizeof own);
    snprintf(path, sizeof path, "%s/libgimbal_%s.so", directory ? directory : own, name);
    if (access(path, F_OK))
        return gb_fail(err, GB_ENOTFOUND, "backend %s: there is no %s; build gimbal with the CUDA toolkit, or use --backend cpu", name, path);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return gb_fail(err, GB_ENOTFOUND, "backend %s cannot be loaded: %s; use --backend cpu until that is mended", name, dlerror());
    gb_backend_open_fn *open;
    *(void **)&open = dlsym(library, GB_BACKEND_SYMBOL);
    if (!open) return gb_fail(err, GB_EVERSION, "%s is no gimbal backend: it has no %s", path, GB_BACKEND_SYMBOL);
    *out = open(GB_BACKEND_ABI);
    return check_version(*out, path, err);
}

static int open_plugin(const gb_backend **out, gb_backend_device *device, const char *name, const char *directory, gb_error *err)
{
    int status = strcmp(name, "cuda") == 0 ? find_driver(err) : GB_OK;
    if (!status) status = gb_backend_load(out, name, directory, err);
    return !status && (*out)->probe ? (*out)->probe(device, err) : status;
}

int gb_backend_choose(const gb_backend **out, gb_backend_device *device, const char *name, const char *directory, gb_error *err)
{
    bool automatic = strcmp(name, "auto") == 0;
    *device = (gb_backend_device){0};
    if (strcmp(name, "cpu") != 0) {
        gb_error reason = {0};
        int status = open_plugin(out, device, automatic ? "cuda" : name, directory, &reason);
        if (!status) return GB_OK;
        if (!automatic) return gb_fail(err, status, "%s", reason.text);
        gb_log(GB_LOG_INFO, "the cpu runs the model. %s", reason.text);
    }
    *device = (gb_backend_device){.name = "cpu"};
    *out = gb_cpu_backend();
    return GB_OK;
}
