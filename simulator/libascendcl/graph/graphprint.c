/* Graphs as text: on the standard error, and as JSON in a file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph.h"
#include "launch.h"

static const char *const kind_names[] = {
    [TASK_COPY] = "copy",
    [TASK_SET] = "set",
    [TASK_PLANE] = "copy2d",
    [TASK_INDIRECT] = "indirect copy",
    [TASK_PREFETCH] = "prefetch",
    [TASK_RECORD] = "event record",
    [TASK_RESET_EVENT] = "event reset",
    [TASK_WAIT_RECORD] = "event wait",
    [TASK_WAIT_FLAG] = "event wait",
    [TASK_RECORD_NOTIFY] = "notify record",
    [TASK_WAIT_NOTIFY] = "notify wait",
    [TASK_HOST_FUNCTION] = "host function",
    [TASK_CALLBACK] = "callback",
};

static const char *kind_of(const task_t *task) {
    value_task_t value;
    if (launch_of(task) != NULL) {
        return "kernel";
    }
    if (value_of(task, &value)) {
        return value.waits ? "value wait" : "value write";
    }
    bool named = task->kind < sizeof kind_names / sizeof *kind_names && kind_names[task->kind] != NULL;
    return named ? kind_names[task->kind] : "work";
}

/* Escapes only the characters that JSON requires in a name. */
static void print_text(FILE *file, const char *text) {
    fputc('"', file);
    for (; *text != 0; text++) {
        unsigned char letter = (unsigned char)*text;
        if (letter == '"' || letter == '\\') {
            fprintf(file, "\\%c", letter);
        } else if (letter < ' ') {
            fprintf(file, "\\u%04x", letter);
        } else {
            fputc(letter, file);
        }
    }
    fputc('"', file);
}

static void print_node(FILE *file, const node_t *node) {
    const launch_t *launch = launch_of(&node->task);
    fprintf(file, "{\"id\": %u, \"type\": \"%s\"", node->index, kind_of(&node->task));
    if (launch != NULL) {
        fputs(", \"kernel\": ", file);
        print_text(file, launch->kernel->name);
    }
    if (node->joins != NULL) {
        fprintf(file, ", \"after\": [%u, %u]", node->joins->lane->runner->id, node->joins->index);
    }
    fputs(node->disabled ? ", \"disabled\": true}" : "}", file);
}

static void print_graph(FILE *file, const graph_t *graph) {
    fprintf(file, "{\"model\": %u, \"name\": ", graph->object.index);
    print_text(file, graph->name != NULL ? graph->name : "");
    fputs(", \"streams\": [", file);
    for (const lane_t *lane = graph->lanes; lane != NULL; lane = lane->next) {
        fprintf(file, "%s{\"stream\": %u, \"tasks\": [", lane != graph->lanes ? ", " : "", lane->runner->id);
        for (uint32_t i = 0; i < lane->count; i++) {
            fputs(i > 0 ? ", " : "", file);
            print_node(file, lane->nodes[i]);
        }
        fputs("]}", file);
    }
    fputs("]}\n", file);
}

/* The text is created with sim.lock held. The caller writes the text without sim.lock. */
static aclError describe(aclmdlRI handle, char **text, size_t *size) {
    graph_t *graph = NULL;
    SIM_GUARD();
    aclError rc = graph_find_own(handle, &graph);
    FILE *memory = rc == ACL_SUCCESS ? open_memstream(text, size) : NULL;
    if (memory != NULL) {
        print_graph(memory, graph);
        fclose(memory);
    } else if (rc == ACL_SUCCESS) {
        rc = error_set(RT_MEMORY_ALLOCATION, "modelRI");
    }
    return rc;
}

aclError do_aclmdlRIDebugPrint(aclmdlRI modelRI) {
    char *text = NULL;
    size_t size = 0;
    REFUSE_NULL(modelRI);
    aclError rc = describe(modelRI, &text, &size);
    if (rc == ACL_SUCCESS) {
        fwrite(text, 1, size, stderr);
    }
    free(text);
    return rc;
}

aclError do_aclmdlRIDebugJsonPrint(aclmdlRI modelRI, const char *path, uint32_t flags) {
    char *text = NULL;
    size_t size = 0;
    (void)flags;
    REFUSE_NULL(modelRI);
    REFUSE_NULL(path);
    aclError rc = describe(modelRI, &text, &size);
    FILE *file = rc == ACL_SUCCESS ? fopen(path, "we") : NULL;
    bool written = file != NULL && fwrite(text, 1, size, file) == size;
    written = file != NULL && fclose(file) == 0 && written;
    free(text);
    return rc != ACL_SUCCESS || written ? rc : error_set(RT_PARAM_INVALID, "path: it cannot be written");
}
