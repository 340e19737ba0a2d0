/* Constraint: see constraint.h. */
#include "server/requests/constraint.h"

#include <string.h>

void srv_tools_free(srv_tools *tools)
{
    json_decref(tools->list);
    tools->list = NULL;
}

static bool no_memory(const srv_field *f)
{
    return srv_fault_set(f->fault, SRV_FAULT_SERVER, NULL, "out of memory");
}

/* A name as the grammars of calls and the templates can write it. */
static bool read_name(const srv_field *in, mo_text *name)
{
    const srv_field f = srv_member(in, "name");
    if (!f.value) {
        return srv_missing(&f);
    }
    if (!srv_read_text(f, name)) {
        return false;
    }
    if (name->length == 0 || name->length > 256 || strlen(name->data) != name->length) {
        return srv_wrong(&f, "must have 1 to 256 characters");
    }
    for (size_t i = 0; i < name->length; i++) {
        const unsigned char c = (unsigned char)name->data[i];
        if (c <= ' ' || c == 0x7f || strchr("\"\\<>{}`", c)) {
            return srv_wrong(&f, "must not contain spaces, quotes or brackets");
        }
    }
    return true;
}

/* One function: its name, description and schema, under the names that the dialect has for them. */
static json_t *read_function(const srv_field *in, const char *schema_name)
{
    const srv_field description = srv_member(in, "description"), schema = srv_member(in, schema_name);
    const srv_field strict = srv_member(in, "strict");
    mo_text name = {"", 0}, words = {NULL, 0};
    bool exact = false;
    if (!read_name(in, &name) || !srv_read_text(description, &words) || !srv_is_object(schema) ||
        !srv_read_bool(strict, &exact)) {
        return NULL;
    }
    json_t *function = json_pack("{s:s}", "name", name.data);
    int failed = function ? 0 : -1;
    if (words.data) {
        failed |= json_object_set_new(function, "description", json_stringn(words.data, words.length));
    }
    failed |= schema.value ? json_object_set(function, "parameters", (json_t *)schema.value)
                           : json_object_set_new(function, "parameters",
                                                 json_pack("{s:s,s:{}}", "type", "object", "properties"));
    if (strict.value) {
        failed |= json_object_set_new(function, "strict", json_boolean(exact));
    }
    if (failed) {
        json_decref(function);
        no_memory(in);
        return NULL;
    }
    return json_pack("{s:s,s:o}", "type", "function", "function", function);
}

/* Schemas have a place for examples, which templates show with them. */
static bool add_examples(const srv_field *tool, json_t *read)
{
    const srv_field examples = srv_member(tool, "input_examples");
    if (!srv_is_list(examples)) {
        return false;
    }
    json_t *function = json_object_get(read, "function");
    json_t *schema = srv_count(&examples) > 0 ? json_copy(json_object_get(function, "parameters")) : NULL;
    return srv_count(&examples) == 0 ||
           (schema && json_object_set(schema, "examples", (json_t *)examples.value) == 0 &&
            json_object_set_new(function, "parameters", schema) == 0) ||
           no_memory(tool);
}

/* What the makers' own servers do with tools: search for them, or call them from programs. */
static bool refuse_elsewhere(const srv_field *tool)
{
    const srv_field later = srv_member(tool, "defer_loading"), output = srv_member(tool, "output_schema");
    const srv_field callers = srv_member(tool, "allowed_callers");
    const srv_field detached = srv_member(tool, "async");
    bool deferred = false, async = false;
    if (!srv_read_bool(later, &deferred) || !srv_read_bool(detached, &async) || !srv_is_list(callers)) {
        return false;
    }
    if (async) {
        return srv_wrong(&detached, "is not supported: the next request must have the result; omit it");
    }
    for (size_t i = 0; i < srv_count(&callers); i++) {
        const char *word = json_string_value(json_array_get(callers.value, i));
        if (!word || strcmp(word, "direct") != 0) {
            return srv_wrong(&callers, "only direct calls are supported");
        }
    }
    return deferred
               ? srv_wrong(&later, "there is no search for tools; omit it")
               : !output.value || srv_wrong(&output, "is not supported; describe the output in description");
}

/* One tool; *out stays NULL for one that is left out. */
static bool read_tool(const srv_field *tool, srv_dialect dialect, json_t **out)
{
    if (!json_is_object(tool->value)) {
        return srv_wrong_type(tool, "an object");
    }
    const srv_field type = srv_member(tool, "type");
    mo_text kind = {NULL, 0};
    if (!srv_read_text(type, &kind) || !refuse_elsewhere(tool)) {
        return false;
    }
    if (dialect == SRV_DIALECT_ANTHROPIC) {
        const srv_field schema = srv_member(tool, "input_schema");
        if (kind.data && !srv_text_is(kind, "custom")) {
            return srv_wrong(&type, "tools that run on the server (%.64s) are not supported", kind.data);
        }
        *out = schema.value ? read_function(tool, "input_schema") : NULL;
        return *out ? add_examples(tool, *out) : !schema.value ? srv_missing(&schema) : false;
    }
    if (dialect == SRV_DIALECT_RESPONSES) {
        /* Agents offer tools of their vendor (web search and the like) with their own in every request. Those cannot be
         * served; the answer's list of tools shows which are. */
        if (!kind.data) {
            return srv_missing(&type);
        }
        *out = srv_text_is(kind, "function") ? read_function(tool, "parameters") : NULL;
        return *out || !srv_text_is(kind, "function");
    }
    if (kind.data && !srv_text_is(kind, "function")) {
        return srv_wrong(&type, "must be function");
    }
    const srv_field function = srv_member(tool, "function");
    if (!function.value) {
        return srv_missing(&function);
    }
    if (!srv_is_object(function)) {
        return false;
    }
    *out = read_function(&function, "parameters");
    return *out != NULL;
}

static const char *name_of(const json_t *tool)
{
    return json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
}

static bool known(const srv_tools *tools, const char *name)
{
    size_t i;
    json_t *tool;
    json_array_foreach(tools->list, i, tool)
    {
        if (strcmp(name_of(tool), name) == 0) {
            return true;
        }
    }
    return false;
}

/* Takes the list over; an empty one is none. */
static void set_list(srv_tools *out, json_t *list)
{
    json_decref(out->list);
    out->list = list;
    if (json_array_size(list) == 0) {
        srv_tools_free(out);
    }
}

static bool read_list(const srv_field *f, srv_dialect dialect, srv_tools *out)
{
    if (!srv_is_list(*f)) {
        return false;
    }
    if (srv_count(f) > SRV_TOOLS_MAX) {
        return srv_wrong(f, "has more than %d tools", SRV_TOOLS_MAX);
    }
    json_t *names = json_object(), *list = json_array();
    bool good = names && list ? true : no_memory(f);
    for (size_t i = 0; i < srv_count(f) && good; i++) {
        const srv_field tool = srv_element(f, i);
        json_t *read = NULL;
        good = read_tool(&tool, dialect, &read);
        if (good && read && json_object_get(names, name_of(read))) {
            good = srv_wrong(&tool, "two tools are named %s", name_of(read));
        }
        if (good && read &&
            (json_object_set_new(names, name_of(read), json_true()) || json_array_append(list, read))) {
            good = no_memory(f);
        }
        json_decref(read);
    }
    json_decref(names);
    set_list(out, list);
    return good;
}

/* ---- Which of them ---- */

static bool take_word(const srv_field *f, mo_text word, srv_tools *out)
{
    static const struct {
        const char *word;
        srv_calling calling;
    } words[] = {{"auto", SRV_CALLING_AUTO},
                 {"none", SRV_CALLING_NONE},
                 {"required", SRV_CALLING_REQUIRED},
                 {"any", SRV_CALLING_REQUIRED}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (srv_text_is(word, words[i].word)) {
            out->calling = words[i].calling;
            return true;
        }
    }
    return srv_wrong(f, "must be auto, none, required, or name a function");
}

static bool take_name(const srv_field *in, srv_tools *out)
{
    const srv_field f = srv_member(in, "name");
    mo_text name = {NULL, 0};
    if (!f.value) {
        return srv_missing(&f);
    }
    if (!srv_read_text(f, &name)) {
        return false;
    }
    if (!known(out, name.data)) {
        return srv_wrong(&f, "there is no tool named %.128s", name.data);
    }
    out->calling = SRV_CALLING_NAMED;
    out->name = name.data;
    return true;
}

/* {"type":"allowed_tools","mode","tools"}: those that are not named are taken off the list of what may be called. */
static bool take_allowed(const srv_field *choice, srv_dialect dialect, srv_tools *out)
{
    const srv_field inner = srv_member(choice, "allowed_tools");
    const srv_field *in = inner.value ? &inner : choice;
    const srv_field list = srv_member(in, "tools"), mode = srv_member(in, "mode");
    mo_text word = {"auto", 4};
    if (!list.value) {
        return srv_missing(&list);
    }
    if (!srv_is_list(list) || !srv_read_text(mode, &word) || !take_word(&mode, word, out)) {
        return false;
    }
    json_t *kept = json_array();
    bool good = kept ? true : no_memory(choice);
    for (size_t i = 0; i < srv_count(&list) && good; i++) {
        const srv_field element = srv_element(&list, i), function = srv_member(&element, "function");
        const srv_field name =
            srv_member(dialect == SRV_DIALECT_RESPONSES || !function.value ? &element : &function, "name");
        mo_text text = {"", 0};
        good = name.value ? srv_read_text(name, &text) : srv_missing(&name);
        if (good && !known(out, text.data)) {
            good = srv_wrong(&name, "there is no tool named %.128s", text.data);
        }
        size_t k;
        json_t *tool;
        json_array_foreach(out->list, k, tool)
        {
            if (good && strcmp(name_of(tool), text.data) == 0 && json_array_append(kept, tool)) {
                good = no_memory(choice);
            }
        }
    }
    if (good) {
        set_list(out, kept);
    } else {
        json_decref(kept);
    }
    return good;
}

static bool read_choice(const srv_field *f, srv_dialect dialect, srv_tools *out)
{
    if (!f->value) {
        return true;
    }
    mo_text word = {NULL, 0};
    if (json_is_string(f->value)) {
        srv_read_text(*f, &word);
        return take_word(f, word, out);
    }
    if (!json_is_object(f->value)) {
        return srv_wrong_type(f, "a string or an object");
    }
    const srv_field type = srv_member(f, "type"), function = srv_member(f, "function");
    if (!type.value) {
        return srv_missing(&type);
    }
    if (!srv_read_text(type, &word)) {
        return false;
    }
    if (srv_text_is(word, "allowed_tools")) {
        return take_allowed(f, dialect, out);
    }
    if (srv_text_is(word, "function") || srv_text_is(word, "tool")) {
        return take_name(function.value ? &function : f, out);
    }
    return take_word(&type, word, out);
}

bool srv_tools_read(const srv_field *root, srv_dialect dialect, srv_tools *out)
{
    const srv_field tools = srv_member(root, "tools"), choice = srv_member(root, "tool_choice");
    const srv_field parallel = srv_member(root, "parallel_tool_calls");
    bool many = true, disabled = false;
    if (!read_list(&tools, dialect, out) || !srv_read_bool(parallel, &many) ||
        !read_choice(&choice, dialect, out)) {
        return false;
    }
    if (json_is_object(choice.value) &&
        !srv_read_bool(srv_member(&choice, "disable_parallel_tool_use"), &disabled)) {
        return false;
    }
    out->single = !many || disabled;
    if ((out->calling == SRV_CALLING_REQUIRED || out->calling == SRV_CALLING_NAMED) && !out->list) {
        return srv_wrong(&choice, "requires tools");
    }
    return true;
}

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

/* {"type":"text"|"json_object"|"json_schema",...}; the schema is in its own member, or next to the type. */
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
