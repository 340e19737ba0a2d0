/* Format: see format.h. */
#include "server/format.h"

void srv_format_free(srv_format *f)
{
    json_decref(f->own_schema);
    *f = (srv_format){0};
}

static bool take(const srv_place *f, srv_format *out)
{
    if (srv_format_asked(out)) {
        return srv_wrong(f, "cannot be given together with %s", out->param);
    }
    srv_place_path(f, out->param, sizeof out->param);
    return true;
}

static bool take_schema(const srv_place *f, srv_format *out)
{
    if (!f->value) {
        return srv_missing(f);
    }
    if (!json_is_object(f->value) && !json_is_boolean(f->value)) {
        return srv_wrong_type(f, "a JSON schema");
    }
    if (!take(f, out)) {
        return false;
    }
    out->schema = f->value;
    return true;
}

/* Any JSON object. */
static bool take_object(const srv_place *f, srv_format *out)
{
    if (!take(f, out)) {
        return false;
    }
    out->schema = out->own_schema = json_pack("{s:s}", "type", "object");
    return out->schema || srv_fault_set(f->fault, SRV_FAULT_SERVER, NULL, "memory ran out");
}

/* {"type":"text"|"json_object"|"json_schema",...}; the schema is in a member of its own, or beside the type. */
static bool read_typed(const srv_place *f, srv_format *out)
{
    const srv_place type = srv_member(f, "type");
    mo_text kind = {NULL, 0};
    if (!srv_is_object(*f)) {
        return false;
    }
    if (!f->value) {
        return true;
    }
    if (!type.value) {
        return srv_missing(&type);
    }
    if (!srv_read_text(type, &kind)) {
        return false;
    }
    const srv_place beside = srv_member(f, "schema"), inner = srv_member(f, "json_schema");
    if (srv_text_is(kind, "text")) {
        return true;
    }
    if (srv_text_is(kind, "json_object")) {
        return beside.value ? take_schema(&beside, out) : take_object(f, out);
    }
    if (srv_text_is(kind, "json_schema")) {
        const srv_place *holder = inner.value || !beside.value ? &inner : f;
        const srv_place schema = srv_member(holder, "schema");
        if (!holder->value) {
            return srv_missing(holder);
        }
        return srv_is_object(*holder) && srv_read_bool(srv_member(holder, "strict"), &out->strict) &&
               take_schema(&schema, out);
    }
    return srv_wrong(&type, "must be text, json_object or json_schema, not %.64s", kind.data);
}

static bool read_ollama(const srv_place *f, srv_format *out)
{
    mo_text kind = {"", 0};
    if (json_is_string(f->value)) {
        srv_read_text(*f, &kind);
        return kind.length == 0 ||
               (srv_text_is(kind, "json") ? take_object(f, out) : srv_wrong(f, "must be json or a schema"));
    }
    return !f->value || take_schema(f, out);
}

bool srv_format_read(const srv_place *root, srv_dialect dialect, srv_format *out)
{
    const srv_place format = srv_member(root, "response_format"), schema = srv_member(root, "json_schema");
    const srv_place guided = srv_member(root, "guided_json"),
                    structured = srv_member(root, "structured_outputs");
    const srv_place grammar = srv_member(root, "grammar");
    const srv_place text = srv_member(root, "text"), text_format = srv_member(&text, "format");
    const srv_place output = srv_member(root, "output_config"), beta = srv_member(root, "output_format");
    const srv_place output_format = srv_member(&output, "format"), ollama = srv_member(root, "format");
    const srv_place structured_json = srv_member(&structured, "json");
    switch (dialect) {
    case SRV_DIALECT_RESPONSES: return srv_is_object(text) && read_typed(&text_format, out);
    case SRV_DIALECT_ANTHROPIC:
        return srv_is_object(output) && read_typed(&output_format, out) && read_typed(&beta, out);
    case SRV_DIALECT_OLLAMA: return read_ollama(&ollama, out);
    default: break;
    }
    if (!read_typed(&format, out) || (schema.value && !take_schema(&schema, out)) ||
        (guided.value && !take_schema(&guided, out)) || !srv_is_object(structured) ||
        (structured_json.value && !take_schema(&structured_json, out))) {
        return false;
    }
    mo_text gbnf = {NULL, 0};
    if (!srv_read_text(grammar, &gbnf) || (gbnf.length > 0 && !take(&grammar, out))) {
        return false;
    }
    if (gbnf.length > 0) {
        out->grammar = gbnf;
    }
    return true;
}
