/* Subscriptions: snapshots of topics, sent when they changed and no more often than the subscriber wants. With ack, the
   next is sent only after the last was acknowledged; what was left out in between is counted in `skipped`, so a slow
   subscriber sees the newest value and never a queue. */
#ifndef GB_RPC_SUBSCRIBE_H
#define GB_RPC_SUBSCRIBE_H

#include "bindings/rpc/method.h"

enum {
    GB_RPC_SUBSCRIPTIONS_MAX = 16,       /* of one connection */
    GB_RPC_INTERVAL_MIN_MS = 10,
    GB_RPC_INTERVAL_MS = 1000,           /* unless the subscriber says otherwise */
};

typedef struct gb_rpc_subscription gb_rpc_subscription;

void gb_rpc_subscription_free_all(gb_rpc_conn *conn);
void gb_rpc_subscription_tick(gb_rpc_conn *conn, gb_time now);
bool gb_rpc_subscription_ack(gb_rpc_conn *conn, uint64_t id, gb_time now);    /* false: no such subscription */

#endif
