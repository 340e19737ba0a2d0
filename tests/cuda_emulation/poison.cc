#include "poison.h"

#include <elf.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <vector>

#include "emulated.h"

/* Symbols of thread-local variables hold offsets; this one says what they count from. */
extern "C" {
extern __thread char mo_poison_anchor;
__thread char mo_poison_anchor;
}

namespace
{

struct Range {
    intptr_t offset; /* from the anchor */
    size_t bytes;
};

[[noreturn]] void unreadable(const char *what)
{
    fprintf(stderr, "emulation: /proc/self/exe: %s; shared memory cannot be poisoned\n", what);
    abort();
}

/* A variable inside a function is mangled as _ZZ<function>E<name>; the emulation has no other such thread-locals. */
std::vector<Range> find_in(const uint8_t *file)
{
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)file;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(file + head->e_shoff);
    std::vector<Range> found;
    intptr_t anchor = -1;
    for (int s = 0; s < head->e_shnum; s++) {
        if (sections[s].sh_type != SHT_SYMTAB) {
            continue;
        }
        const Elf64_Sym *symbols = (const Elf64_Sym *)(file + sections[s].sh_offset);
        const char *names = (const char *)file + sections[sections[s].sh_link].sh_offset;
        for (size_t i = 0; i < sections[s].sh_size / sizeof *symbols; i++) {
            const char *name = names + symbols[i].st_name;
            if (ELF64_ST_TYPE(symbols[i].st_info) != STT_TLS || symbols[i].st_shndx == SHN_UNDEF) {
                continue;
            }
            if (strcmp(name, "mo_poison_anchor") == 0) {
                anchor = (intptr_t)symbols[i].st_value;
            } else if (strncmp(name, "_ZZ", 3) == 0) {
                found.push_back(Range{(intptr_t)symbols[i].st_value, symbols[i].st_size});
            }
        }
    }
    if (anchor < 0) {
        unreadable("no symbol table");
    }
    for (Range &range : found) {
        range.offset -= anchor;
    }
    return found;
}

std::vector<Range> find()
{
    const int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    struct stat about;
    if (fd < 0 || fstat(fd, &about) != 0) {
        unreadable("it does not open");
    }
    void *file = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (file == MAP_FAILED) {
        unreadable("it cannot be mapped");
    }
    std::vector<Range> found = find_in((const uint8_t *)file);
    munmap(file, (size_t)about.st_size);
    return found;
}

} // namespace

void mo_poison_fill(void *memory, size_t bytes)
{
    const uint32_t word = MO_EMULATED_POISON;
    uint8_t *to = (uint8_t *)memory;
    size_t done = 0;
    for (; bytes - done >= sizeof word; done += sizeof word) {
        memcpy(to + done, &word, sizeof word);
    }
    memcpy(to + done, &word, bytes - done);
}

void mo_poison_shared()
{
    static const std::vector<Range> ranges = find();
    const uintptr_t anchor = (uintptr_t)&mo_poison_anchor;
    for (const Range &range : ranges) {
        mo_poison_fill((void *)(anchor + (uintptr_t)range.offset), range.bytes);
    }
}
