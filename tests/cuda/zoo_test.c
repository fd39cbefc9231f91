#include "tests/cuda/zoo.h"

#include "cuda/cuemu/control.h"
#include "tests/check.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
enum { ASAN = 1 };
#else
enum { ASAN = 0 };
#endif

/* What a wrong kernel must make the emulator say in each build; NULL: that build does not see it, as docs/cuda.md says. */
static const struct {
    const char *name, *plain, *asan, *track;
} zoo[ZOO_ANIMALS] = {
    [ZOO_NO_SYNCWARP] = {"no syncwarp", NULL, NULL, "RACE in shared memory"},
    [ZOO_WRITE_AFTER_READ] = {"write after read", NULL, NULL, "RACE in shared memory"},
    [ZOO_TWO_BLOCKS_ADD] = {"two blocks add", NULL, NULL, "RACE in device memory"},
    [ZOO_ATOMIC_MEETS_PLAIN] = {"atomic meets plain", NULL, NULL, "RACE in device memory"},
    [ZOO_DIVERGENT_BARRIER] = {"divergent barrier", "DIVERGENT BARRIER", "DIVERGENT BARRIER", "DIVERGENT BARRIER"},
    [ZOO_EARLY_EXIT] = {"early exit", "EARLY EXIT", "EARLY EXIT", "EARLY EXIT"},
    [ZOO_LANE_NOT_IN_MASK] = {"lane not in mask", "WRONG MASK", "WRONG MASK", "WRONG MASK"},
    [ZOO_HALF_A_WARP_WAITS] = {"half a warp waits", "DEADLOCK", "DEADLOCK", "DEADLOCK"},
    [ZOO_WARP_DIVERGES] = {"warp diverges", "DIVERGENT WARP", "DIVERGENT WARP", "DIVERGENT WARP"},
    [ZOO_SHUFFLE_FROM_EXITED] = {"shuffle from exited", "SHUFFLE", "SHUFFLE", "SHUFFLE"},
    [ZOO_UNSET_DEVICE] = {"unset device memory", NULL, NULL, "UNINITIALISED"},
    [ZOO_UNSET_SHARED] = {"unset shared memory", NULL, NULL, "UNINITIALISED"},
    [ZOO_SHARED_OVERRUN] = {"shared overrun", "OUT OF BOUNDS", "out of bounds", "OUT OF BOUNDS"},
    [ZOO_WRITE_PAST_END] = {"write past the end", "OUT OF BOUNDS", "heap-buffer-overflow", "OUT OF BOUNDS"},
    [ZOO_FAR_OUT] = {"far out", "OUT OF BOUNDS", "AddressSanitizer", "OUT OF BOUNDS"},
    [ZOO_MISALIGNED] = {"misaligned", "MISALIGNED", "MISALIGNED", "MISALIGNED"},
    [ZOO_MISALIGNED_PAIR] = {"misaligned pair", NULL, "misaligned address", "MISALIGNED"},
    [ZOO_COPY_NOT_AWAITED] = {"copy not awaited", "WRONG RESULT", "WRONG RESULT", "UNINITIALISED"},
    [ZOO_COPY_OVERTAKES_READ] = {"copy overtakes read", NULL, NULL, "RACE in shared memory"},
    [ZOO_TOO_MUCH_SHARED] = {"too much shared", "cudaFuncSetAttribute", "cudaFuncSetAttribute", "cudaFuncSetAttribute"},
    [ZOO_TOO_MANY_THREADS] = {"too many threads", "BAD LAUNCH", "BAD LAUNCH", "BAD LAUNCH"},
    [ZOO_HOST_MEMORY] = {"host memory", NULL, NULL, "HOST MEMORY"},
    [ZOO_TRAP] = {"trap", "TRAP", "TRAP", "TRAP"},
    [ZOO_PARTIAL_MMA] = {"partial mma", "PARTIAL WARP", "PARTIAL WARP", "PARTIAL WARP"},
    [ZOO_NO_PEER_ACCESS] = {"no peer access", NULL, NULL, "NO PEER ACCESS"},
    [ZOO_TENSOR_READ_EARLY] = {"tensor read early", "WRONG RESULT", "WRONG RESULT", "UNINITIALISED"},
    [ZOO_TENSOR_WRONG_BYTES] = {"tensor, wrong bytes", "and 256 bytes", "and 256 bytes", "and 256 bytes"},
    [ZOO_TENSOR_MISALIGNED] = {"tensor misaligned", "MISALIGNED", "MISALIGNED", "MISALIGNED"},
    [ZOO_TENSOR_NOT_AWAITED] = {"tensor not awaited", "COPY NOT AWAITED", "COPY NOT AWAITED", "COPY NOT AWAITED"},
    [ZOO_TENSOR_OVERTAKES_READ] = {"tensor overtakes read", NULL, NULL, "RACE in shared memory"},
    [ZOO_MBARRIER_NOT_SHARED] = {"mbarrier not shared", NULL, NULL, "RACE in shared memory"},
    [ZOO_WGMMA_READ_EARLY] = {"wgmma read early", "WRONG RESULT", "WRONG RESULT", "WRONG RESULT"},
    [ZOO_WGMMA_WRONG_SWIZZLE] = {"wgmma, wrong swizzle", "WRONG RESULT", "WRONG RESULT", "WRONG RESULT"},
    [ZOO_WGMMA_NO_FENCE] = {"wgmma without fence", "WGMMA FENCE", "WGMMA FENCE", "WGMMA FENCE"},
    [ZOO_WGMMA_HIDDEN_STORE] = {"wgmma, hidden store", NULL, NULL, "ASYNC PROXY"},
    [ZOO_WGMMA_PARTIAL] = {"partial wgmma", "PARTIAL WARPGROUP", "PARTIAL WARPGROUP", "PARTIAL WARPGROUP"},
};

static const char *expected(zoo_animal animal)
{
    return ASAN ? zoo[animal].asan : cuemu_tracks() ? zoo[animal].track : zoo[animal].plain;
}

static int *device_ints(int value)
{
    int host[ZOO_INTS], *device = NULL;
    for (int i = 0; i < ZOO_INTS; i++)
        host[i] = value;
    cudaMalloc((void **)&device, sizeof host);
    cudaMemcpy(device, host, sizeof host, cudaMemcpyHostToDevice);
    return device;
}

static bool gives_seven(zoo_animal animal)
{
    return animal == ZOO_COPY_NOT_AWAITED || animal == ZOO_TENSOR_READ_EARLY || (animal >= ZOO_WGMMA_READ_EARLY && animal < ZOO_ANIMALS);
}

/* Runs in a child of its own; whoever wrote a kernel that copies what is not there yet finds poison in the result. */
static void run_animal(zoo_animal animal, int right)
{
    cuemu_set_devices(2);
    int *in = NULL, *out = device_ints(0), host[ZOO_INTS];
    if (animal == ZOO_NO_PEER_ACCESS) {
        cudaSetDevice(1);
        in = device_ints(7);
        cudaSetDevice(0);
        if (right)
            cudaDeviceEnablePeerAccess(1, 0);
    } else if (animal == ZOO_UNSET_DEVICE && !right) {
        cudaMalloc((void **)&in, sizeof host);
    } else {
        in = device_ints(7);
    }
    zoo_run(animal, right, out, in, NULL);
    cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost);
    if (gives_seven(animal) && host[0] != 7) {
        fprintf(stderr, "WRONG RESULT: %d\n", host[0]);
        exit(1);
    }
    exit(0);    /* with CUEMU_EXIT_STATUS after reports */
}

/* What the child said; *failed tells how it ended. */
static const char *output_of(zoo_animal animal, int right, int *failed)
{
    static char text[64 * 1024];
    int pipes[2], status;
    size_t n = 0;
    ssize_t got;
    fflush(NULL);
    if (pipe(pipes) != 0)
        return "no pipe";
    pid_t child = fork();
    if (child == 0) {
        dup2(pipes[1], STDERR_FILENO);
        close(pipes[0]);
        close(pipes[1]);
        run_animal(animal, right);
    }
    close(pipes[1]);
    while (n + 1 < sizeof text && (got = read(pipes[0], text + n, sizeof text - 1 - n)) > 0)
        n += (size_t)got;
    text[n] = 0;
    close(pipes[0]);
    waitpid(child, &status, 0);
    *failed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    return text;
}

static void every_wrong_kernel_is_reported(void)
{
    for (zoo_animal animal = 0; animal < ZOO_ANIMALS; animal++) {
        int failed;
        const char *text = output_of(animal, 0, &failed), *word = expected(animal);
        if (!word)
            continue;
        if (!failed || !strstr(text, word))
            check_fail(__FILE__, __LINE__, "%s: wanted \"%s\", got (%s): %.2000s", zoo[animal].name, word, failed ? "failed" : "ended well", text);
    }
}

static void reports_name_file_and_line(void)
{
    int failed;
    CHECK_CONTAINS(output_of(ZOO_EARLY_EXIT, 0, &failed), "zoo.cu:");
    CHECK_CONTAINS(output_of(ZOO_HALF_A_WARP_WAITS, 0, &failed), "waits in a warp intrinsic");
    if (!ASAN)
        CHECK_CONTAINS(output_of(ZOO_FAR_OUT, 0, &failed), "zoo.cu:");
    if (cuemu_tracks())
        CHECK_CONTAINS(output_of(ZOO_NO_SYNCWARP, 0, &failed), "zoo.cu:");
}

static void right_twins_stay_clean(void)
{
    for (zoo_animal animal = 0; animal < ZOO_ANIMALS; animal++) {
        int failed;
        const char *text = output_of(animal, 1, &failed);
        if (failed || *text)
            check_fail(__FILE__, __LINE__, "%s: its right twin was reported: %.2000s", zoo[animal].name, text);
    }
}

static void a_trap_breaks_the_device(void)
{
    int *out = device_ints(0);
    cuemu_quiet(1);
    zoo_run(ZOO_TRAP, 0, out, out, NULL);
    CHECK_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
    void *more = NULL;
    CHECK_EQ(cudaMalloc(&more, 16), cudaErrorLaunchFailure);
    CHECK_CONTAINS(cuemu_report_text(), "thread (3,0,0): TRAP");
    cudaDeviceReset();
    cuemu_clear_reports();
    cuemu_quiet(0);
    CHECK_EQ(cudaMalloc(&more, 16), cudaSuccess);
    cudaFree(more);
}

TESTS(TEST(every_wrong_kernel_is_reported), TEST(reports_name_file_and_line), TEST(right_twins_stay_clean), TEST(a_trap_breaks_the_device))
