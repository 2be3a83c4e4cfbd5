// What the programs share: each line of output is an expression and what it came to.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

// The programs look at numbers that must not be descriptors; whoever runs the tests may have left some open. select(2) does not look at
// numbers behind the end of the kernel's table of descriptors, which is as long as the highest one ever asked for: with the library that is
// a high one, so it is here too.
__attribute__((constructor)) static void begin_with_a_long_and_empty_table(void) {
    close_range(3, ~0U, 0);
    int end = open("/dev/null", O_RDONLY);
    dup2(end, 1000);
    close_range(3, ~0U, 0);
}

// A number that is the same in every run.
#define SHOW(expression) (errno = 0, show(#expression, (long)(expression)))
// A number, such as a descriptor, of which only the sign is.
#define WORKS(expression) (errno = 0, works(#expression, (long)(expression)))

static inline long show(const char *expression, long value) {
    int error = errno;
    printf("%s: %ld%s%s\n", expression, value, value == -1 ? " " : "", value == -1 ? strerrorname_np(error) : "");
    fflush(stdout);
    return value;
}

static inline long works(const char *expression, long value) {
    if (value >= 0) {
        printf("%s: fine\n", expression);
        fflush(stdout);
        return value;
    }
    return show(expression, value);
}

static inline struct sockaddr_in loopback(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

// The port of a socket that was bound to any.
static inline struct sockaddr_in own_address(int fd) {
    struct sockaddr_in address;
    socklen_t len = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &len) != 0) {
        perror("getsockname");
        exit(1);
    }
    return address;
}

static inline int listener(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = loopback(0);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, 16) != 0) {
        perror("listener");
        exit(1);
    }
    return fd;
}

// Whether the ends of connections are as far apart as SIDESTEP_RELAY says, an address: a program there passes on what comes.
static inline int relayed(void) { return getenv("SIDESTEP_RELAY") != NULL; }

static inline int connected(struct sockaddr_in address) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        perror("connect");
        exit(1);
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

// A TCP connection, over loopback or through a relay: its two ends.
static inline void connection(int ends[2]) {
    if (relayed()) {
        struct sockaddr_in relay = loopback(7000);
        relay.sin_addr.s_addr = inet_addr(getenv("SIDESTEP_RELAY"));
        ends[0] = connected(relay);
        ends[1] = connected(relay);
    } else {
        int listening = listener();
        ends[0] = connected(own_address(listening));
        ends[1] = accept(listening, NULL, NULL);
        close(listening);
    }
}

// Waits until `fd` has something to read.
static inline void await(int fd) {
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    poll(&entry, 1, 5000);
}

// Waits until `fd` has so many octets to read.
static inline void await_octets(int fd, int count) {
    int there = 0;
    for (int turn = 0; turn < 5000 && there < count; turn++) {
        ioctl(fd, FIONREAD, &there);
        if (there < count) usleep(1000);
    }
}
