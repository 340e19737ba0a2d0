/* Pictures: the images of a request, from the client's encoding to the model's input. Each has a part
 * {"type":"image"} in the conversation's messages, in the same order. */
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
    bool accepted;            /* the model accepts images; otherwise each is rejected */
    srv_address_rule fetched; /* URLs with these addresses are fetched; NULL: none */
    double fetch_until;       /* deadline on the clock; 0: nothing fetched yet */
    size_t fetched_bytes;     /* total size of fetched images */
    srv_picture *list;
    mo_image **images; /* [count] after opening */
    size_t count, space;
    size_t text; /* bytes of base64 received */
} srv_pictures;

void srv_pictures_free(srv_pictures *p);

/* Adds a file's bytes from base64, padded or not, in either alphabet; errors name `part`. Returns false with
 * a fault. */
bool srv_pictures_add(srv_pictures *p, const srv_field *part, mo_text base64);

/* The same from "data:image/...;base64,..." or plain base64. Other URLs are rejected. */
bool srv_pictures_add_data(srv_pictures *p, const srv_field *part, mo_text url);

/* The same, and from http or https URLs if fetching is enabled. */
bool srv_pictures_add_url(srv_pictures *p, const srv_field *part, mo_text url);

/* The same, only from http or https URLs. */
bool srv_pictures_add_remote(srv_pictures *p, const srv_field *part, mo_text url);

/* Decodes `count` images of one prompt starting at `from`, as long as their rows fit into the context.
 * Returns false with a fault that names the part. */
bool srv_pictures_open(srv_pictures *p, size_t from, size_t count, mo_model *model, int64_t context,
                       srv_fault *fault);

#endif
