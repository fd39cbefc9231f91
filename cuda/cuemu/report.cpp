/* What went wrong, once, in a sentence with file and line. */
#include "cuda/cuemu/internal.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <unistd.h>
#include <unordered_map>

namespace cuemu {

enum { kShownOfAKind = 2, kTextLimit = 64 * 1024 };

static unsigned reports;
static bool quiet;
static std::string text;

static void end_badly()
{
    if (!reports)
        return;
    fprintf(stderr, "cuemu: %u reports; ending with status %d\n", reports, CUEMU_EXIT_STATUS);
    fflush(nullptr);
    _exit(CUEMU_EXIT_STATUS);
}

/* addr2line knows the inlined callers: "mma.h:40 <- gemm.cu:77". */
static std::string ask_addr2line(const char *file, size_t offset)
{
    char command[700], line[400];
    snprintf(command, sizeof command, "addr2line -s -i -e '%s' %#zx 2>/dev/null", file, offset);
    std::string place;
    FILE *pipe = popen(command, "r");
    if (!pipe)
        return place;
    while (fgets(line, sizeof line, pipe)) {
        line[strcspn(line, " \n")] = 0;
        if (line[0] != '?')
            place += (place.empty() ? "" : " <- ") + std::string(line);
    }
    pclose(pipe);
    return place;
}

std::string place_of(const void *where)
{
    static std::unordered_map<const void *, std::string> known;
    auto found = known.find(where);
    if (found != known.end())
        return found->second;
    Dl_info module;
    std::string place;
    if (where && dladdr(where, &module) && module.dli_fname) {
        size_t offset = static_cast<const char *>(where) - static_cast<const char *>(module.dli_fbase) - 1;
        place = ask_addr2line(module.dli_fname, offset);
        if (place.empty()) {
            char raw[400];
            snprintf(raw, sizeof raw, "%s+%#zx", module.dli_fname, offset);
            place = raw;
        }
    }
    known[where] = place.empty() ? "an unknown place" : place;
    return known[where];
}

/* The same thing at the same place is told twice, then only counted. */
static std::map<std::pair<const void *, const char *>, unsigned> told;
static bool telling = true;

static void show(const std::string &line)
{
    if (!telling)
        return;
    if (!quiet)
        fprintf(stderr, "cuemu: %s\n", line.c_str());
    if (text.size() < kTextLimit)
        text += line + "\n";
}

static std::string formatted(const char *format, va_list arguments)
{
    char line[600];
    vsnprintf(line, sizeof line, format, arguments);
    return line;
}

void fault(const void *where, const char *format, ...)
{
    static bool registered = (atexit(end_badly), true);
    (void)registered;
    va_list arguments;
    va_start(arguments, format);
    std::string line = formatted(format, arguments);
    va_end(arguments);
    reports++;
    telling = told[{where, format}]++ < kShownOfAKind;
    if (where)
        line += ", at " + place_of(where);
    std::string thread = running_thread();
    show(thread.empty() ? line : thread + ": " + line);
}

void detail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    show("  " + formatted(format, arguments));
    va_end(arguments);
}

}    // namespace cuemu

using namespace cuemu;

extern "C" {

unsigned cuemu_reports(void)
{
    Locked locked;
    return reports;
}

const char *cuemu_report_text(void)
{
    Locked locked;
    return text.c_str();
}

void cuemu_clear_reports(void)
{
    Locked locked;
    reports = 0;
    text.clear();
    told.clear();
}

void cuemu_quiet(int on)
{
    Locked locked;
    quiet = on != 0;
}

}    // extern "C"
