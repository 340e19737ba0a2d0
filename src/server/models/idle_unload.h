/* Keeper: the thread that looks at the models now and then: it unloads what is idle or wanted away, and counts what
 * happens in a second. */
#ifndef SRV_IDLE_UNLOAD_H
#define SRV_IDLE_UNLOAD_H

/* Runs until the models stop. A thread's function. */
void *srv_idle_unload_run(void *models);

#endif
