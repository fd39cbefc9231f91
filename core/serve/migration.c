/* Experts on the move while requests are served: copies go out and come back at any time, flips happen between rounds. */
#include "core/serve/server.h"

#include "core/base/assert.h"
#include "core/base/log.h"
#include "core/moe/route.h"
#include "core/moe/trade.h"
#include "core/serve/internal.h"

static bool is_idle(const gb_server *s) { return gb_migrate_state_of(&s->migrate) == GB_MIGRATE_IDLE && !s->migrate.out; }

int gb_server_migrate(gb_server *s, const gb_placement *to, const gb_plan *plan, gb_time now, gb_error *err)
{
    gb_server_advance(s, now);
    if (s->draining) return gb_fail(err, GB_EDRAINING, "the server is draining: experts stay where they are");
    return gb_migrate_start(&s->migrate, to, plan, now, err);
}

static int take_slots(gb_placement *p, uint32_t layer, const int32_t *experts, gb_error *err)
{
    uint32_t n = gb_placement_slots(p);
    bool lives[GB_EXPERTS_MAX] = {false};
    for (uint32_t i = 0; i < n; i++) {
        if (experts[i] < -1 || experts[i] >= (int32_t)p->experts)
            return gb_fail(err, GB_EINVAL, "placement: layer %u slot %u holds expert %d, but experts are 0..%u", layer, i, experts[i], p->experts - 1);
        if (experts[i] >= 0) lives[experts[i]] = true;
        gb_placement_layer_slots(p, layer)[i] = experts[i];
    }
    for (uint32_t e = 0; e < p->experts; e++)
        if (!lives[e]) return gb_fail(err, GB_EINVAL, "placement: expert %u of layer %u lives on no rank", e, layer);
    return GB_OK;
}

int gb_server_set_placement(gb_server *s, const int32_t *expert_of_slot, gb_time now, gb_error *err)
{
    gb_placement *to = &s->forced;
    if (s->options.moe_layers == 0) return gb_fail(err, GB_EUNSUPPORTED, "this model has no experts");
    for (uint32_t l = 0; l < to->layers; l++) {
        int rc = take_slots(to, l, expert_of_slot + (size_t)l * gb_placement_slots(to), err);
        if (rc) return rc;
        gb_route_nearest(to, l, &s->planner.links);
    }
    return gb_server_migrate(s, to, NULL, now, err);
}

void gb_server_cancel_migration(gb_server *s) { gb_migrate_cancel(&s->migrate); }

static bool may_rearrange(const gb_server *s)
{
    bool up = true;
    for (uint32_t e = 0; e < s->options.engines; e++) up = up && s->engines[e].healthy;
    return up && !s->draining && s->options.moe_layers > 0 && s->options.ranks > 1 && gb_planner_due(&s->planner) && is_idle(s);
}

bool gb_server_rearrange(gb_server *s, gb_time now)
{
    gb_server_advance(s, now);
    if (!may_rearrange(s) || gb_planner_decide(&s->planner, &s->placement, now) > GB_VERDICT_CUT) return false;
    int rc = gb_migrate_start(&s->migrate, &s->planner.next, &s->planner.decider.plan, now, NULL);
    GB_ASSERT(rc == GB_OK);
    return true;
}

void gb_server_set_planner(gb_server *s, gb_planner_place *place, void *self)
{
    s->planner.place = place;
    s->planner.self = self;
}

/* One list a round, so that a round shares memory with few bytes; without rounds, as fast as they come back. */
bool gb_server_poll_copies(gb_server *s, gb_copy_list *list)
{
    if (s->in_flight && s->copied_round == s->round_seq) return false;
    if (!gb_migrate_poll(&s->migrate, list)) return false;
    s->copied_round = s->round_seq;
    return true;
}

void gb_server_copies_done(gb_server *s, int status, gb_time now)
{
    gb_server_advance(s, now);
    gb_migrate_copied(&s->migrate, status, now);
    if (status) gb_log(GB_LOG_ERROR, "a migration of experts ended early: %s", gb_status_message(status));
    if (!s->in_flight) gb_migrate_flip(&s->migrate, now);
}

/* Every so many rounds two experts of two ranks trade places in every layer. */
static void force(gb_server *s, gb_time now)
{
    uint32_t every = s->options.force_migration_every;
    if (every == 0 || s->draining || !is_idle(s) || s->round_seq < s->forced_round + every) return;
    s->forced_round = s->round_seq;
    gb_placement_copy(&s->forced, &s->placement);
    gb_trade_at_random(&s->forced, &s->migrate_rng);
    int rc = gb_migrate_start(&s->migrate, &s->forced, NULL, now, NULL);
    GB_ASSERT(rc == GB_OK);
}

void gb_server_settle_migration(gb_server *s, gb_time now)
{
    GB_ASSERT(!s->in_flight);
    force(s, now);
    gb_migrate_flip(&s->migrate, now);
}

void gb_server_watch_migration(gb_server *s, gb_time now)
{
    uint32_t left = gb_migrate_stats_of(&s->migrate).moves_left;
    if (!gb_migrate_tick(&s->migrate, now)) return;
    gb_log(GB_LOG_WARN, "a migration of experts made no progress and was cancelled with %u moves left: %s", left,
           s->migrate.out ? "copies were handed out and are not back" : "no round ended");
}
