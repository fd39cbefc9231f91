#include "tests/lua/runaway.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/base/assert.h"

typedef struct writer {
    runaway *program;
    gb_rng *rng;
    size_t used;
    const char *separator;    /* " " or a line break: a line is what an interruptible VM checks once */
} writer;

static void put(writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(writer *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(w->program->source + w->used, RUNAWAY_BYTES - w->used, format, args);
    va_end(args);
    w->used += (size_t)n;
    GB_ASSERT(w->used < RUNAWAY_BYTES);
}

static unsigned below(writer *w, unsigned n) { return (unsigned)gb_rng_below(w->rng, n); }
static char variable(writer *w) { return "abcd"[below(w, 4)]; }

static void put_column(writer *w)
{
    static const char *const columns[GB_HOOKS][2] = {
        [GB_HOOK_SELECT] = {"engines.kv_used_ratio[n % engines.n]", "engines.running[i % engines.n]"},
        [GB_HOOK_ORDER] = {"queue.wait_ns[n % queue.n]", "queue.prefill_tokens[i % queue.n]"},
        [GB_HOOK_SCORE] = {"ranks.load[n % ranks.n]", "ranks.window.tokens[n % ranks.window.n]"},
        [GB_HOOK_COST] = {"window.tokens[n % window.n]", "window.home[i % window.expert_rows]"},
    };
    put(w, "%s", columns[w->program->hook][below(w, 2)]);
}

static void put_expression(writer *w, unsigned depth)
{
    unsigned kind = below(w, 100);
    if (kind < 30) put(w, "%c", variable(w));
    else if (kind < 50) put(w, "%u", 1 + below(w, 9));
    else if (kind < 62) put_column(w);
    else if (kind < 70) put(w, "t[%u]", 1 + below(w, 8));
    else if (kind < 76) put(w, "f(%c)", variable(w));
    else if (kind < 80) put(w, "(%c %% %u)", variable(w), 1 + below(w, 9));
    else if (depth == 3) put(w, "1");
    else {
        put(w, "(");
        put_expression(w, depth + 1);
        put(w, " %c ", "+-*"[below(w, 3)]);
        put_expression(w, depth + 1);
        put(w, ")");
    }
}

static void put_statement(writer *w, unsigned depth);

static void put_block(writer *w, const char *head, unsigned depth, const char *end)
{
    put(w, "%s%s", head, w->separator);
    put_statement(w, depth + 1);
    put(w, "%s%s", w->separator, end);
}

static void put_branch(writer *w, unsigned depth)
{
    put(w, "if ");
    put_expression(w, 1);
    put(w, " < ");
    put_expression(w, 1);
    put_block(w, " then", depth, "else");
    put_block(w, "", depth, "end");
}

static void put_nested(writer *w, unsigned kind, unsigned depth)
{
    char head[64];
    if (kind == 0) put_branch(w, depth);
    else if (kind == 1) {
        snprintf(head, sizeof head, "for k = 1, %u do", 1 + below(w, 200));
        put_block(w, head, depth, "end");
    } else {
        put_block(w, "pcall(function()", depth, "end)");
    }
}

static void put_assignment(writer *w)
{
    put(w, "%c = (", variable(w));
    put_expression(w, 0);
    put(w, ") %% 1000");
}

static void put_statement(writer *w, unsigned depth)
{
    static const char *const plain[] = {
        "n = n + 1", "text = 'x' .. n", "table.sort(t, function(x, y) return x < y end)", "t = { 1, 2, 3, 4, 5, 6, 7, n }",
        "t[n % 8 + 1] = a + b", "kept[#kept + 1] = { n }", "for _, v in ipairs(t) do c = (c + v) % 1000 end", "text = string.format('%d', n)",
        "d = gimbal.random(100)", "pcall(error, 'x')", "pcall(function() return t.a.b end)", "for k in pairs(t) do d = (d + k) % 1000 end",
    };
    unsigned kind = below(w, 100);
    if (kind < 40) put_assignment(w);
    else if (kind < 65 && depth < 3) put_nested(w, below(w, 3), depth);
    else put(w, "%s", plain[below(w, sizeof plain / sizeof *plain)]);
}

static void put_loop(writer *w)
{
    static const struct {
        const char *begin, *end;
    } loops[] = {
        {"while true do", "end"},
        {"repeat", "until false"},
        {"for _ = 1, 1e300 do", "end"},
        {"local function g()", "return g() end g()"},
        {"while true do pcall(function() while true do", "end end) end"},
        {"::again::", "goto again"},
        {"local function deep() pcall(deep) while true do", "pcall(deep) end end deep()"},
    };
    size_t which = below(w, sizeof loops / sizeof *loops);
    put(w, "%s%sn = n + 1%s", loops[which].begin, w->separator, w->separator);
    for (unsigned left = below(w, 7); left > 0; left--) {
        put_statement(w, 0);
        put(w, "%s", w->separator);
    }
    put(w, "%s\n", loops[which].end);
}

void runaway_make(runaway *program, gb_rng *rng)
{
    static const char *const arguments[GB_HOOKS] = {"request, engines", "queue", "layer, expert, ranks", "layer, window, out"};
    static const char *const helpers[] = {
        "local function f(x) return x % 7 + 1 end", "local function f(x) if x < 3 then return x end return 2 end",
        "local function f(x) local s = 0 for q = 1, x % 9 do s = s + q end return s end",
        "local function f(x) return select('#', x, x) + x end",
    };
    writer w = {.program = program, .rng = rng, .separator = gb_rng_below(rng, 2) ? " " : "\n"};
    program->hook = (gb_hook)gb_rng_below(rng, GB_HOOKS);
    put(&w, "return { api = 1, %s = function(%s)\n", gb_hook_name(program->hook), arguments[program->hook]);
    put(&w, "if gimbal.now() < 7e9 then return end\n");
    put(&w, "local a, b, c, d, n, i, text, kept, t = 1, 2, 3, 4, 0, 1, '', {}, { 1, 2, 3, 4, 5, 6, 7, 8 }%s", w.separator);
    put(&w, "%s%s", helpers[below(&w, sizeof helpers / sizeof *helpers)], w.separator);
    put_loop(&w);
    put(&w, "end }\n");
    program->lines = 0;
    for (const char *at = program->source; *at; at++) program->lines += *at == '\n';
}
