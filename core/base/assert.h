/* Assertions for our own mistakes. They stay on in release builds: a broken invariant must stop the program where it
   broke, not three rounds later. Data from outside is never asserted; it is checked where it enters the house. */
#ifndef GB_BASE_ASSERT_H
#define GB_BASE_ASSERT_H

_Noreturn void gb_assert_failed(const char *expression, const char *file, int line);

#define GB_ASSERT(expression) ((expression) ? (void)0 : gb_assert_failed(#expression, __FILE__, __LINE__))
#define GB_UNREACHABLE() gb_assert_failed("unreachable", __FILE__, __LINE__)

#endif
