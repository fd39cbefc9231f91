/* gimbal place picture: one layer's matrix before and after, as an SVG. Columns are experts in the order of their slots, rows are
   sources; blue cells are served on the source's own ranks, orange ones elsewhere; bars are rank loads. */
#include "bindings/cli/place_verbs.h"

#include <errno.h>
#include <math.h>
#include <string.h>

enum { LEFT = 96, WIDTH = 1000, CELL_HEIGHT = 18, RANK_GAP = 10, PANEL_TOP = 76, PANEL_GAP = 128 };

typedef struct canvas {
    FILE *out;
    const gb_place_session *session;
    const double *flow;          /* [sources][experts] */
    uint32_t layer;
    double cell, most;           /* width of a slot; the largest amount */
} canvas;

static const char *const LOCAL = "#2a78d6", *const REMOTE = "#eb6834", *const INK = "#0b0b0b", *const QUIET = "#52514e";

static void put_text(const canvas *c, double x, double y, const char *anchor, int size, const char *colour, const char *text)
{
    fprintf(c->out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" font-size=\"%d\" fill=\"%s\">%s</text>\n", x, y, anchor, size, colour, text);
}

static double slot_x(const canvas *c, const gb_placement *p, uint32_t slot)
{
    return LEFT + slot * c->cell + slot / p->slots_per_rank * RANK_GAP;
}

/* What of a source's traffic for the slot's expert the slot serves. */
static double served(const canvas *c, const gb_placement *p, uint32_t source, uint32_t slot, int32_t expert)
{
    size_t i = gb_placement_route_index(p, c->layer, source, (uint32_t)expert);
    double amount = c->flow[(size_t)source * p->experts + (uint32_t)expert], split = amount * p->other_share[i] / GB_SHARES;
    return p->route[i] == (int32_t)slot ? amount - split : p->other[i] == (int32_t)slot ? split : 0;
}

static void put_cells(const canvas *c, const gb_placement *p, double top)
{
    const int32_t *slots = gb_placement_layer_slots(p, c->layer);
    for (uint32_t s = 0; s < p->sources; s++)
        for (uint32_t i = 0; i < gb_placement_slots(p); i++) {
            if (slots[i] < 0) continue;
            bool local = gb_links_owner(&c->session->placer.links, i / p->slots_per_rank) == s;
            double strength = sqrt(served(c, p, s, i, slots[i]) / c->most);
            fprintf(c->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" fill=\"%s\" fill-opacity=\"%.2f\"/>\n", slot_x(c, p, i), top + s * CELL_HEIGHT,
                    c->cell - 0.6, CELL_HEIGHT - 1, local ? LOCAL : REMOTE, 0.06 + 0.94 * strength);
        }
}

static void put_rank(const canvas *c, const gb_placement *p, double top, uint32_t rank, double load, double mean)
{
    char label[64];
    double x = slot_x(c, p, rank * p->slots_per_rank), width = p->slots_per_rank * c->cell, y = top + p->sources * CELL_HEIGHT + 6;
    double scale = width / (2 * mean);
    fprintf(c->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"8\" rx=\"2\" fill=\"%s\" fill-opacity=\"0.75\"/>\n", x, y, fmin(load * scale, width), QUIET);
    fprintf(c->out, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n", x + mean * scale, x + mean * scale, y - 2, y + 10, INK);
    snprintf(label, sizeof label, "rank %u, load %.2f", rank, load / mean);
    put_text(c, x, y + 24, "start", 12, QUIET, label);
}

static void put_moved(const canvas *c, const gb_placement *p, const gb_placement *before, double top)
{
    const int32_t *slots = gb_placement_layer_slots(p, c->layer), *old = gb_placement_layer_slots(before, c->layer);
    for (uint32_t i = 0; i < gb_placement_slots(p); i++)
        if (slots[i] >= 0 && slots[i] != old[i])
            fprintf(c->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.2\" fill=\"%s\"/>\n", slot_x(c, p, i) + c->cell / 2 - 0.3, top - 5, INK);
}

static void put_panel(const canvas *c, const gb_placement *p, double top, const char *name)
{
    double load[GB_RANKS_MAX] = {0}, total = 0, remote = 0;
    const int32_t *slots = gb_placement_layer_slots(p, c->layer);
    char text[160];
    for (uint32_t s = 0; s < p->sources; s++)
        for (uint32_t i = 0; i < gb_placement_slots(p); i++) {
            double amount = slots[i] < 0 ? 0 : served(c, p, s, i, slots[i]);
            uint32_t rank = i / p->slots_per_rank;
            load[rank] += amount;
            total += amount;
            if (gb_links_owner(&c->session->placer.links, rank) != s) remote += amount;
        }
    double most = 0;
    for (uint32_t r = 0; r < p->ranks; r++) most = fmax(most, load[r]);
    snprintf(text, sizeof text, "%s: %.1f %% remote, fullest rank %.2f of the mean", name, 100 * remote / total, most * p->ranks / total);
    put_text(c, LEFT, top - 14, "start", 14, INK, text);
    put_cells(c, p, top);
    for (uint32_t s = 0; s < p->sources; s++) {
        snprintf(text, sizeof text, "source %u", s);
        put_text(c, LEFT - 10, top + s * CELL_HEIGHT + 13, "end", 12, QUIET, text);
    }
    for (uint32_t r = 0; r < p->ranks; r++) put_rank(c, p, top, r, load[r], total / p->ranks);
}

static void put_legend(const canvas *c)
{
    fprintf(c->out, "<rect x=\"%d\" y=\"34\" width=\"12\" height=\"12\" fill=\"%s\"/>\n", LEFT, LOCAL);
    put_text(c, LEFT + 18, 44, "start", 12, QUIET, "served on the source's own ranks");
    fprintf(c->out, "<rect x=\"%d\" y=\"34\" width=\"12\" height=\"12\" fill=\"%s\"/>\n", LEFT + 230, REMOTE);
    put_text(c, LEFT + 248, 44, "start", 12, QUIET, "served elsewhere (darker: more tokens)");
    fprintf(c->out, "<circle cx=\"%d\" cy=\"40\" r=\"2.2\" fill=\"%s\"/>\n", LEFT + 506, INK);
    put_text(c, LEFT + 514, 44, "start", 12, QUIET, "expert new in this slot; bars: rank load, tick at the mean");
}

static void draw(canvas *c, const gb_place_session *s, uint32_t window)
{
    const gb_placement *p = &s->next;
    char title[160], name[64];
    double panel = p->sources * CELL_HEIGHT + PANEL_GAP, height = PANEL_TOP + 2 * panel - 60;
    c->cell = (double)(WIDTH - LEFT - 20 - RANK_GAP * (p->ranks - 1)) / gb_placement_slots(p);
    for (uint32_t i = 0; i < p->sources * p->experts; i++) c->most = fmax(c->most, c->flow[i]);
    fprintf(c->out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" font-family=\"system-ui, sans-serif\">\n", WIDTH, height);
    fprintf(c->out, "<rect width=\"%d\" height=\"%.0f\" fill=\"#fcfcfb\"/>\n", WIDTH, height);
    snprintf(title, sizeof title, "Tokens by source and expert, layer %u of window %u: %u experts in %u slots on %u ranks", c->layer, window, p->experts,
             gb_placement_slots(p), p->ranks);
    put_text(c, LEFT, 22, "start", 15, INK, title);
    put_legend(c);
    put_panel(c, &s->now, PANEL_TOP + 24, "before");
    snprintf(name, sizeof name, "after (%s)", s->policy->name);
    put_panel(c, p, PANEL_TOP + 24 + panel - 30, name);
    put_moved(c, p, &s->now, PANEL_TOP + 24 + panel - 30);
    fputs("</svg>\n", c->out);
}

static uint32_t layer_of_most_gain(const gb_place_session *s, const double *traffic)
{
    uint32_t best = 0;
    double most = -INFINITY;
    for (uint32_t l = 0; l < s->now.layers; l++) {
        const double *flow = traffic + (size_t)l * s->now.sources * s->now.experts;
        double gain = gb_score_placement_layer(&s->placer.options.weights, &s->placer.links, flow, &s->now, l, NULL) -
                      gb_score_placement_layer(&s->placer.options.weights, &s->placer.links, flow, &s->next, l, &s->now);
        if (gain > most) best = l, most = gain;
    }
    return best;
}

int gb_place_picture(gb_place_session *s, gb_error *err)
{
    const char *path = s->args->words[2];
    uint32_t window = s->flags->window >= 0 ? (uint32_t)s->flags->window : s->dump.windows - 1;
    gb_placer_outcome o;
    for (uint32_t w = 0; w < window; w++) gb_estimate_add(&s->placer.estimate, &s->dump.window[w].counts);
    int rc = gb_placer_step(&s->placer, s->policy, &s->next, &s->now, &s->dump.window[window].counts, false, &o, err);
    if (rc != GB_OK) return rc;
    const double *traffic = gb_placer_numbers(&s->placer, &s->dump.window[window].counts);
    canvas c = {.session = s, .layer = s->flags->layer >= 0 ? (uint32_t)s->flags->layer : layer_of_most_gain(s, traffic), .most = 1};
    c.flow = traffic + (size_t)c.layer * s->now.sources * s->now.experts;
    c.out = fopen(path, "we");
    if (!c.out) return gb_fail(err, GB_EIO, "%s cannot be written: %s", path, strerror(errno));
    draw(&c, s, window);
    bool whole = !ferror(c.out);
    if (fclose(c.out) != 0 || !whole) return gb_fail(err, GB_EIO, "%s cannot be written: %s", path, strerror(errno));
    printf("%s: layer %u of window %u, policy %s (%s)\n", path, c.layer, window, s->policy->name, gb_verdict_name(o.verdict));
    return GB_OK;
}
