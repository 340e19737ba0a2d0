/* Expert map: the location of every expert of the loaded models and its use since the last call, small enough
 * to be sent four times a second. */
#ifndef SRV_EXPERT_MAP_H
#define SRV_EXPERT_MAP_H

#include "server/common/writer.h"
#include "server/models/models.h"

/* The counts at the last call. Used by one thread. */
typedef struct srv_expert_map srv_expert_map;

srv_expert_map *srv_expert_map_open(void); /* NULL: out of memory */
void srv_expert_map_close(srv_expert_map *map);

/* Appends a JSON object (docs/server.md). `fresh`: report no use since the last call. */
void srv_expert_map_write(srv_expert_map *map, srv_models *models, bool fresh, srv_writer *w);

/* Letter of a location: '0' disk, '1' RAM, '2' device. */
char srv_expert_map_letter(mo_expert_place location);

/* More experts per layer than any model has. */
enum { SRV_LAYER_EXPERTS = 4096 };

#endif
