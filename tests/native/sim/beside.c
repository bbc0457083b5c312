/* What other code in the process can notice or cause: ids of streams, contexts and their ends, and waits that
 * end late. */
#include "failure_test.h"

/* A stream gets the handle of a stream that was destroyed, and another id. */
static void test_ids_of_reused_handles(void) {
    enum { PAIRS = 300 };
    static bool seen[4096];
    aclrtStream first = new_stream();
    for (int i = 0; i < PAIRS; i++) {
        aclrtStream stream = new_stream();
        uint32_t id = id_of(stream);
        CHECK(id > 0 && id < 4096 && !seen[id]);
        seen[id] = true;
        END_STREAMS(stream);
    }
    CHECK(!seen[id_of(first)]);
    END_STREAMS(first);
}

/* After the last id, the ids begin again. No two live streams have the same id. */
static void test_ids_begin_again(void) {
    enum { ROUNDS = 2100 };
    aclrtStream kept = new_stream();
    bool again = false;
    uint32_t before = 0;
    for (int i = 0; i < ROUNDS; i++) {
        aclrtStream stream = new_stream();
        uint32_t id = id_of(stream);
        CHECK(id != 0 && id != id_of(kept));
        again = again || id < before;
        before = id;
        END_STREAMS(stream);
    }
    CHECK(again);
    END_STREAMS(kept);
}

int main(void) {
    start_acl();
    RUN(test_ids_of_reused_handles, test_ids_begin_again);
    end_acl();
}
