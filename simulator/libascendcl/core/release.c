/*
 * The release of CANN that the library imitates, and the functions of each release. The build compiles this
 * file once more for each older release. It links the result with all other objects, and with a version script
 * that hides newer functions.
 */
#include "sim.h"

#ifndef SIM_RELEASE
#define SIM_RELEASE "master"
#endif

const char sim_release[] = SIM_RELEASE;

API const char *aclsim_cann(void) {
    return sim_release;
}

API const char *aclsim_function(int index, const char **since) {
    if (index < 0 || index >= FN_COUNT) {
        return NULL;
    }
    if (since != NULL) {
        *since = function_info[index].since;
    }
    return function_info[index].name;
}
