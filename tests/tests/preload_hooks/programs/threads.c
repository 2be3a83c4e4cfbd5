// Sockets used by several threads, and threads that are cancelled while they wait.
#include "show.h"

static int shared[2];
static volatile int cleaned;

static void *echo(void *unused) {
    char data[64];
    ssize_t len;
    while ((len = recv(shared[1], data, sizeof data, 0)) > 0) send(shared[1], data, len, 0);
    return NULL;
}

static void clean(void *unused) { cleaned++; }

static int how;
// The thread that waits has begun to, or is about to.
static volatile int ready;

static void until_it_waits(void) {
    while (!ready) usleep(1000);
    usleep(30000);
    ready = 0;
}

static void *waiting(void *fd) {
    char data[8];
    struct pollfd entry = {.fd = (long)fd, .events = POLLIN};
    fd_set set;
    FD_ZERO(&set); FD_SET(entry.fd, &set);
    struct epoll_event event = {.events = EPOLLIN};
    int epoll = epoll_create1(0);
    epoll_ctl(epoll, EPOLL_CTL_ADD, entry.fd, &event);
    pthread_cleanup_push(clean, NULL);
    ready = 1;
    switch (how) {
        case 0: read(entry.fd, data, 8); break;
        case 1: recv(entry.fd, data, 8, 0); break;
        case 2: poll(&entry, 1, -1); break;
        case 3: select(entry.fd + 1, &set, NULL, NULL, NULL); break;
        case 4: epoll_wait(epoll, &event, 1, -1); break;
        case 5: accept(entry.fd, NULL, NULL); break;
    }
    pthread_cleanup_pop(0);
    return NULL;
}

static void ending(int signal) { pthread_exit((void *)7); }

// A thread that a signal handler ends while it waits.
static int ended(int fd) {
    pthread_t thread;
    void *result;
    signal(SIGUSR2, ending);
    how = 1;
    pthread_create(&thread, NULL, waiting, (void *)(long)fd);
    until_it_waits();
    pthread_kill(thread, SIGUSR2);
    pthread_join(thread, &result);
    return (long)result;
}

static int cancelled(int which, int fd) {
    pthread_t thread;
    void *result;
    how = which;
    pthread_create(&thread, NULL, waiting, (void *)(long)fd);
    until_it_waits();
    pthread_cancel(thread);
    pthread_join(thread, &result);
    return result == PTHREAD_CANCELED;
}

// Goes on when the main thread has ended. The process ends with it.
static void *outlive(void *pair) {
    char data[8] = "";
    int *ends = pair;
    usleep(50000);
    SHOW(send(ends[0], "last", 4, 0));
    SHOW(recv(ends[1], data, 8, 0));
    return NULL;
}

int main(void) {
    pthread_t threads[4];
    connection(shared);
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, echo, NULL);
    long returned = 0;
    char data[64] = "";
    for (int i = 0; i < 2000; i++) {
        send(shared[0], data, sizeof data, 0);
        returned += recv(shared[0], data, sizeof data, MSG_WAITALL);
    }
    SHOW(returned);
    int listening = listener();
    static int ends[2];
    connection(ends);
    for (int which = 0; which < 6; which++) SHOW(cancelled(which, which == 5 ? listening : ends[0]));
    SHOW(ended(ends[0]));
    SHOW(cleaned);
    SHOW(send(ends[0], "after", 5, 0));
    SHOW(recv(ends[1], data, 64, 0));
    SHOW(shutdown(shared[0], SHUT_WR));
    for (int i = 0; i < 4; i++) SHOW(pthread_join(threads[i], NULL));
    pthread_t last;
    pthread_create(&last, NULL, outlive, ends);
    pthread_exit(NULL);
}
