/* Keeper: the thread that looks at the models now and then: it unloads what is idle or wanted away, and counts what
 * happens in a second. */
#ifndef SRV_KEEPER_H
#define SRV_KEEPER_H

/* Runs until the models stop. A thread's function. */
void *srv_keeper_run(void *models);

#endif
