// Programs that choose their system calls in the middle of connections.
#include "confine.h"

// A connection with unread data, waited for by epoll.
static void in_the_middle(enum way way) {
    static const int calls[] = {SYS_epoll_wait, SYS_poll, SYS_read, SYS_write, SYS_recvfrom, SYS_sendto, SYS_shutdown, SYS_close, SYS_futex, SYS_exit_group};
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int ends[2];
        connection(ends);
        int epoll = watching(ends[1], EPOLLIN | EPOLLET);
        struct epoll_event events[4];
        char data[64];
        SHOW(send(ends[0], "before", 6, 0));
        SHOW(epoll_wait(epoll, events, 4, 5000));
        SHOW(read(ends[1], data, 3));
        SHOW(confine(way, calls, COUNT(calls)));
        SHOW(recv(ends[1], data, 3, MSG_WAITALL));
        SHOW(send(ends[0], "after", 5, 0));
        SHOW(epoll_wait(epoll, events, 4, 5000));
        SHOW(events[0].events);
        SHOW(read(ends[1], data, 64));
        SHOW(poll(NULL, 0, 500)); // Other threads have time to do what they are not to.
        SHOW(shutdown(ends[0], SHUT_WR));
        SHOW(epoll_wait(epoll, events, 4, 5000));
        SHOW(read(ends[1], data, 64));
        SHOW(write(ends[1], "last", 4));
        SHOW(recv(ends[0], data, 4, MSG_WAITALL));
        SHOW(close(ends[1]));
        SHOW(read(ends[0], data, 64));
        _exit(21);
    }
    SHOW(status_of(child));
}

int main(void) {
    // Each is a process of its own that has all of the network to itself; poll is the time that its queue needs to be free again.
    for (int way = BY_PRCTL; way <= BY_NUMBER; way++, poll(NULL, 0, 1000)) in_the_middle(way);
    return 0;
}
