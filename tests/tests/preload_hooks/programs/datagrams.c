// UDP and Unix sockets: names, truncation, messages with control data, descriptors that are passed.
#include "show.h"

static int udp(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in address = loopback(0);
    bind(fd, (struct sockaddr *)&address, sizeof address);
    return fd;
}

static void names(void) {
    int here = udp(), there = udp();
    struct sockaddr_in to = own_address(there), from;
    socklen_t len = sizeof from;
    char data[32];
    SHOW(sendto(here, "datagram", 8, 0, (struct sockaddr *)&to, sizeof to));
    SHOW(recvfrom(there, data, 3, MSG_TRUNC, (struct sockaddr *)&from, &len));
    SHOW(len);
    SHOW(from.sin_port == own_address(here).sin_port);
    SHOW(sendto(here, "", 0, 0, (struct sockaddr *)&to, sizeof to));
    SHOW(recv(there, data, sizeof data, 0));
    SHOW(sendto(here, "x", 1, 0, (struct sockaddr *)&to, 3));
    SHOW(sendto(here, "x", 1, 0, (struct sockaddr *)&to, -1));
    SHOW(sendto(here, "x", 1, 0, NULL, 0));
    SHOW(connect(here, (struct sockaddr *)&to, sizeof to));
    SHOW(write(here, "x", 1));
    len = 5;
    SHOW(recvfrom(there, data, sizeof data, 0, (struct sockaddr *)&from, &len));
    SHOW(len);
    SHOW(send(here, data, 100000, 0));
    SHOW(shutdown(here, SHUT_WR));
    SHOW(send(here, "x", 1, 0)); // no SIGPIPE: not a stream
    close(here), close(there);
}

static void control(void) {
    int here = udp(), there = udp(), on = 1;
    setsockopt(there, IPPROTO_IP, IP_PKTINFO, &on, sizeof on);
    struct sockaddr_in to = own_address(there), from;
    char data[8], space[128];
    struct iovec vector = {data, sizeof data};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_name = &from, .msg_namelen = sizeof from};
    message.msg_control = space, message.msg_controllen = sizeof space;
    SHOW(sendto(here, "123456789", 9, 0, (struct sockaddr *)&to, sizeof to));
    SHOW(recvmsg(there, &message, 0));
    SHOW(message.msg_flags);
    SHOW(message.msg_namelen);
    SHOW(message.msg_controllen);
    SHOW(CMSG_FIRSTHDR(&message)->cmsg_type);
    SHOW(sendto(here, "1", 1, 0, (struct sockaddr *)&to, sizeof to));
    message.msg_controllen = 4;
    SHOW(recvmsg(there, &message, 0));
    SHOW(message.msg_flags);
    SHOW(message.msg_controllen);
    int tos = 8;
    struct cmsghdr *header = (struct cmsghdr *)space;
    *header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof tos), .cmsg_level = IPPROTO_IP, .cmsg_type = IP_TOS};
    memcpy(CMSG_DATA(header), &tos, sizeof tos);
    struct msghdr out = {.msg_iov = &vector, .msg_iovlen = 1, .msg_name = &to, .msg_namelen = sizeof to};
    out.msg_control = space, out.msg_controllen = CMSG_SPACE(sizeof tos);
    SHOW(sendmsg(here, &out, 0));
    header->cmsg_len = 3;
    SHOW(sendmsg(here, &out, 0));
    struct mmsghdr several[4] = {{.msg_hdr = {.msg_iov = &vector, .msg_iovlen = 1}}};
    SHOW(recv(there, data, 8, 0));
    out.msg_control = NULL, out.msg_controllen = 0;
    several[1].msg_hdr = several[2].msg_hdr = several[3].msg_hdr = several[0].msg_hdr;
    struct mmsghdr outs[2] = {{.msg_hdr = out}, {.msg_hdr = out}};
    SHOW(sendmmsg(here, outs, 2, 0));
    SHOW(recvmmsg(there, several, 4, MSG_WAITFORONE, NULL));
    SHOW(several[1].msg_len);
    close(here), close(there);
}

static void passed(void) {
    int pair[2], pipes[2], received = -1;
    char data[4], space[CMSG_SPACE(sizeof(int))];
    WORKS(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    WORKS(pipe(pipes));
    struct iovec vector = {data, 1};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(header), &pipes[1], sizeof(int));
    SHOW(sendmsg(pair[0], &message, 0));
    memset(space, 0, sizeof space);
    SHOW(recvmsg(pair[1], &message, MSG_CMSG_CLOEXEC));
    memcpy(&received, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
    SHOW(fcntl(received, F_GETFD));
    SHOW(write(received, "pipe", 4));
    SHOW(read(pipes[0], data, 4));
    SHOW(close(received));
    struct sockaddr_un name;
    socklen_t len = sizeof name;
    SHOW(getsockname(pair[0], (struct sockaddr *)&name, &len));
    SHOW(len);
    close(pair[0]), close(pair[1]), close(pipes[0]), close(pipes[1]);
}

int main(void) {
    names();
    control();
    passed();
    return 0;
}
