// Wrong arguments, and what the kernel says to them.
#include "show.h"

// Addresses where no program has anything: the compiler would warn about null pointers, which are the point here.
static void *const NOWHERE[] = {NULL, (void *)1, (void *)4095, (void *)-1, (void *)-4096, (void *)(1ul << 63)};
static void *volatile nothing;

// Which mistake is told first, if there is another, is the kernel's own affair.
static void on_at(int fd, int connected) {
    char data[8];
    struct sockaddr_in name;
    socklen_t len = sizeof name, negative = -1;
    struct iovec wrong = {nothing, 5}, huge = {data, (size_t)-1};
    struct msghdr message = {.msg_iov = &wrong, .msg_iovlen = 1};
    // Of the kernel's half the kernel says EFAULT here, too, though nothing is to go there.
    if ((size_t)nothing < 4096) SHOW(recv(fd, nothing, 0, MSG_DONTWAIT));
    if (connected) SHOW(send(fd, nothing, 5, MSG_NOSIGNAL));
    if (connected) SHOW(writev(fd, &wrong, 1));
    SHOW(writev(fd, &huge, 1));
    SHOW(readv(fd, nothing, 1));
    SHOW(readv(fd, &wrong, -1));
    SHOW(writev(fd, &wrong, 1025));
    SHOW(readv(fd, &wrong, 0));
    SHOW(sendmsg(fd, nothing, 0));
    if (connected) SHOW(sendmsg(fd, &message, MSG_NOSIGNAL));
    SHOW(recvmsg(fd, nothing, MSG_DONTWAIT));
    SHOW(sendmmsg(fd, nothing, 1, 0));
    SHOW(sendmmsg(fd, nothing, 0, 0));
    SHOW(getsockname(fd, nothing, &len));
    SHOW(getsockname(fd, (struct sockaddr *)&name, nothing));
    SHOW(getsockname(fd, (struct sockaddr *)&name, &negative));
    SHOW(connect(fd, nothing, 16));
    SHOW(connect(fd, (struct sockaddr *)&name, 500));
    SHOW(bind(fd, nothing, 16));
    SHOW(getsockopt(fd, SOL_SOCKET, SO_TYPE, nothing, &len));
    SHOW(getsockopt(fd, SOL_SOCKET, SO_TYPE, data, nothing));
    SHOW(getsockopt(fd, SOL_SOCKET, SO_TYPE, data, &negative));
    SHOW(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, nothing, 4));
    SHOW(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, data, -1));
    SHOW(ioctl(fd, FIONREAD, nothing));
    SHOW(ioctl(fd, 0xdead, nothing));
    SHOW(fcntl(fd, 12345, 0));
    SHOW(fcntl(fd, F_DUPFD, -1));
    SHOW(sendto(fd, "x", 1, 0, nothing, 16) >= -1);
}

static void on(int fd, int connected) {
    for (size_t at = 0; at < sizeof NOWHERE / sizeof *NOWHERE; at++) {
        nothing = NOWHERE[at];
        on_at(fd, connected);
    }
}

static void on_none(int fd) {
    char data[8];
    socklen_t len = 8;
    struct iovec vector = {data, 8};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    struct mmsghdr several = {.msg_hdr = message};
    SHOW(read(fd, data, 8));
    SHOW(write(fd, data, 8));
    SHOW(readv(fd, &vector, 1));
    SHOW(writev(fd, &vector, 1));
    SHOW(preadv2(fd, &vector, 1, -1, 0));
    SHOW(pwritev2(fd, &vector, 1, -1, 0));
    SHOW(recv(fd, data, 8, 0));
    SHOW(send(fd, data, 8, 0));
    SHOW(recvfrom(fd, data, 8, 0, NULL, NULL));
    SHOW(sendto(fd, data, 8, 0, NULL, 0));
    SHOW(recvmsg(fd, &message, 0));
    SHOW(sendmsg(fd, &message, 0));
    SHOW(recvmmsg(fd, &several, 1, 0, NULL));
    SHOW(sendmmsg(fd, &several, 1, 0));
    SHOW(sendfile(fd, fd, NULL, 1));
    SHOW(splice(fd, NULL, fd, NULL, 1, 0));
    SHOW(accept(fd, NULL, NULL));
    SHOW(accept4(fd, NULL, NULL, 0));
    SHOW(listen(fd, 1));
    SHOW(shutdown(fd, SHUT_WR));
    SHOW(getsockname(fd, (struct sockaddr *)data, &len));
    SHOW(getpeername(fd, (struct sockaddr *)data, &len));
    SHOW(getsockopt(fd, SOL_SOCKET, SO_TYPE, data, &len));
    SHOW(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, data, 4));
    SHOW(sockatmark(fd));
    SHOW(fcntl(fd, F_GETFL));
    SHOW(ioctl(fd, FIONREAD, data));
    SHOW(epoll_wait(fd, (struct epoll_event *)data, 1, 0));
}

int main(void) {
    int ends[2];
    signal(SIGPIPE, SIG_IGN);
    on(socket(AF_INET, SOCK_STREAM, 0), 0);
    connection(ends);
    on(ends[0], 1);
    on(socket(AF_INET, SOCK_DGRAM, 0), 0);
    int none = dup(0);
    close(none);
    on_none(none);
    on_none(-1);
    on_none(open("/dev/null", O_RDWR));
    SHOW(socket(AF_INET, 77, 0));
    SHOW(socket(-1, SOCK_STREAM, 0));
    SHOW(close(none));
    SHOW(close(-1));
    SHOW(dup(-1));
    SHOW(dup2(none, 30));
    SHOW(close_range(9, 3, 0));
    SHOW(close_range(30, 40, 77));
    return 0;
}
