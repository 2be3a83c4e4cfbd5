// poll, select and epoll in all their variants, with descriptors of several kinds and more than FD_SETSIZE of them.
#include "show.h"
#include <sys/eventfd.h>
#include <sys/resource.h>

static void polls(int ends[2], int quiet) {
    struct pollfd entries[4] = {
        {.fd = ends[1], .events = POLLIN | POLLOUT}, {.fd = quiet, .events = POLLIN}, {.fd = -5, .events = POLLIN}, {.fd = 900, .events = POLLIN}};
    struct timespec moment = {0, 1000000}, wrong = {0, -1};
    sigset_t none;
    sigemptyset(&none);
    SHOW(poll(entries, 4, 0));
    SHOW(entries[0].revents);
    SHOW(entries[3].revents);
    SHOW(poll(entries + 1, 2, 1));
    SHOW(ppoll(entries, 2, NULL, NULL));
    SHOW(ppoll(entries + 1, 1, &moment, &none));
    SHOW(moment.tv_nsec);
    SHOW(ppoll(entries, 2, &wrong, NULL));
    SHOW(poll(NULL, 0, 1));
    SHOW(poll(NULL, 3, 1));
}

static void selects(int ends[2], int quiet) {
    fd_set in, out, except;
    struct timeval moment = {0, 2000}, negative = {0, -1};
    FD_ZERO(&in); FD_ZERO(&out); FD_ZERO(&except);
    FD_SET(ends[1], &in); FD_SET(quiet, &in); FD_SET(ends[0], &out); FD_SET(ends[1], &except);
    SHOW(select(100, &in, &out, &except, NULL));
    SHOW(!!FD_ISSET(ends[1], &in) * 8 + !!FD_ISSET(quiet, &in) * 4 + !!FD_ISSET(ends[0], &out) * 2 + !!FD_ISSET(ends[1], &except));
    FD_ZERO(&in); FD_SET(quiet, &in);
    SHOW(select(100, &in, NULL, NULL, &moment));
    SHOW(moment.tv_sec + moment.tv_usec);
    SHOW(FD_ISSET(quiet, &in));
    moment = (struct timeval){5, 0};
    FD_ZERO(&in); FD_SET(ends[1], &in);
    SHOW(select(100, &in, NULL, NULL, &moment));
    SHOW(moment.tv_sec >= 4);
    SHOW(select(100, &in, NULL, NULL, &negative));
    FD_SET(77, &in);
    SHOW(select(100, &in, NULL, NULL, NULL));
    SHOW(select(-1, &in, NULL, NULL, NULL));
    moment = (struct timeval){0, 1000};
    SHOW(select(0, NULL, NULL, NULL, &moment));
    struct timespec time = {0, 1000000};
    sigset_t none;
    sigemptyset(&none);
    FD_ZERO(&in); FD_SET(quiet, &in); FD_ZERO(&out); FD_SET(ends[0], &out);
    SHOW(pselect(100, &in, &out, NULL, &time, &none));
    SHOW(time.tv_nsec);
}

static void more_than_a_set(int fd) {
    struct rlimit limit = {4096, 4096};
    setrlimit(RLIMIT_NOFILE, &limit);
    if (WORKS(dup2(fd, 3000)) < 0) return;
    fd_set *set = calloc(4096 / 8, 1);
    ((unsigned long *)set)[3000 / 64] |= 1UL << 3000 % 64;
    SHOW(select(3001, set, NULL, NULL, NULL));
    SHOW(((unsigned long *)set)[3000 / 64] >> 3000 % 64 & 1);
    SHOW(close(3000));
    free(set);
}

// The system call itself tells how much of the time is left.
static void selects_by_number(int ends[2], int quiet) {
    fd_set set;
    sigset_t none;
    sigemptyset(&none);
    struct { const sigset_t *mask; size_t len; } masked = {&none, 8};
    struct timespec moment = {0, 20000000};
    FD_ZERO(&set);
    FD_SET(ends[1], &set);
    FD_SET(quiet, &set);
    SHOW(syscall(SYS_pselect6, ends[1] + 1, &set, NULL, NULL, &moment, &masked));
    SHOW(FD_ISSET(ends[1], &set));
    SHOW(FD_ISSET(quiet, &set));
    SHOW(moment.tv_sec == 0 && moment.tv_nsec > 0);
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    moment = (struct timespec){0, 20000000};
    SHOW(syscall(SYS_pselect6, ends[1] + 1, &set, NULL, NULL, &moment, NULL));
    SHOW(moment.tv_nsec);
    FD_SET(ends[0], &set);
    moment = (struct timespec){-1, -1};
    SHOW(syscall(SYS_pselect6, ends[1] + 1, &set, NULL, NULL, &moment, NULL));
    SHOW(moment.tv_sec);
    SHOW(moment.tv_nsec);
}

static void epolls(int ends[2], int quiet) {
    struct epoll_event events[8], event = {.events = EPOLLIN | EPOLLOUT, .data.u64 = 0x1122334455667788};
    struct timespec moment = {0, 1000000};
    sigset_t none;
    sigemptyset(&none);
    SHOW(epoll_create(0));
    SHOW(epoll_create1(12345));
    int old = WORKS(epoll_create(1)), epoll = WORKS(epoll_create1(EPOLL_CLOEXEC));
    SHOW(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[1], &event));
    SHOW(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[1], &event));
    event = (struct epoll_event){.events = EPOLLIN, .data.fd = 7};
    SHOW(epoll_ctl(epoll, EPOLL_CTL_ADD, quiet, &event));
    SHOW(epoll_wait(epoll, events, 8, 100));
    SHOW(events[0].events);
    SHOW(events[0].data.u64 == 0x1122334455667788);
    SHOW(epoll_pwait(epoll, events, 8, -1, &none));
    SHOW(epoll_pwait2(epoll, events, 8, NULL, NULL));
    SHOW(epoll_ctl(epoll, EPOLL_CTL_MOD, ends[1], NULL));
    event.events = 0;
    SHOW(epoll_ctl(epoll, EPOLL_CTL_MOD, ends[1], &event));
    SHOW(epoll_pwait2(epoll, events, 8, &moment, &none));
    SHOW(epoll_wait(epoll, events, 0, 0));
    SHOW(epoll_wait(epoll, events, -1, 0));
    SHOW(epoll_wait(ends[0], events, 1, 0));
    SHOW(epoll_wait(500, events, 1, 0));
    SHOW(epoll_ctl(epoll, EPOLL_CTL_DEL, ends[1], NULL));
    SHOW(epoll_ctl(epoll, EPOLL_CTL_DEL, ends[1], NULL));
    SHOW(epoll_ctl(epoll, 9, ends[1], &event));
    SHOW(epoll_ctl(epoll, EPOLL_CTL_ADD, epoll, &event));
    event.events = EPOLLIN;
    SHOW(epoll_ctl(old, EPOLL_CTL_ADD, epoll, &event));
    SHOW(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[1], &event));
    SHOW(epoll_wait(old, events, 8, 1000));
    struct pollfd entry = {.fd = old, .events = POLLIN};
    SHOW(poll(&entry, 1, 1000));
    SHOW(close(old));
    SHOW(close(epoll));
    SHOW(epoll_wait(epoll, events, 1, 0));
}

int main(void) {
    int ends[2], quiet = eventfd(0, 0);
    connection(ends);
    SHOW(write(ends[0], "x", 1));
    await(ends[1]);
    polls(ends, quiet);
    selects(ends, quiet);
    selects_by_number(ends, quiet);
    epolls(ends, quiet);
    more_than_a_set(ends[1]);
    uint64_t count = 3;
    SHOW(write(quiet, &count, 8));
    SHOW(read(quiet, &count, 8));
    SHOW(count);
    return 0;
}
