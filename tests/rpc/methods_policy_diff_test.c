#include <stdlib.h>

#include "bindings/rpc/errors.h"
#include "tests/check.h"
#include "tests/rpc/fixture.h"

#define LAST_ENGINE "local p = {api = 1, name = 'last'}\\nfunction p.select_engine(request, engines) return engines.n - 1 end\\nreturn p"

static void two_versions_are_compared_on_the_servers_journal(void)
{
    char dir[] = "/tmp/gimbal_diff_XXXXXX", path[64], command[64], params[96];
    fixture f;
    peer p;
    gb_error err = {{0}};
    CHECK(mkdtemp(dir) != NULL);
    snprintf(path, sizeof path, "%s/journal", dir);
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    json_t *r = peer_call(&p, "policy_load", "{\"source\": \"" LAST_ENGINE "\"}");
    int64_t version = json_int(r, "version");
    json_decref(r);
    peer_call_fails(&p, "policy_diff", "{\"a\": 0, \"b\": 0}", GB_RPC_NOT_FOUND, NULL, "--journal");
    CHECK_EQ(gb_lua_host_open_journal(f.instance.policies, path, 1 << 20, &err), 0);
    for (int i = 0; i < 6; i++) json_decref(peer_call(&p, "generate", "{\"prompt\": \"x\", \"stream\": true}"));
    snprintf(params, sizeof params, "{\"a\": 0, \"b\": %lld, \"most\": 4}", (long long)version);
    r = peer_call(&p, "policy_diff", params);
    const json_t *select = json_array_get(json_object_get(r, "hooks"), 0);
    CHECK_EQ(json_int(r, "decisions"), 4);
    CHECK_STR(json_text(select, "hook"), "select_engine");
    CHECK_EQ(json_int(select, "agreed"), 2);    /* ordered dispatch takes the last engine every other time */
    CHECK_EQ(json_array_size(json_object_get(r, "differences")), 2);
    CHECK_EQ(json_int(json_array_get(json_object_get(r, "differences"), 0), "b"), 1);
    json_decref(r);
    r = peer_call(&p, "policy_status", "{}");
    CHECK_EQ(json_int(json_object_get(r, "journal"), "written"), 6);
    json_decref(r);
    peer_call_fails(&p, "policy_diff", "{\"a\": 0, \"b\": 999}", GB_RPC_NOT_FOUND, "b", "no policy version 999");
    peer_close(&p);
    fixture_close(&f);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    CHECK_EQ(system(command), 0);
}

TESTS(TEST(two_versions_are_compared_on_the_servers_journal))
