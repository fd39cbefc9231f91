/* What the methods about policies share: methods_policy.c says who decides, methods_policy_change.c changes it,
   methods_policy_check.c tries scripts first, methods_policy_log.c says what happened, methods_policy_shadow.c compares two. */
#ifndef GB_RPC_METHODS_POLICY_H
#define GB_RPC_METHODS_POLICY_H

#include <jansson.h>

#include "bindings/lua/lua_host.h"
#include "bindings/rpc/method.h"

/* Fills name with the parameter `hook`, or returns false for a wrong one, and the call has failed; *given = NULL when it is absent. */
bool gb_rpc_param_hook(gb_rpc_call *call, char name[GB_RPC_STRING_MAX + 1], const char **given);

/* GB_RPC_POLICY_FIELDS and what writes them. */
void gb_rpc_pack_policy(gb_pack_list *map, const gb_lua_info *info);

/* Version by hook. */
void gb_rpc_pack_active(gb_pack *out, const gb_lua_host *host);

/* Changes with a higher seq than after, oldest first: lists of gb_rpc_event_fields. now 0: without their ages. */
void gb_rpc_pack_events(gb_pack *out, const gb_lua_log *log, uint64_t after, gb_time now);
extern const gb_rpc_field gb_rpc_event_fields[];

/* Who changes something, what is expected, and when. The generation is stored where the change points at. */
gb_lua_change gb_rpc_read_change(const gb_rpc_call *call, const char *hook, uint64_t *generation);

/* The answer to a change, or why it was refused; path is the parameter that is to blame. */
gb_rpc_outcome gb_rpc_reply_change(gb_rpc_call *call, int status, const char *path);
extern const gb_rpc_field gb_rpc_change_result[];

/* A script that came with a call; all of it borrowed. */
typedef struct gb_rpc_load {
    const char *hook, *name;    /* NULL: all hooks; the script's own */
    const char *source;
    size_t bytes;
} gb_rpc_load;

/* Reads name and source; false when it is too large, and the call has failed. */
bool gb_rpc_read_load(gb_rpc_call *call, gb_rpc_load *load, char name_text[GB_RPC_STRING_MAX + 1]);
/* Starts a check, whose end answers the call: with its report, or by loading the script when the check is content. GB_EUNSUPPORTED
   when nobody can check here, GB_EFULL, GB_ENOMEM. */
int gb_rpc_check_begin(gb_rpc_call *call, const gb_rpc_load *load, bool loads, gb_error *err);
/* Loads it now and answers. warnings: of its check; NULL = it was not checked. */
gb_rpc_outcome gb_rpc_load_policy(gb_rpc_call *call, const gb_rpc_load *load, const json_t *warnings);

/* Fields of a map: GB_RPC_COMPARISON_FIELDS, and both sides under their names. */
void gb_rpc_pack_comparison(gb_pack_list *map, const gb_lua_comparison *c, gb_hook hook, const char *a, const char *b);
extern const gb_rpc_field gb_rpc_side_fields[];
void gb_rpc_pack_shadow(gb_pack *out, const gb_lua_shadow *shadow);
extern const gb_rpc_field gb_rpc_shadow_fields[];

#define GB_RPC_COMPARISON_FIELDS \
    {.name = "hook", .type = GB_RPC_STRING, .doc = "its name"}, {.name = "decisions", .type = GB_RPC_INT, .doc = "that were compared"}, \
        {.name = "agreed", .type = GB_RPC_INT, .doc = "same engine, or everyone at the same place in the line"}, \
    { \
        .name = "agreement_percent", .type = GB_RPC_FLOAT, .optional = true, .doc = "missing without decisions" \
    }

#define GB_RPC_EXPECTED_FIELD \
    { \
        .name = "expected_generation", .type = GB_RPC_INT, .low = 0, .high = INT64_MAX, \
        .doc = "refuse with VERSION_CONFLICT when it is another by now" \
    }

#define GB_RPC_POLICY_FIELDS \
    {.name = "version", .type = GB_RPC_INT, .doc = "1, 2 ... in order of loading; 0 = the C built-in"}, \
        {.name = "name", .type = GB_RPC_STRING, .doc = "several versions may have one name"}, \
        {.name = "sha256", .type = GB_RPC_STRING, .doc = "of the source"}, \
        {.name = "hooks", .type = GB_RPC_STRING, .shape = GB_RPC_LIST, .doc = "that the script has"}, \
        {.name = "active", .type = GB_RPC_STRING, .shape = GB_RPC_LIST, .doc = "for which it decides now"}, \
        {.name = "state", .type = GB_RPC_STRING, .doc = "\"ready\", \"shadow\", \"active\", \"standby\", \"retired\" or \"quarantined\""}, \
    { \
        .name = "builtin", .type = GB_RPC_BOOL, .doc = "shipped with gimbal" \
    }

#define GB_RPC_ACTIVE_FIELD \
    { \
        .name = "active", .type = GB_RPC_INT, .shape = GB_RPC_BY_NAME, .doc = "version that decides for each hook; 0 = the C built-in" \
    }

#endif
