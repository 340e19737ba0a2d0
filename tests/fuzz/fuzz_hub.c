/* Names of models as people type them, and lists of files as hubs send them. Whatever comes through can be kept: no path leads
 * out of the store. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "hub/label.h"
#include "hub/listing.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_path(const char *path)
{
    if (path[0] == '/' || path[0] == '.' || strstr(path, "/.") || strstr(path, "//") || strchr(path, '\\')) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mo_error err;
    hub_reference r;
    hub_listing listing = {0};
    const hub_choice *choice;
    char *text = malloc(size + 1);
    if (!text) {
        return 0;
    }
    memcpy(text, data, size);
    text[size] = '\0';
    if (hub_reference_parse(text, "http://hub.example:81", &r, &err) == MO_OK) {
        check_path(r.owner);
        check_path(r.repo);
        check_path(r.file[0] ? r.file : "x");
    }
    if (hub_listing_add(&listing, text, size, &err) == MO_OK && hub_listing_finish(&listing, &err) == MO_OK) {
        for (int i = 0; i < listing.count; i++) {
            check_path(listing.choices[i].files[0].path);
        }
        hub_reference_parse("owner/repo", NULL, &r, &err);
        hub_listing_choose(&listing, &r, &choice, &err);
    }
    hub_listing_free(&listing);
    free(text);
    return 0;
}
