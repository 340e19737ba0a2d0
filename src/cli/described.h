/* Described: options that describe another machine, shared by plan and pull. */
#ifndef MO_CLI_DESCRIBED_H
#define MO_CLI_DESCRIBED_H

/* Entries of a table of options; extra: a mo_plan_extra. */
#define CLI_DESCRIBED_OPTIONS(extra)                                                                         \
    {"gpu",                                                                                                  \
     0,                                                                                                      \
     CLI_TEXT,                                                                                               \
     "NAME",                                                                                                 \
     "plan for this GPU, such as rtx-4070, which need not be here; list: print the names (default: this "    \
     "machine's; if it has none, --vram chooses one)",                                                       \
     &(extra).gpu,                                                                                           \
     0,                                                                                                      \
     0},                                                                                                     \
        {"cpu",                                                                                              \
         0,                                                                                                  \
         CLI_TEXT,                                                                                           \
         "MEMORY",                                                                                           \
         "plan for this memory: ddr3, ddr4, ddr5, lpddr5x, ddr4-quad, ddr5-quad, ddr4-server, "              \
         "ddr5-server, or its rate, such as 60GB/s (default: as probed; with a described GPU otherwise "     \
         "ddr4)",                                                                                            \
         &(extra).cpu,                                                                                       \
         0,                                                                                                  \
         0},                                                                                                 \
    {                                                                                                        \
        "disk", 0, CLI_TEXT, "DISK",                                                                         \
            "plan for this disk: hdd, sata, nvme-3, nvme-4, nvme-5, or its rate, such as 5GB/s (default: "   \
            "as probed; with a described GPU otherwise nvme-3)",                                             \
            &(extra).disk, 0, 0                                                                              \
    }

#endif
