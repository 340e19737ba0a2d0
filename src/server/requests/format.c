/* Format: see format.h. */
#include "server/requests/format.h"

void srv_format_free(srv_format *f)
{
    json_decref(f->own_schema);
    srv_writer_free(&f->own_grammar);
    *f = (srv_format){0};
}

static bool take(const srv_field *f, srv_format *out)
{
    if (srv_format_asked(out)) {
        return srv_wrong(f, "cannot be combined with %s", out->param);
    }
    srv_field_path(f, out->param, sizeof out->param);
    return true;
}

static bool take_schema(const srv_field *f, srv_format *out)
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
static bool take_object(const srv_field *f, srv_format *out)
{
    if (!take(f, out)) {
        return false;
    }
    out->schema = out->own_schema = json_pack("{s:s}", "type", "object");
    return out->schema || srv_fault_set(f->fault, SRV_FAULT_SERVER, NULL, "out of memory");
}

/* {"type":"text"|"json_object"|"json_schema",...}; the schema is in a member of its own, or beside the type. */
static bool read_typed(const srv_field *f, srv_format *out)
{
    const srv_field type = srv_member(f, "type");
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
    const srv_field beside = srv_member(f, "schema"), inner = srv_member(f, "json_schema");
    if (srv_text_is(kind, "text")) {
        return true;
    }
    if (srv_text_is(kind, "json_object")) {
        return beside.value ? take_schema(&beside, out) : take_object(f, out);
    }
    if (srv_text_is(kind, "json_schema")) {
        const srv_field *holder = inner.value || !beside.value ? &inner : f;
        const srv_field schema = srv_member(holder, "schema");
        if (!holder->value) {
            return srv_missing(holder);
        }
        return srv_is_object(*holder) && srv_read_bool(srv_member(holder, "strict"), &out->strict) &&
               take_schema(&schema, out);
    }
    return srv_wrong(&type, "must be text, json_object or json_schema, not %.64s", kind.data);
}

/* "json", a schema, or one of the typed forms: Ollama's. */
static bool read_plain(const srv_field *f, srv_format *out)
{
    mo_text kind = {"", 0};
    if (json_is_string(f->value)) {
        srv_read_text(*f, &kind);
        return kind.length == 0 ||
               (srv_text_is(kind, "json") ? take_object(f, out) : srv_wrong(f, "must be json or a schema"));
    }
    return !f->value || take_schema(f, out);
}

static bool read_grammar(const srv_field *f, srv_format *out)
{
    mo_text gbnf = {NULL, 0};
    if (!srv_read_text(*f, &gbnf) || (gbnf.length > 0 && !take(f, out))) {
        return false;
    }
    if (gbnf.length > 0) {
        out->grammar = gbnf;
    }
    return true;
}

/* A text as GBNF writes it. */
static void put_literal(srv_writer *w, mo_text text)
{
    srv_put_literal(w, "\"");
    for (size_t i = 0; i < text.length; i++) {
        const char c = text.data[i];
        if (c == '"' || c == '\\') {
            srv_put_literal(w, "\\");
        }
        srv_put(w, c == '\n' ? "\\n" : c == '\r' ? "\\r" : &c, c == '\n' || c == '\r' ? 2 : 1);
    }
    srv_put_literal(w, "\"");
}

/* A list of texts, of which the answer is one. */
static bool read_texts(const srv_field *f, srv_format *out)
{
    if (!f->value) {
        return true;
    }
    if (!srv_is_list(*f) || !take(f, out)) {
        return false;
    }
    if (srv_count(f) == 0) {
        return srv_wrong(f, "must have at least one string");
    }
    srv_put_literal(&out->own_grammar, "root ::= ");
    for (size_t i = 0; i < srv_count(f); i++) {
        const srv_field element = srv_element(f, i);
        mo_text text = {"", 0};
        if (!element.value || !srv_read_text(element, &text)) {
            return srv_wrong_type(&element, "a string");
        }
        srv_puts(&out->own_grammar, i > 0 ? " | " : "");
        put_literal(&out->own_grammar, text);
    }
    out->grammar = (mo_text){out->own_grammar.data, out->own_grammar.length};
    return !out->own_grammar.failed || srv_fault_set(f->fault, SRV_FAULT_SERVER, NULL, "out of memory");
}

static bool refuse(const srv_field *f)
{
    return !f->value || srv_wrong(f, "is not supported; use a grammar, or a schema with a pattern");
}

/* The forms of vLLM, under either of their names. */
static bool read_guided(const srv_field *root, srv_format *out)
{
    const srv_field all = srv_member(root, "structured_outputs");
    const srv_field old[] = {srv_member(root, "guided_json"), srv_member(root, "guided_choice"),
                             srv_member(root, "guided_grammar"), srv_member(root, "guided_regex")};
    const srv_field new[] = {srv_member(&all, "json"), srv_member(&all, "choice"),
                             srv_member(&all, "grammar"), srv_member(&all, "regex")};
    const srv_field tags = srv_member(&all, "structural_tag"), object = srv_member(&all, "json_object");
    bool any = false;
    if (!srv_is_object(all) || !srv_read_bool(object, &any) || (any && !take_object(&object, out))) {
        return false;
    }
    return (!old[0].value || take_schema(&old[0], out)) && (!new[0].value || take_schema(&new[0], out)) &&
           read_texts(&old[1], out) && read_texts(&new[1], out) && read_grammar(&old[2], out) &&
           read_grammar(&new[2], out) && refuse(&old[3]) && refuse(&new[3]) && refuse(&tags);
}

bool srv_format_read(const srv_field *root, srv_dialect dialect, srv_format *out)
{
    const srv_field format = srv_member(root, "response_format"), schema = srv_member(root, "json_schema");
    const srv_field text = srv_member(root, "text"), config = srv_member(root, "output_config");
    const srv_field text_format = srv_member(&text, "format"), config_format = srv_member(&config, "format");
    const srv_field beta = srv_member(root, "output_format"), plain = srv_member(root, "format");
    const srv_field grammar = srv_member(root, "grammar");
    if ((dialect == SRV_DIALECT_RESPONSES && !srv_is_object(text)) ||
        (dialect == SRV_DIALECT_ANTHROPIC && !srv_is_object(config))) {
        return false;
    }
    return read_typed(&format, out) && read_typed(&text_format, out) && read_typed(&config_format, out) &&
           read_typed(&beta, out) && read_plain(&plain, out) &&
           (!schema.value || take_schema(&schema, out)) && read_guided(root, out) &&
           read_grammar(&grammar, out);
}
