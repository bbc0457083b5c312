/* Registered host memory stays private to the process. Forked children do not share its pages, and the pages
 * are private again after the registration. Values that other threads write next to the memory are not lost. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "sim_test.h"

enum { PAGE = 4096, MAPPED = 0x2, ROUNDS = 3000 };

static char *client_pages(size_t size, int shared) {
    void *pages = mmap(NULL, size, PROT_READ | PROT_WRITE, shared | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED);
    return pages;
}

static char *device_address(void *host) {
    void *device = NULL;
    CHECK_RC(aclrtHostGetDevicePointer(host, &device, 0), 0);
    return device;
}

/* Whether the kernel reports the page as private, with exactly this access: "rw-p". */
static bool is_mapped_as(const void *page, const char *letters) {
    char line[8192];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "re");
    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps) != NULL) {
        unsigned long begin = 0;
        unsigned long end = 0;
        char seen[5] = "";
        CHECK(sscanf(line, "%lx-%lx %4s", &begin, &end, seen) == 3);
        found = found || ((uintptr_t)page >= begin && (uintptr_t)page < end && strcmp(seen, letters) == 0);
    }
    fclose(maps);
    return found;
}

/* A child writes to the memory, and must see the content from before the fork. */
static void write_in_child(char *memory, size_t size, char expected) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        bool same = memory[0] == expected && memory[size - 1] == expected;
        memset(memory, 99, size);
        _exit(same ? 0 : 1);
    }
    int status = 1;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

/* Private pages stay private: a forked child gets a copy, and the registration's end restores the pages. */
static void test_private_memory_is_not_shared_with_children(void) {
    size_t size = 40 * PAGE + 10; /* exchanged in more than one step */
    char *pages = client_pages(41 * PAGE, MAP_PRIVATE);
    memset(pages, 1, 41 * PAGE);
    CHECK_RC(aclrtHostRegisterV2(pages, size, MAPPED), 0);
    char *device = device_address(pages);
    write_in_child(pages, size, 1);
    CHECK(pages[0] == 1 && device[size - 1] == 1);
    memset(device, 2, size); /* `device` is a second address of the same memory */
    CHECK(pages[0] == 2 && pages[size - 1] == 2);
    CHECK(mprotect(pages + PAGE, PAGE, PROT_READ) == 0);
    CHECK_THEN(aclrtHostUnregister(pages), is_mapped_as(pages, "rw-p") && is_mapped_as(pages + PAGE, "r--p"));
    CHECK(is_mapped_as(pages + 40 * PAGE, "rw-p"));
    CHECK(pages[0] == 2 && pages[PAGE] == 2 && pages[size - 1] == 2 && pages[size] == 1);
    CHECK(mprotect(pages + PAGE, PAGE, PROT_READ | PROT_WRITE) == 0);
    write_in_child(pages, size, 2);
    CHECK(pages[0] == 2 && pages[size - 1] == 2);
    munmap(pages, 41 * PAGE);
}

/* The pages of pinned memory are private too, and stay private. */
static void test_pinned_memory_is_private_after_the_registration(void) {
    char *host = new_host(2 * PAGE);
    memset(host, 3, 2 * PAGE);
    CHECK_RC(aclrtHostRegisterV2(host, 2 * PAGE, MAPPED), 0);
    CHECK_THEN(aclrtHostUnregister(host), is_mapped_as(host, "rw-p"));
    write_in_child(host, 2 * PAGE, 3);
    CHECK(host[0] == 3);
    CHECK_RC(aclrtFreeHost(host), 0);
}

/* If the client itself shares memory, the memory stays shared. If the client has unmapped the memory, it is not
 * changed. */
static void test_shared_and_unmapped_memory_is_not_changed(void) {
    char *pages = client_pages(2 * PAGE, MAP_SHARED);
    memset(pages, 4, 2 * PAGE);
    CHECK_RC(aclrtHostRegisterV2(pages, 2 * PAGE, MAPPED), 0);
    write_in_child(pages, 2 * PAGE, 4);
    CHECK(pages[0] == 99);
    CHECK_THEN(aclrtHostUnregister(pages), is_mapped_as(pages, "rw-s"));
    munmap(pages, 2 * PAGE);
    pages = client_pages(3 * PAGE, MAP_PRIVATE);
    CHECK_RC(aclrtHostRegisterV2(pages, 3 * PAGE, MAPPED), 0);
    munmap(pages, PAGE);
    CHECK(mmap(pages + PAGE, PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == pages + PAGE);
    CHECK_THEN(aclrtHostUnregister(pages), !is_mapped_as(pages, "rw-p") && is_mapped_as(pages + PAGE, "r--s"));
    CHECK(is_mapped_as(pages + 2 * PAGE, "rw-p"));
    munmap(pages + PAGE, 2 * PAGE);
}

typedef struct {
    volatile uint64_t *word;
    atomic_uint rounds; /* number of registrations that have ended */
    atomic_bool stop;
    uint64_t lost;
} neighbour_t;

/* Writes a value once per round, at a different moment each time, and checks the value at the end of the
 * round. */
static void *write_beside(void *arg) {
    neighbour_t *neighbour = arg;
    for (uint64_t n = 1; !atomic_load(&neighbour->stop); n++) {
        unsigned int begun = atomic_load(&neighbour->rounds);
        for (uint64_t i = n * 37 % 8192; i > 0; i--) {
            atomic_load(&neighbour->stop);
        }
        *neighbour->word = n;
        while (atomic_load(&neighbour->rounds) < begun + 2 && !atomic_load(&neighbour->stop)) {
        }
        neighbour->lost += *neighbour->word != n;
    }
    return NULL;
}

/* Another thread owns a word in the last page. A value that it writes during a registration must still be there
 * afterwards. */
static void test_writes_of_another_thread_are_kept(void) {
    char *pages = client_pages(2 * PAGE, MAP_PRIVATE);
    neighbour_t neighbour = {.word = (uint64_t *)(void *)(pages + 2 * PAGE - 8)};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, write_beside, &neighbour) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        CHECK_RC(aclrtHostRegisterV2(pages, PAGE + 10, MAPPED), 0);
        CHECK_RC(aclrtHostUnregister(pages), 0);
        atomic_fetch_add(&neighbour.rounds, 1);
    }
    atomic_store(&neighbour.stop, true);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(neighbour.lost == 0);
    munmap(pages, 2 * PAGE);
}

int main(void) {
    start_acl();
    RUN(test_private_memory_is_not_shared_with_children, test_pinned_memory_is_private_after_the_registration,
        test_shared_and_unmapped_memory_is_not_changed, test_writes_of_another_thread_are_kept);
    CHECK(stats().registrations == 0 && stats().violations == 0);
    end_acl();
}
