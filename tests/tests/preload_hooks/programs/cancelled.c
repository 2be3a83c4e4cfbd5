// Threads that are cancelled while they use sockets: in the middle of a loop, before a call, and while they sleep.
#include "show.h"
#include <dirent.h>

#define ROUNDS 100

static int used[2], other[2];
static volatile int cleaned, ready, cancelled;

static void clean(void *unused) { cleaned++; }

static int open_descriptors(void) {
    int count = 0;
    DIR *directory = opendir("/proc/self/fd");
    while (readdir(directory)) count++;
    closedir(directory);
    return count;
}

static int join(pthread_t thread) {
    void *result;
    pthread_join(thread, &result);
    return result == PTHREAD_CANCELED;
}

static void *chat(void *type) {
    char data[64] = "";
    pthread_setcanceltype((int)(long)type, NULL);
    pthread_cleanup_push(clean, NULL);
    for (;;) {
        ready = 1;
        send(used[0], data, sizeof data, 0);
        recv(used[1], data, sizeof data, 0);
    }
    pthread_cleanup_pop(0);
    return NULL;
}

// Cancels a thread at some moment in its loop. Others go on.
static int in_a_loop(int type) {
    pthread_t thread;
    char data[8] = "";
    ready = 0;
    pthread_create(&thread, NULL, chat, (void *)(long)type);
    while (!ready) usleep(100);
    usleep(rand() % 3000);
    pthread_cancel(thread);
    int goes_on = send(other[0], data, 8, 0) == 8 && recv(other[1], data, 8, MSG_WAITALL) == 8;
    return join(thread) + goes_on;
}

static void *sleep_in(void *which) {
    char data[8];
    struct pollfd entry = {.fd = other[0], .events = POLLIN};
    struct epoll_event event = {.events = EPOLLIN};
    static int epoll;
    if (!epoll) epoll = epoll_create1(EPOLL_CLOEXEC);
    epoll_ctl(epoll, EPOLL_CTL_ADD, other[0], &event);
    pthread_cleanup_push(clean, NULL);
    ready = 1;
    switch ((long)which) {
        case 0: recv(other[0], data, 8, 0); break;
        case 1: poll(&entry, 1, -1); break;
        case 2: epoll_wait(epoll, &event, 1, -1); break;
    }
    pthread_cleanup_pop(0);
    return NULL;
}

// Cancels a thread that sleeps, or is about to.
static int asleep(int which) {
    pthread_t thread;
    ready = 0;
    pthread_create(&thread, NULL, sleep_in, (void *)(long)which);
    while (!ready) usleep(100);
    usleep(rand() % 3000);
    pthread_cancel(thread);
    return join(thread);
}

static void *disabled(void *unused) {
    int on = 1;
    char data[8];
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    ready = 1;
    int answered = recv(other[0], data, 8, MSG_WAITALL);
    while (!cancelled) usleep(100); // And the other thread has shown what it did.
    SHOW(answered);
    SHOW(send(other[0], "sent", 4, 0));
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    // No cancellation point.
    SHOW(setsockopt(other[0], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
    SHOW(send(other[0], "never", 5, 0));
    return NULL;
}

int main(void) {
    connection(used);
    connection(other);
    int ends = 0, before = 0;
    // The first one leaves behind most of what is made once.
    for (int round = -1; round < ROUNDS; round++) {
        int ended = in_a_loop(PTHREAD_CANCEL_DEFERRED);
        for (int which = 0; which < 3; which++) ended += asleep(which);
        if (round >= 0) ends += ended; else before = open_descriptors();
    }
    SHOW(ends);
    SHOW(cleaned);
    SHOW(open_descriptors() - before < ROUNDS / 10);
    SHOW(in_a_loop(PTHREAD_CANCEL_ASYNCHRONOUS));

    pthread_t thread;
    char data[16];
    ready = 0;
    pthread_create(&thread, NULL, disabled, NULL);
    while (!ready) usleep(100);
    usleep(20000);
    pthread_cancel(thread);
    usleep(20000);
    SHOW(send(other[1], "answered", 8, 0));
    cancelled = 1;
    SHOW(join(thread));
    SHOW(recv(other[1], data, 4, MSG_WAITALL));
    usleep(50000);
    SHOW(recv(other[1], data, 8, MSG_DONTWAIT));
    return 0;
}
