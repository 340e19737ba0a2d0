/* Pictures: those of a request, from what clients write to what a model reads. A conversation's messages have a part
 * {"type":"image"} for each, in the same order. */
#ifndef SRV_PICTURES_H
#define SRV_PICTURES_H

#include "moraine_server.h"
#include "server/common/field.h"
#include "server/requests/fetch.h"

enum { SRV_PICTURES_MAX = 64, SRV_PICTURE_BYTES = 20 << 20 };

typedef struct srv_picture {
    uint8_t *bytes; /* of the file, until it is opened */
    size_t size;
    mo_image *image; /* NULL: not opened yet */
    char path[160];  /* of its part of the request */
} srv_picture;

typedef struct srv_pictures {
    bool accepted;            /* the model reads some; otherwise each is refused */
    srv_address_rule fetched; /* those of these addresses are fetched from other servers; NULL: none are */
    double fetch_until;       /* by the clock; 0: none was fetched yet */
    size_t fetched_bytes;     /* of those that were */
    srv_picture *list;
    mo_image **images; /* [count] once they are opened */
    size_t count, space;
    size_t text; /* bytes of base64 that were taken */
} srv_pictures;

void srv_pictures_free(srv_pictures *p);

/* Takes the bytes of a file as base64, with or without padding and in either alphabet; `part` is what errors name. False with a fault. */
bool srv_pictures_add(srv_pictures *p, const srv_field *part, mo_text base64);

/* The same of "data:image/...;base64,..." or base64 alone. Other URLs are refused. */
bool srv_pictures_add_data(srv_pictures *p, const srv_field *part, mo_text url);

/* The same of those or, where pictures are fetched, of an address of http or https. */
bool srv_pictures_add_url(srv_pictures *p, const srv_field *part, mo_text url);

/* The same of an address of http or https alone. */
bool srv_pictures_add_remote(srv_pictures *p, const srv_field *part, mo_text url);

/* Decodes those from the one at `from` on, which are of one prompt, for the model, as far as their rows fit into a context. False with a fault
 * that names the part. */
bool srv_pictures_open(srv_pictures *p, size_t from, size_t count, mo_model *model, int64_t context,
                       srv_fault *fault);

#endif
