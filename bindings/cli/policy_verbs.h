/* gimbal policy VERB: one file a group of verbs, their flags and their table in policy.c. */
#ifndef GB_CLI_POLICY_VERBS_H
#define GB_CLI_POLICY_VERBS_H

#include "bindings/cli/remote.h"

typedef struct gb_policy_flags {
    gb_remote_flags remote;
    const char *hook, *name, *policy, *output, *replay, *on, *spec;
    int64_t expected_generation, after, most, fault, engines;
    double ratio;
    bool activate, force, json;
} gb_policy_flags;

/* One verb. It either talks to a running server, or needs none and returns the exit code itself; one that can do both needs none when
   --on names a file. */
typedef struct gb_policy_verb {
    const char *name, *arguments, *summary;
    uint32_t n_words;    /* behind it */
    int (*ask)(gb_remote *remote, const gb_args *args, gb_error *err);
    int (*work)(const gb_args *args);
} gb_policy_verb;

/* policy_look.c */
int gb_policy_list(gb_remote *remote, const gb_args *args, gb_error *err);
int gb_policy_get(gb_remote *remote, const gb_args *args, gb_error *err);
int gb_policy_status(gb_remote *remote, const gb_args *args, gb_error *err);
int gb_policy_print_seats(gb_remote *remote, gb_error *err);    /* who decides now */

/* policy_log.c */
int gb_policy_log(gb_remote *remote, const gb_args *args, gb_error *err);
int gb_policy_decisions(gb_remote *remote, const gb_args *args, gb_error *err);

/* policy_change.c */
int gb_policy_load(gb_remote *remote, const gb_args *args, gb_error *err);
int gb_policy_activate(gb_remote *remote, const gb_args *args, gb_error *err);
int gb_policy_rollback(gb_remote *remote, const gb_args *args, gb_error *err);
int gb_policy_builtin(gb_remote *remote, const gb_args *args, gb_error *err);
int gb_policy_set(gb_remote *remote, const gb_args *args, gb_error *err);

/* policy_shadow.c */
int  gb_policy_shadow(gb_remote *remote, const gb_args *args, gb_error *err);
void gb_policy_print_comparison(const json_t *comparison, const char *a, const char *b);    /* the keys of its sides */

/* policy_diff.c */
int gb_policy_diff(gb_remote *remote, const gb_args *args, gb_error *err);
int gb_policy_diff_journal(const gb_args *args);    /* with --on: without a server */

/* The newest version of a name, or the number itself. GB_EABORTED with the nearest name when nothing has it. */
int gb_policy_find_version(gb_remote *remote, const char *word, json_int_t *version, gb_error *err);

/* Parts of answers. A missing text is "". */
const char *gb_policy_text(const json_t *object, const char *key);
json_int_t  gb_policy_int(const json_t *object, const char *key);
void        gb_policy_print_json(const json_t *result);
enum { GB_POLICY_AGO_BYTES = 24 };
const char *gb_policy_ago(char out[GB_POLICY_AGO_BYTES], const json_t *record);    /* of its age_ms: "3.1 s"; "-" without */

#endif
