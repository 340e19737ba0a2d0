/* Expert map: where every expert of the loaded models is and what became of it since the last look, small enough to be sent four
 * times a second. */
#ifndef SRV_EXPERT_MAP_H
#define SRV_EXPERT_MAP_H

#include "server/common/writer.h"
#include "server/models/models.h"

/* What was counted at the last look. Used by one thread. */
typedef struct srv_expert_map srv_expert_map;

srv_expert_map *srv_expert_map_open(void); /* NULL: out of memory */
void srv_expert_map_close(srv_expert_map *map);

/* Looks, and appends an object of JSON (docs/server.md). `fresh`: nothing has been used since. */
void srv_expert_map_write(srv_expert_map *map, srv_models *models, bool fresh, srv_writer *w);

/* One letter for each place: '0' disk, '1' RAM, '2' device. */
char srv_expert_map_letter(mo_expert_place location);

/* More experts of a layer than any model has. */
enum { SRV_LAYER_EXPERTS = 4096 };

#endif
