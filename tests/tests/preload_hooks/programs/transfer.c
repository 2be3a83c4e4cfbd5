// Every call that moves octets over a TCP connection, and those on its descriptor.
#include "show.h"

static void vectors(int ends[2]) {
    char first[4], second[8];
    struct iovec out[3] = {{"abc", 3}, {NULL, 0}, {"defgh", 5}};
    struct iovec in[3] = {{first, 4}, {NULL, 0}, {second, 8}};
    SHOW(writev(ends[0], out, 3));
    await_octets(ends[1], 8);
    SHOW(readv(ends[1], in, 3));
    SHOW(memcmp(first, "abcd", 4) + memcmp(second, "efgh", 4));
    SHOW(in[0].iov_len + in[2].iov_len);
    SHOW(pwritev2(ends[0], out, 3, -1, 0));
    await_octets(ends[1], 8);
    SHOW(preadv2(ends[1], in, 3, -1, 0));
    SHOW(preadv2(ends[1], in, 3, -1, RWF_NOWAIT));
    SHOW(preadv2(ends[1], in, 3, 0, 0));
    SHOW(preadv(ends[1], in, 3, 0));
    SHOW(pwritev(ends[0], out, 3, 0));
    SHOW(pread(ends[1], first, 4, 0));
    SHOW(pwrite(ends[0], first, 4, 0));
    SHOW(lseek(ends[0], 0, SEEK_CUR));
    struct iovec many[40];
    for (int i = 0; i < 40; i++) many[i] = (struct iovec){"x", 1};
    SHOW(writev(ends[0], many, 40));
    await_octets(ends[1], 40);
    SHOW(recv(ends[1], first, 4, MSG_PEEK));
    char all[64];
    SHOW(recv(ends[1], all, 40, MSG_WAITALL));
}

static void messages(int ends[2]) {
    char data[16], name[64], control[64];
    struct iovec vector = {"message", 7};
    struct msghdr out = {.msg_iov = &vector, .msg_iovlen = 1};
    SHOW(sendmsg(ends[0], &out, 0));
    struct iovec room = {data, sizeof data};
    struct msghdr in = {.msg_iov = &room, .msg_iovlen = 1, .msg_name = name, .msg_namelen = sizeof name};
    in.msg_control = control, in.msg_controllen = sizeof control, in.msg_flags = -1;
    await_octets(ends[1], 7);
    SHOW(recvmsg(ends[1], &in, 0));
    SHOW(in.msg_namelen);
    SHOW(in.msg_controllen);
    SHOW(in.msg_flags);
    struct mmsghdr several[3] = {{.msg_hdr = out}, {.msg_hdr = out}, {.msg_hdr = out}};
    SHOW(sendmmsg(ends[0], several, 3, 0));
    SHOW(several[0].msg_len + several[1].msg_len + several[2].msg_len);
    struct mmsghdr rooms[2] = {{.msg_hdr = {.msg_iov = &room, .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = &room, .msg_iovlen = 1}}};
    await_octets(ends[1], 21);
    SHOW(recvmmsg(ends[1], rooms, 2, MSG_WAITFORONE, NULL));
    SHOW(rooms[0].msg_len + rooms[1].msg_len);
    struct timespec short_time = {0, 1000};
    SHOW(recvmmsg(ends[1], rooms, 2, MSG_DONTWAIT, &short_time));
    SHOW(send(ends[0], "late", 4, 0));
    await_octets(ends[1], 4);
    SHOW(recvmmsg(ends[1], rooms, 1, 0, &short_time));
    out.msg_iovlen = 1025;
    SHOW(sendmsg(ends[0], &out, 0));
    in.msg_iovlen = 1025;
    SHOW(recvmsg(ends[1], &in, 0));
}

static void files(int ends[2]) {
    char path[] = "/tmp/sidestep-preload-XXXXXX", data[64];
    int file = mkstemp(path), pipes[2];
    unlink(path);
    SHOW(write(file, "0123456789", 10));
    off_t offset = 3;
    SHOW(sendfile(ends[0], file, &offset, 4));
    SHOW(offset);
    SHOW(lseek(file, 0, SEEK_SET));
    off64_t offset64 = 8;
    SHOW(sendfile64(ends[0], file, &offset64, 100));
    SHOW(sendfile(ends[0], file, NULL, 5));
    SHOW(lseek(file, 0, SEEK_CUR));
    SHOW(recv(ends[1], data, 11, MSG_WAITALL));
    SHOW(memcmp(data, "34568901234", 11));
    SHOW(sendfile(file, ends[1], NULL, 5));
    SHOW(pipe(pipes));
    SHOW(write(pipes[1], "through", 7));
    SHOW(splice(pipes[0], NULL, ends[0], NULL, 7, 0));
    await_octets(ends[1], 7);
    SHOW(splice(ends[1], NULL, pipes[1], NULL, 7, 0));
    SHOW(read(pipes[0], data, 64));
    loff_t somewhere = 0;
    SHOW(splice(ends[1], &somewhere, pipes[1], NULL, 7, 0));
    SHOW(splice(ends[1], NULL, ends[0], NULL, 7, 0));
    close(file), close(pipes[0]), close(pipes[1]);
}

static void names(void) {
    int listening = listener();
    struct sockaddr_in address = own_address(listening), peer;
    socklen_t len = sizeof peer;
    int end = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    SHOW(getpeername(end, (struct sockaddr *)&peer, &len));
    SHOW(accept4(listening, NULL, NULL, -1));
    SHOW(connect(end, (struct sockaddr *)&address, sizeof address) == 0 || errno == EINPROGRESS);
    await(listening);
    len = 100;
    int accepted = WORKS(accept4(listening, (struct sockaddr *)&peer, &len, SOCK_CLOEXEC | SOCK_NONBLOCK));
    SHOW(len);
    SHOW(peer.sin_port == own_address(end).sin_port);
    SHOW(fcntl(accepted, F_GETFD));
    SHOW(fcntl(accepted, F_GETFL));
    len = 4;
    SHOW(getpeername(accepted, (struct sockaddr *)&peer, &len));
    SHOW(len);
    len = 200;
    SHOW(getsockname(accepted, (struct sockaddr *)&peer, &len));
    SHOW(len);
    SHOW(fcntl(listening, F_SETFL, O_NONBLOCK));
    SHOW(accept(listening, NULL, NULL));
    close(accepted), close(end), close(listening);
}

static void options(int ends[2]) {
    int value = 1;
    socklen_t len = sizeof value;
    SHOW(setsockopt(ends[0], IPPROTO_TCP, TCP_NODELAY, &value, len));
    value = 0;
    SHOW(getsockopt(ends[0], IPPROTO_TCP, TCP_NODELAY, &value, &len));
    SHOW(value);
    SHOW(getsockopt(ends[0], SOL_SOCKET, SO_TYPE, &value, &len));
    SHOW(value);
    len = 1;
    SHOW(getsockopt(ends[0], SOL_SOCKET, SO_ERROR, &value, &len));
    SHOW(len);
    SHOW(setsockopt(ends[0], SOL_SOCKET, SO_RCVBUF, &value, 1));
    SHOW(setsockopt(ends[0], 12345, 1, &value, 4));
    struct tcp_info info;
    len = sizeof info;
    SHOW(getsockopt(ends[0], IPPROTO_TCP, TCP_INFO, &info, &len));
    SHOW(info.tcpi_state);
    char algorithm[16];
    len = sizeof algorithm;
    SHOW(getsockopt(ends[0], IPPROTO_TCP, TCP_CONGESTION, algorithm, &len));
}

static void numbers(int ends[2]) {
    int value = 0, copy;
    SHOW(send(ends[0], "12345", 5, 0));
    await_octets(ends[1], 5);
    SHOW(ioctl(ends[1], FIONREAD, &value));
    SHOW(value);
    copy = WORKS(dup(ends[1]));
    char data[8];
    SHOW(read(copy, data, 2));
    SHOW(dup2(copy, copy) == copy);
    SHOW(dup3(copy, copy, 0));
    SHOW(dup2(copy, 40));
    SHOW(dup3(copy, 41, O_CLOEXEC));
    SHOW(fcntl(41, F_GETFD));
    SHOW(fcntl(copy, F_DUPFD, 50));
    SHOW(fcntl(copy, F_DUPFD_CLOEXEC, 50));
    SHOW(fcntl(51, F_GETFD));
    SHOW(read(51, data, 3));
    value = 1;
    SHOW(ioctl(40, FIONBIO, &value));
    SHOW(fcntl(51, F_GETFL) & O_NONBLOCK);
    SHOW(read(50, data, 3));
    value = 0;
    SHOW(ioctl(40, FIONBIO, &value));
    SHOW(fcntl(40, F_SETFD, FD_CLOEXEC));
    SHOW(fcntl(40, F_GETOWN));
    SHOW(ioctl(40, TIOCOUTQ, &value));
    SHOW(ioctl(40, TCGETS, data));
    SHOW(close_range(40, 51, CLOSE_RANGE_CLOEXEC));
    SHOW(fcntl(50, F_GETFD));
    SHOW(close_range(40, 51, 0));
    SHOW(close(40));
    SHOW(dup2(copy, 60));
    closefrom(60);
    SHOW(close(60));
    SHOW(close(copy));
    SHOW(close(copy));
    SHOW(dup2(99, 60));
    SHOW(syscall(SYS_dup, 99));
    SHOW(syscall(SYS_sendto, ends[0], "sc", 2, 0, NULL, 0));
    await_octets(ends[1], 2);
    SHOW(syscall(SYS_read, ends[1], data, 2));
    struct iovec piece = {"pv", 2}, room = {data, 2};
    SHOW(syscall(SYS_pwritev2, ends[0], &piece, 1, -1L, 0, 0));
    SHOW(syscall(SYS_preadv2, ends[1], &room, 1, -1L, 0, 0));
    SHOW(memcmp(data, "pv", 2));
    SHOW(syscall(SYS_preadv2, ends[1], &room, 1, -1L, 0, RWF_NOWAIT));
    SHOW(syscall(SYS_preadv2, ends[1], &room, 1, 0L, 0, 0));
    SHOW(syscall(SYS_fcntl, ends[1], F_GETFL, 0));
}

static void ends_of_streams(int ends[2]) {
    char data[8];
    if (!relayed()) { // where urgent data ends
        SHOW(send(ends[0], "!", 1, MSG_OOB));
        struct pollfd entry = {.fd = ends[1], .events = POLLPRI};
        SHOW(poll(&entry, 1, 5000));
        SHOW(entry.revents);
        SHOW(recv(ends[1], data, 1, MSG_OOB));
    }
    SHOW(sockatmark(ends[1]));
    SHOW(read(ends[1], data, 0));
    SHOW(shutdown(ends[0], SHUT_WR));
    SHOW(read(ends[1], data, 8));
    SHOW(send(ends[0], "x", 1, MSG_NOSIGNAL));
    signal(SIGPIPE, SIG_IGN);
    SHOW(write(ends[0], "x", 1));
    SHOW(shutdown(ends[0], SHUT_WR));
    SHOW(shutdown(ends[0], 17));
    SHOW(close(ends[0]));
    SHOW(close(ends[1]));
}

int main(void) {
    int ends[2];
    connection(ends);
    char data[16];
    SHOW(write(ends[0], "hello", 5));
    await_octets(ends[1], 5);
    SHOW(read(ends[1], data, sizeof data));
    SHOW(send(ends[1], "reply", 5, 0));
    struct sockaddr_in from;
    socklen_t len = sizeof from;
    await_octets(ends[0], 5);
    SHOW(recvfrom(ends[0], data, sizeof data, 0, (struct sockaddr *)&from, &len));
    SHOW(len);
    SHOW(sendto(ends[0], "x", 1, 0, (struct sockaddr *)&from, sizeof from));
    SHOW(recv(ends[1], data, sizeof data, MSG_TRUNC));
    SHOW(recv(ends[1], data, sizeof data, MSG_DONTWAIT));
    vectors(ends);
    messages(ends);
    files(ends);
    names();
    options(ends);
    numbers(ends);
    ends_of_streams(ends);
    return 0;
}
