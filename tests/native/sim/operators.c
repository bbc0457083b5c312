/* Attributes of operators, options of the operator compiler, log messages, and the functions of libruntime.so
 * that programs link with. */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "sim_test.h"

/* Not in a public header. */
int32_t rtKernelLaunch(const void *stubFunc, uint32_t blockDim, void *args, uint32_t argsSize, void *smDesc,
                       void *stm);
int32_t MsprofReportApi(uint32_t agingFlag, const void *api);
uint64_t MsprofGetHashId(const char *hashInfo, size_t length);
uint64_t MsprofSysCycleTime(void);

static void test_attributes(void) {
    const uint8_t flags[] = {1, 0};
    const int64_t ints[] = {1, -2, 3};
    const float floats[] = {0.5F, INFINITY};
    const int counts[] = {3, 0};
    const int64_t *const lists[] = {ints, ints};
    uint64_t before = stats().descriptions;
    aclopAttr *attr = aclopCreateAttr();
    CHECK(attr != NULL && stats().descriptions == before + 1);
    CHECK_RC(aclopSetAttrBool(attr, "bool", 1), 0);
    CHECK_RC(aclopSetAttrInt(attr, "int", INT64_MIN), 0);
    CHECK_RC(aclopSetAttrInt(attr, "int", 2), 0); /* replaces the value */
    CHECK_RC(aclopSetAttrFloat(attr, "float", 1.5F), 0);
    CHECK_RC(aclopSetAttrString(attr, "string", "text"), 0);
    CHECK_RC(aclopSetAttrDataType(attr, "type", ACL_FLOAT16), 0);
    CHECK_RC(aclopSetAttrListBool(attr, "bools", 2, flags), 0);
    CHECK_RC(aclopSetAttrListInt(attr, "ints", 3, ints), 0);
    CHECK_RC(aclopSetAttrListFloat(attr, "floats", 2, floats), 0);
    CHECK_RC(aclopSetAttrListInt(attr, "none", 0, NULL), 0);
    CHECK_RC(aclopSetAttrListInt(attr, "none", -1, NULL), 0);
    CHECK_RC(aclopSetAttrListListInt(attr, "lists", 2, counts, lists), 0);
    CHECK_RC(aclopSetAttrListListInt(attr, "none", 0, counts, NULL), 0);
    aclopDestroyAttr(attr);
    CHECK(stats().descriptions == before && stats().violations == 0);
}

static void test_attribute_refusals(void) {
    const int counts[] = {1};
    const int64_t *const lists[] = {NULL};
    aclopAttr *attr = aclopCreateAttr();
    CHECK_RC(aclopSetAttrBool(NULL, "a", 1), 100000);
    CHECK_RC(aclopSetAttrBool(attr, NULL, 1), 100000);
    CHECK_RC(aclopSetAttrInt(attr, NULL, 1), 100000);
    CHECK_RC(aclopSetAttrFloat(attr, NULL, 1), 100000);
    CHECK_RC(aclopSetAttrDataType(attr, NULL, ACL_INT8), 100000);
    CHECK_RC(aclopSetAttrString(attr, "a", NULL), 100000);
    CHECK_RC(aclopSetAttrListBool(attr, "a", 1, NULL), 100000);
    CHECK_RC(aclopSetAttrListInt(attr, "a", 1, NULL), 100000);
    CHECK_RC(aclopSetAttrListInt(attr, NULL, 0, NULL), 100000);
    CHECK_RC(aclopSetAttrListFloat(attr, "a", 1, NULL), 100000);
    CHECK_RC(aclopSetAttrListListInt(attr, "a", 1, NULL, lists), 100000);
    CHECK_RC(aclopSetAttrListListInt(attr, "a", 1, counts, NULL), 100000);
    CHECK_RC(aclopSetAttrListListInt(attr, "a", 1, counts, lists), 100000);
    aclopDestroyAttr(NULL);
    CHECK(stats().violations == 0);
    aclopDestroyAttr(attr);
    CHECK_RC(aclopSetAttrBool(attr, "a", 1), 100000);
    CHECK(stats().violations == 1); /* the attribute object has been destroyed */
}

static void check_option(aclCompileOpt opt, const char *want) {
    char value[300] = "";
    CHECK_THEN(aclGetCompileopt(opt, value, sizeof value), strcmp(value, want) == 0);
}

static void test_options(void) {
    char value[8] = "kept";
    for (int opt = ACL_PRECISION_MODE; opt <= ACL_OP_DEBUG_OPTION; opt++) {
        if (opt != ACL_AUTO_TUNE_MODE && opt != ACL_OP_JIT_COMPILE) {
            CHECK(aclGetCompileoptSize((aclCompileOpt)opt) == 0);
            CHECK_RC(aclGetCompileopt((aclCompileOpt)opt, value, sizeof value), 200001);
            CHECK_RC(aclSetCompileopt((aclCompileOpt)opt, "first"), 0);
            CHECK_RC(aclSetCompileopt((aclCompileOpt)opt, "oom"), 0);
            CHECK(aclGetCompileoptSize((aclCompileOpt)opt) == 4);
            check_option((aclCompileOpt)opt, "oom");
        }
    }
    CHECK_RC(aclGetCompileopt(ACL_DEBUG_DIR, value, 3), 500001);
    CHECK(strcmp(value, "kept") == 0);
    CHECK_RC(aclGetCompileopt(ACL_DEBUG_DIR, NULL, 8), 100000);
    CHECK_RC(aclSetCompileopt(ACL_DEBUG_DIR, NULL), 100000);
    CHECK_RC(aclSetCompileopt(ACL_AUTO_TUNE_MODE, "GA"), 200006);
    CHECK_RC(aclSetCompileopt((aclCompileOpt)17, "x"), 500000);
    CHECK_RC(aclSetCompileopt((aclCompileOpt)-1, "x"), 500000);
    CHECK(aclGetCompileoptSize((aclCompileOpt)17) == 0);
    CHECK_RC(aclGetCompileopt((aclCompileOpt)17, value, sizeof value), 200001);
}

/* By default the option is off. The reported size of the option does not depend on its value. */
static void test_compiling_at_run_time(void) {
    CHECK(aclGetCompileoptSize(ACL_OP_JIT_COMPILE) == 256);
    check_option(ACL_OP_JIT_COMPILE, "disable");
    CHECK_RC(aclSetCompileopt(ACL_OP_JIT_COMPILE, "enable"), 0);
    check_option(ACL_OP_JIT_COMPILE, "enable");
    CHECK_RC(aclSetCompileopt(ACL_OP_JIT_COMPILE, "whatever"), 0);
    check_option(ACL_OP_JIT_COMPILE, "disable");
    CHECK(aclGetCompileoptSize(ACL_OP_JIT_COMPILE) == 256);
}

static void test_operators_are_refused(void) {
    aclopAttr *attr = aclopCreateAttr();
    CHECK_RC(aclrtSetDevice(0), 0);
    aclGetRecentErrMsg(); /* clears the error texts of the calls above */
    CHECK_RC(aclopCompileAndExecute("Add", 0, NULL, NULL, 0, NULL, NULL, attr, ACL_ENGINE_SYS, ACL_COMPILE_SYS,
                                    NULL, NULL),
             207000);
    const char *text = aclGetRecentErrMsg();
    CHECK(text != NULL && strstr(text, "aclopCompileAndExecute") != NULL);
    aclopDestroyAttr(attr);
    CHECK_RC(aclrtResetDevice(0), 0);
}

/* Logs a message of `letters` letters at `level`. Stores the output in `text` and returns its length. */
static size_t printed(aclLogLevel level, int letters, char *text, size_t size) {
    int ends[2];
    int out = dup(STDOUT_FILENO);
    CHECK(out >= 0 && pipe(ends) == 0 && dup2(ends[1], STDOUT_FILENO) == STDOUT_FILENO);
    aclAppLog(level, "work", "file.cpp", 7, "%s %d %0*d", "text", 42, letters, 0);
    CHECK(dup2(out, STDOUT_FILENO) == STDOUT_FILENO && close(ends[1]) == 0 && close(out) == 0);
    ssize_t got = read(ends[0], text, size - 1);
    CHECK(got >= 0 && close(ends[0]) == 0);
    text[got] = '\0';
    return (size_t)got;
}

static void test_messages(void) {
    static char text[4096];
    fflush(stdout);
    CHECK(printed(ACL_ERROR, 1, text, sizeof text) == 0);
    setenv("ASCEND_SLOG_PRINT_TO_STDOUT", "1", 1);
    CHECK(printed(ACL_WARNING, 1, text, sizeof text) == 0);
    CHECK(printed((aclLogLevel)9, 1, text, sizeof text) == 0);
    CHECK(printed(ACL_ERROR, 1, text, sizeof text) > 0);
    CHECK(strstr(text, "[ERROR] ") == text && strstr(text, "[file.cpp:7]work: text 42 0\n") != NULL);
    setenv("ASCEND_GLOBAL_LOG_LEVEL", "1", 1);
    CHECK(printed(ACL_DEBUG, 1, text, sizeof text) == 0);
    CHECK(printed(ACL_INFO, 1, text, sizeof text) > 0 && strstr(text, "[INFO] ") == text);
    CHECK(printed(ACL_INFO, 2000, text, sizeof text) < 1200); /* at most 1,023 characters */
    CHECK(strstr(text, "000...\n") != NULL);
    aclAppLog(ACL_ERROR, NULL, NULL, 0, NULL);
}

static void test_functions_of_libruntime(void) {
    CHECK(rtKernelLaunch("stub", 1, NULL, 0, NULL, NULL) == 207000);
    CHECK(MsprofReportApi(0, NULL) == 0);
    CHECK(MsprofGetHashId("add", 3) == MsprofGetHashId("adds", 3));
    CHECK(MsprofGetHashId("add", 3) != MsprofGetHashId("ade", 3) && MsprofGetHashId(NULL, 3) != 0);
    uint64_t before = MsprofSysCycleTime();
    CHECK(before > 0 && MsprofSysCycleTime() >= before);
}

int main(void) {
    RUN(test_functions_of_libruntime, test_attributes, test_attribute_refusals, test_options,
        test_compiling_at_run_time, test_operators_are_refused, test_messages);
}
