/* Pictures in the server's engine: while the rows of one are made, which takes as long as the test says, other answers go on; what becomes of a
 * job whose picture fails, or that is cancelled meanwhile; and an engine that is closed then. */
#include "check.h"
#include "engine/image.h"
#include "picture_rows.h"
#include "server_case.h"

#define MODEL "qwen3vlmoe"

typedef enum fate { MADE, FAILS, NEVER_ENDS } fate;

/* A picture of a case, whose rows come when the other job has ended. */
static struct {
    mo_image image;
    const float *values;
    fate fate;
    client *other; /* NULL: nobody is waited for */
    atomic_int calls, cancelled;
} slow;

static mo_status make_slowly(mo_image *image, mo_progress_fn progress, void *user, mo_error *err)
{
    atomic_fetch_add(&slow.calls, 1);
    if (slow.other) {
        wait_last(slow.other);
    }
    while (slow.fate == NEVER_ENDS) {
        if (progress && !progress(user, 0, 1)) {
            atomic_fetch_add(&slow.cancelled, 1);
            return mo_fail(err, MO_ECANCELLED, "cancelled");
        }
    }
    if (slow.fate == FAILS) {
        return mo_fail(err, MO_EFORMAT, "the rows are no numbers");
    }
    atomic_store(&image->values, slow.values);
    return MO_OK;
}

static example *prepare(fate end, client *other)
{
    example *e = find_example(MODEL ".a");
    slow.image = e->image[0];
    slow.values = atomic_load(&e->image[0].values);
    slow.image.values = NULL;
    slow.image.make = make_slowly;
    slow.fate = end;
    slow.other = other;
    slow.calls = slow.cancelled = 0;
    return e;
}

static mo_model *open_two(void)
{
    mo_model_options o = picture_options(2, 64, "none");
    o.sessions = 2;
    return open_with(MODEL, &o);
}

static srv_job_options job_with_picture(client *c, const example *e)
{
    static mo_image *list[1];
    srv_job_options o = job_of(c, e->c.tokens, (int)e->c.count, GREEDY);
    list[0] = &slow.image;
    o.generation.ignore_end = true;
    o.images = list;
    o.image_count = 1;
    return o;
}

static void other_answers_go_on(void **state)
{
    (void)state;
    mo_model *model = open_two();
    srv_engine *engine = open_engine(model, (srv_engine_options){.parallel = 2});
    client *text = new_client(), *picture = new_client();
    example *e = prepare(MADE, text);
    srv_job_options first = job_with_picture(picture, e), second = job_of(text, e->c.greedy, GREEDY, 60);
    second.generation.ignore_end = true;
    submit(engine, picture, &first);
    while (!atomic_load(&slow.calls)) { /* its rows are being made */
    }
    submit(engine, text, &second);
    wait_last(text); /* which its rows wait for */
    assert_int_equal(text->last, SRV_DONE);
    assert_int_equal(text->count[0], 60);
    wait_last(picture);
    assert_int_equal(picture->last, SRV_DONE);
    assert_memory_equal(picture->tokens[0], e->c.greedy, sizeof e->c.greedy);
    assert_int_equal(slow.calls, 1);
    srv_engine_close(engine);
    free_client(text);
    free_client(picture);
    mo_model_close(model);
    assert_int_equal(slow.image.holders, 1);
}

static void a_failure_ends_its_job_alone(void **state)
{
    (void)state;
    mo_model *model = open_two();
    srv_engine *engine = open_engine(model, (srv_engine_options){.parallel = 2});
    client *picture = new_client();
    const srv_job_options o = job_with_picture(picture, prepare(FAILS, NULL));
    submit(engine, picture, &o);
    wait_last(picture);
    assert_int_equal(picture->last, SRV_FAILED);
    assert_int_equal(picture->status, MO_EFORMAT);
    example *e = find_example(MODEL ".a");
    free_client(ask(engine, e->c.greedy, GREEDY, 4));
    srv_engine_close(engine);
    free_client(picture);
    mo_model_close(model);
    assert_int_equal(slow.image.holders, 1);
}

static void a_job_that_is_cancelled_leaves_its_picture(void **state)
{
    (void)state;
    for (int closes = 0; closes < 2; closes++) {
        mo_model *model = open_two();
        srv_engine *engine = open_engine(model, (srv_engine_options){.parallel = 2});
        client *picture = new_client();
        const srv_job_options o = job_with_picture(picture, prepare(NEVER_ENDS, NULL));
        submit(engine, picture, &o);
        while (!atomic_load(&slow.calls)) {
        }
        if (!closes) {
            srv_job_cancel(engine, picture->job);
            wait_last(picture);
            assert_int_equal(picture->last, SRV_FAILED);
            assert_int_equal(picture->status, MO_ECANCELLED);
            while (!atomic_load(&slow.cancelled)) {
            }
        }
        srv_engine_close(engine); /* with the picture at work */
        assert_int_equal(slow.cancelled, 1);
        free_client(picture);
        mo_model_close(model);
        assert_int_equal(slow.image.holders, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_answers_go_on),
        cmocka_unit_test(a_failure_ends_its_job_alone),
        cmocka_unit_test(a_job_that_is_cancelled_leaves_its_picture),
    };
    return cmocka_run_group_tests(tests, read_examples, free_examples);
}
