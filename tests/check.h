/* Checks for the C tests. A test is a function named as a claim; CHECK_* print both values; a file lists its tests with
   TESTS(...) and ends with "N passed, N failed". A run takes an optional substring to choose tests. */
#ifndef GB_TESTS_CHECK_H
#define GB_TESTS_CHECK_H

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

extern int check_failures;    /* of the running test */

void check_fail(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));

#define CHECK(condition) \
    do { if (!(condition)) check_fail(__FILE__, __LINE__, "%s is false", #condition); } while (0)
#define CHECK_EQ(a, b) \
    do { \
        int64_t check_a = (int64_t)(a), check_b = (int64_t)(b); \
        if (check_a != check_b) \
            check_fail(__FILE__, __LINE__, "%s is %" PRId64 ", but %s is %" PRId64, #a, check_a, #b, check_b); \
    } while (0)
#define CHECK_NEAR(a, b, tolerance) \
    do { \
        double check_a = (a), check_b = (b); \
        if (!(fabs(check_a - check_b) <= (tolerance))) \
            check_fail(__FILE__, __LINE__, "%s is %.9g, but %s is %.9g", #a, check_a, #b, check_b); \
    } while (0)
#define CHECK_STR(a, b) \
    do { \
        const char *check_a = (a), *check_b = (b); \
        if (!check_a || !check_b || strcmp(check_a, check_b) != 0) \
            check_fail(__FILE__, __LINE__, "%s is \"%s\", but %s is \"%s\"", #a, check_a ? check_a : "(null)", #b, check_b ? check_b : "(null)"); \
    } while (0)
#define CHECK_CONTAINS(text, part) \
    do { \
        const char *check_a = (text), *check_b = (part); \
        if (!check_a || !strstr(check_a, check_b)) \
            check_fail(__FILE__, __LINE__, "%s is \"%s\", without \"%s\"", #text, check_a ? check_a : "(null)", check_b); \
    } while (0)

typedef struct check_test {
    const char *name;
    void (*run)(void);
} check_test;

int check_main(int argc, char **argv, const check_test *tests, size_t n);

/* Path of a file below the source tree ("tests/golden/plain"); static buffer of one call. */
const char *check_path(const char *relative);

#define TEST(name) {#name, name}
#define TESTS(...) \
    int main(int argc, char **argv) \
    { \
        static const check_test tests[] = {__VA_ARGS__}; \
        return check_main(argc, argv, tests, sizeof tests / sizeof *tests); \
    }

#endif
