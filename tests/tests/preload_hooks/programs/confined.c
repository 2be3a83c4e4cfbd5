// Programs that choose their system calls before they use the network, and what they inherit and leave to others.
#include "confine.h"

static void what_only_asks_whether_it_could_be(int ends[2]) {
    char data[8];
    SHOW(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL));
    SHOW(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL));
    SHOW(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 1, NULL));
    SHOW(prctl(PR_GET_SECCOMP));
    SHOW(send(ends[0], "asked", 5, 0));
    SHOW(recv(ends[1], data, 5, MSG_WAITALL));
}

// A connection that is being made when the list comes into force.
static void under_way(void) {
    static const int calls[] = {SYS_poll, SYS_read, SYS_write, SYS_getsockopt, SYS_exit_group};
    int listening = relayed() ? -1 : listener();
    struct sockaddr_in address = relayed() ? loopback(7000) : own_address(listening);
    if (relayed()) address.sin_addr.s_addr = inet_addr(getenv("SIDESTEP_RELAY"));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        char data[8];
        int first = connected(address), second = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), error = -1;
        socklen_t len = sizeof error;
        connect(second, (struct sockaddr *)&address, sizeof address); // Where the peer is near, it may be there at once.
        SHOW(confine(BY_PRCTL, calls, COUNT(calls)));
        struct pollfd entry = {.fd = second, .events = POLLOUT};
        SHOW(poll(&entry, 1, 10000));
        SHOW(entry.revents);
        SHOW(getsockopt(second, SOL_SOCKET, SO_ERROR, &error, &len));
        SHOW(error);
        SHOW(write(second, "made", 4));
        if (relayed()) SHOW(read(first, data, 8));
        _exit(25);
    }
    SHOW(status_of(child));
    close(listening);
}

// A child of which the connection is its parent's.
static void with_what_was_inherited(int ends[2]) {
    static const int calls[] = {SYS_read, SYS_write, SYS_exit_group};
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        char data[8];
        int fine = confine(BY_SECCOMP, calls, COUNT(calls)) == 0 && read(ends[1], data, 8) == 4 && write(ends[1], "back", 4) == 4;
        _exit(fine ? 22 : 1);
    }
    char data[8];
    SHOW(send(ends[0], "fork", 4, 0));
    SHOW(status_of(child));
    SHOW(recv(ends[0], data, 4, MSG_WAITALL));
}

// Two system calls and the end are all that there is.
static void strictly(int ends[2]) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        char data[8];
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) _exit(1);
        int fine = read(ends[1], data, 8) == 6 && write(ends[1], "back", 4) == 4;
        syscall(SYS_exit, fine ? 23 : 1);
    }
    char data[8];
    SHOW(send(ends[0], "strict", 6, 0));
    SHOW(status_of(child));
    SHOW(recv(ends[0], data, 4, MSG_WAITALL));
}

// A server that chooses its calls before it serves; it listens where others reach it.
static void before_anything(void) {
    static const int calls[] = {SYS_epoll_wait, SYS_accept4, SYS_accept, SYS_poll, SYS_read, SYS_write, SYS_sendto, SYS_recvfrom, SYS_close, SYS_exit_group};
    int listening = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in address = {.sin_family = AF_INET};
    bind(listening, (struct sockaddr *)&address, sizeof address);
    listen(listening, 4);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int epoll = watching(listening, EPOLLIN);
        struct epoll_event event;
        char data[8];
        SHOW(confine(BY_PRCTL, calls, COUNT(calls)));
        SHOW(epoll_wait(epoll, &event, 1, 10000));
        int fd = accept4(listening, NULL, NULL, 0);
        WORKS(fd);
        SHOW(read(fd, data, 8));
        SHOW(send(fd, "answer", 6, 0));
        SHOW(close(fd));
        _exit(24);
    }
    int fd = connected(loopback(ntohs(own_address(listening).sin_port)));
    char data[8];
    send(fd, "ask", 3, 0); // Silently: the child prints meanwhile.
    SHOW(status_of(child));
    SHOW(recv(fd, data, 6, MSG_WAITALL));
    close(fd), close(listening);
}

int main(void) {
    int ends[2];
    connection(ends);
    what_only_asks_whether_it_could_be(ends);
    under_way();
    with_what_was_inherited(ends);
    strictly(ends);
    before_anything();
    SHOW(send(ends[0], "end", 3, 0));
    char data[8];
    SHOW(recv(ends[1], data, 3, MSG_WAITALL));
    return 0;
}
