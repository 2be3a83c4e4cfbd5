// seccomp(2): programs that are ended for any system call that is not on their list, before they use the network or in the middle of it.
#include "show.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum way { BY_PRCTL, BY_SECCOMP, BY_NUMBER };

// From now on this process is ended for any other system call than these; by seccomp(2) also for those of its other threads, which it did not make.
static int confine(enum way way, const int *calls, size_t count) {
    struct sock_filter filter[64];
    size_t end = 0;
    filter[end++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < count; i++) {
        filter[end++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i], 0, 1);
        filter[end++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    filter[end++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    struct sock_fprog program = {.len = end, .filter = filter};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    switch (way) {
        case BY_PRCTL: return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
        case BY_SECCOMP: return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
        default: return syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
    }
}

static int status_of(pid_t child) {
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -status;
}

static int watching(int fd, int events) {
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = events, .data.fd = fd};
    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0 ? epoll : -1;
}

static void what_only_asks_whether_it_could_be(int ends[2]) {
    char data[8];
    SHOW(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL));
    SHOW(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL));
    SHOW(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 1, NULL));
    SHOW(prctl(PR_GET_SECCOMP));
    SHOW(send(ends[0], "asked", 5, 0));
    SHOW(recv(ends[1], data, 5, MSG_WAITALL));
}

// What is under way when the list comes into force: a connection with unread data, waited for by epoll.
static void in_the_middle(enum way way) {
    static const int calls[] = {SYS_epoll_wait, SYS_poll, SYS_read, SYS_write, SYS_recvfrom, SYS_sendto, SYS_shutdown, SYS_close, SYS_futex, SYS_exit_group};
    int ends[2];
    connection(ends);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        // Of its own, so that nobody else has them.
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
    // The parent's are where they were.
    char data[8];
    SHOW(send(ends[0], "parent", 6, 0));
    SHOW(recv(ends[1], data, 6, MSG_WAITALL));
    close(ends[0]), close(ends[1]);
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
    for (int way = BY_PRCTL; way <= BY_NUMBER; way++) in_the_middle(way);
    under_way();
    with_what_was_inherited(ends);
    strictly(ends);
    before_anything();
    SHOW(send(ends[0], "end", 3, 0));
    char data[8];
    SHOW(recv(ends[1], data, 3, MSG_WAITALL));
    return 0;
}
