#include "tests/check.h"

#include <stdarg.h>

#ifndef GB_SOURCE_DIR
#error "GB_SOURCE_DIR is set by the build"
#endif

int check_failures;

void check_fail(const char *file, int line, const char *format, ...)
{
    check_failures++;
    printf("    %s:%d: ", file, line);
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
}

const char *check_path(const char *relative)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", GB_SOURCE_DIR, relative);
    return path;
}

int check_main(int argc, char **argv, const check_test *tests, size_t n)
{
    int passed = 0, failed = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < n; i++) {
        if (argc > 1 && !strstr(tests[i].name, argv[1])) continue;
        check_failures = 0;
        tests[i].run();
        printf("%s %s\n", check_failures ? "FAIL" : "ok  ", tests[i].name);
        if (check_failures) failed++;
        else passed++;
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed || passed == 0;
}
