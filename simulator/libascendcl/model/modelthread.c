/* The thread of a model, which computes its executions one after the other. */
#include <stdio.h>

#include "modelrun.h"

static model_run_t *pop(model_t *model) {
    model_run_t *run = model->first;
    if (run != NULL) {
        model->first = run->next;
        model->last = model->first != NULL ? model->last : NULL;
    }
    return run;
}

static void compute(model_t *model, model_run_t *run) {
    model->now = run;
    if (!run->stopped) {
        if (model->session != NULL) {
            session_start(model->session);
        }
        sim_unlock();
        model_compute(run);
        sim_lock();
    }
    model->now = NULL;
    if (run->stopped) {
        run->code = 0; /* the task is dropped, so no call returns the code */
    }
    model_run_ended(run);
}

static void *model_main(void *arg) {
    model_t *model = arg;
    sim_lock();
    thread_self()->callback_depth++;
    while (!model->thread_stops || model->first != NULL) {
        model_run_t *run = pop(model);
        if (run != NULL) {
            compute(model, run);
        } else {
            pthread_cond_wait(&model->cond, &sim.lock);
        }
    }
    model_release(model);
    sim_unlock();
    models_bury();
    return NULL;
}

static bool start(model_t *model) {
    char name[16];
    if (!model->thread_started) {
        snprintf(name, sizeof name, "aclsim-mdl%u", model->id % 10000);
        model->thread_started = thread_start(name, model_main, model);
        model->refs += model->thread_started ? 1 : 0;
    }
    return model->thread_started;
}

bool model_thread_submit(model_run_t *run) {
    model_t *model = run->model;
    if (!start(model)) {
        return false;
    }
    run->next = NULL;
    if (model->last != NULL) {
        model->last->next = run;
    } else {
        model->first = run;
    }
    model->last = run;
    pthread_cond_signal(&model->cond);
    return true;
}

void model_thread_stop(model_t *model) {
    model->thread_stops = true;
    pthread_cond_signal(&model->cond);
}

static void unlink_run(model_t *model, const model_run_t *run) {
    model_run_t *before = NULL;
    for (model_run_t *other = model->first; other != run; other = other->next) {
        before = other;
    }
    if (before != NULL) {
        before->next = run->next;
    } else {
        model->first = run->next;
    }
    model->last = model->last == run ? before : model->last;
}

/* An execution that waits for the model's thread is taken back. One that the thread computes is asked to stop.
 */
void model_leave(stream_t *stream) {
    model_run_t *run = (model_run_t *)stream_head(stream)->work;
    model_t *model = run->model;
    run->stopped = true;
    if (model->now != run) {
        unlink_run(model, run);
        model_run_ended(run);
    } else if (model->session != NULL) {
        session_stop(model->session);
    }
}
