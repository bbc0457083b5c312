/* The paths of dumps: the path in a configuration, and the functions that return the path. Each case runs in
 * its own process, because only the first configuration of a process counts. */
#include <string.h>

#include "sim_test.h"

static const char path_wanted[] = "/tmp/dumps of mine";
static const char exceptions[] =
    "{\"dump\": {\"dump_path\": \"/tmp/dumps of mine\", \"dump_scene\": \"aic_err_brief_dump\"}}";
static const char tensors[] = "{\"dump\": {\"dump_list\": [{\"model_name\": \"x\"}], \"dump_path\": "
                              "\"/tmp/dumps of mine\", \"dump_mode\": "
                              "\"all\"}}";

typedef aclError (*load_t)(const char *path);

static aclError load_text(load_t load, const char *text) {
    char path[] = "/tmp/aclsim-dumps-XXXXXX";
    int file = mkstemp(path);
    CHECK(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text));
    close(file);
    aclError rc = load(path);
    unlink(path);
    return rc;
}

static void check_paths(const char *want) {
    char path[64] = "?";
    for (int type = AIC_ERR_BRIEF_DUMP; type <= OVERFLOW_DUMP; type++) {
        const char *found = acldumpGetPath((acldumpType)type);
        CHECK(want == NULL ? found == NULL : found != NULL && strcmp(found, want) == 0);
    }
    CHECK(acldumpGetPath((acldumpType)0) == NULL && acldumpGetPath((acldumpType)6) == NULL);
    CHECK_THEN(acldumpGetExceptionInfoPath(path, sizeof path), strcmp(path, want != NULL ? want : "") == 0);
}

static void test_path_of_a_configuration(const char *text) {
    char small[sizeof path_wanted];
    check_paths(NULL);
    CHECK_RC(load_text(aclInit, text), 0);
    check_paths(path_wanted);
    CHECK_RC(acldumpGetExceptionInfoPath(small, sizeof small - 1), 100000);
    CHECK_RC(acldumpGetExceptionInfoPath(small, sizeof small), 0);
    CHECK_RC(aclFinalize(), 0);
    check_paths(NULL);
}

static void test_path_of_exceptions(void) {
    test_path_of_a_configuration(exceptions);
}

static void test_path_of_tensors(void) {
    test_path_of_a_configuration(tensors);
}

static void test_path_of_a_later_configuration(void) {
    CHECK_RC(aclInit(NULL), 0);
    CHECK_RC(aclmdlInitDump(), 0);
    check_paths(NULL);
    CHECK_RC(load_text(aclmdlSetDump, tensors), 0);
    check_paths(path_wanted);
    CHECK_RC(aclmdlFinalizeDump(), 0);
    check_paths(NULL);
    CHECK_RC(aclFinalize(), 0);
}

static void test_arguments_have_a_path_of_their_own(void) {
    char path[64] = "";
    CHECK_RC(load_text(aclInit, exceptions), 0);
    CHECK_RC(aclopStartDumpArgs(AIC_ERR_BRIEF_DUMP, "/tmp/args"), 0);
    CHECK(strcmp(acldumpGetPath(AIC_ERR_BRIEF_DUMP), "/tmp/args") == 0);
    CHECK(strcmp(acldumpGetPath(DATA_DUMP), path_wanted) == 0);
    CHECK_THEN(acldumpGetExceptionInfoPath(path, sizeof path), strcmp(path, "/tmp/args") == 0);
    CHECK_RC(aclopStopDumpArgs(AIC_ERR_BRIEF_DUMP), 0);
    check_paths(path_wanted);
    CHECK_RC(aclFinalize(), 0);
}

static void test_configurations_without_a_path(void) {
    static char text[8192] = "{\"dump\": {\"dump_path\": \"";
    CHECK_RC(load_text(aclInit, "{\"dump\": {\"dump_path\": 3}}"), 100009);
    memset(text + strlen(text), 'x', 4096);
    strcat(text, "\"}}");
    CHECK_RC(load_text(aclInit, text), 100009);
    check_paths(NULL);
    CHECK_RC(load_text(aclInit, "{\"dump\": {\"dump_scene\": \"lite_exception\"}}"), 0);
    check_paths(NULL);
    CHECK_RC(aclFinalize(), 0);
}

/* This process never calls ACL itself, so its children do not count as forked. */
int main(void) {
    RUN_IN_CHILDREN(test_path_of_exceptions, test_path_of_tensors, test_path_of_a_later_configuration,
                    test_arguments_have_a_path_of_their_own, test_configurations_without_a_path);
}
