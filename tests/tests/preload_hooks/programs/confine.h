// seccomp(2): programs that are ended for any system call that is not on their list.
#pragma once
#include "show.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum way { BY_PRCTL, BY_SECCOMP, BY_NUMBER };

// From now on this process is ended for any other system call than these; by seccomp(2) also for those of its other threads, which it did not make.
static inline int confine(enum way way, const int *calls, size_t count) {
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

static inline int status_of(pid_t child) {
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -status;
}

static inline int watching(int fd, int events) {
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = events, .data.fd = fd};
    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0 ? epoll : -1;
}
