/* Which copy of an expert serves which source. A route is one slot, or two with a share of the token hashes each; these
   functions fill the routes of a placement whose slots are set. */
#ifndef GB_MOE_ROUTE_H
#define GB_MOE_ROUTE_H

#include "core/moe/score.h"

/* Every source goes to the copy with the cheapest link; equal links: copies in turn over the sources, lower slots first. */
void gb_route_nearest(gb_placement *placement, uint32_t layer, const gb_links *links);

/* Copies share an expert's traffic evenly: the sources' traffic is laid end to end and cut into equal parts. A source that
   spans more than two parts keeps its two largest. */
void gb_route_evenly(gb_placement *placement, uint32_t layer, const double *flow);

/* From amounts[sources][experts][ranks] (what each copy should serve): the two largest per source and expert. Ranks without
   a copy must have 0. Sources without traffic go to the nearest copy. */
void gb_route_amounts(gb_placement *placement, uint32_t layer, const gb_links *links, const double *amounts);

#endif
