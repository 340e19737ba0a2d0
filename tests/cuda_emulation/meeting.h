/* A kernel whose blocks may wait for each other: they run side by side. */
#ifndef MO_EMULATION_MEETING_H
#define MO_EMULATION_MEETING_H

/* Makes itself known before main(), as the kernel does. */
struct mo_emulated_meeting {
    const char *name;
    const mo_emulated_meeting *next;
    explicit mo_emulated_meeting(const char *kernel_name);
};

#endif
