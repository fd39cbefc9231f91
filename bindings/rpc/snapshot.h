/* Results that are both the answer of a method and the data of a topic. Each writes one map. */
#ifndef GB_RPC_SNAPSHOT_H
#define GB_RPC_SNAPSHOT_H

#include "bindings/rpc/method.h"

void gb_rpc_pack_stats(gb_rpc_service *service, gb_pack *out);
void gb_rpc_pack_engines(gb_rpc_service *service, gb_pack *out);
void gb_rpc_pack_experts(gb_rpc_service *service, gb_pack *out);      /* all layers, the default window */
void gb_rpc_pack_placement(gb_rpc_service *service, gb_pack *out);
void gb_rpc_pack_policies(gb_rpc_service *service, gb_pack *out);     /* and the latest changes, each with who and what */

#endif
