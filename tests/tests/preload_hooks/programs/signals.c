// Handlers: what they interrupt, what they may call, how they leave, and what sigaction(2) says of them.
#include "show.h"

static volatile sig_atomic_t handled, kind, from_handler = -1;
static sigjmp_buf back;
static int handler_fd;

static void plain(int signal) { handled++, kind = signal; }
static void informed(int signal, siginfo_t *info, void *context) {
    handled++;
    kind = info->si_signo == signal && context != NULL ? info->si_code : -100;
    if (info->si_code == SI_QUEUE) kind = info->si_value.sival_int;
}
static void leaving(int signal) { siglongjmp(back, signal); }
static void sending(int signal) {
    if (from_handler < 0) from_handler = send(handler_fd, "!", 1, 0);
}

static void set(int signal, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    SHOW(sigaction(signal, &action, NULL));
}

static void after(int milliseconds) {
    struct itimerval timer = {.it_value = {0, milliseconds * 1000}};
    setitimer(ITIMER_REAL, &timer, NULL);
}

// A call that waits, and alarms until it is over: on a busy machine the first may come before it waits.
#define ALARMED(call) (alarms(20), end_of_alarms((long)(call)))

static void alarms(int milliseconds) {
    struct itimerval timer = {.it_value = {0, milliseconds * 1000}, .it_interval = {0, milliseconds * 1000}};
    setitimer(ITIMER_REAL, &timer, NULL);
}

static long end_of_alarms(long result) {
    int error = errno;
    alarms(0);
    errno = error;
    return result;
}

static void what_was_set(void) {
    struct sigaction old, action = {.sa_sigaction = informed, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaddset(&action.sa_mask, SIGUSR2);
    SHOW(sigaction(SIGUSR1, NULL, &old));
    SHOW(old.sa_handler == SIG_DFL);
    SHOW(sigaction(SIGUSR1, &action, &old));
    SHOW(old.sa_handler == SIG_DFL);
    action = (struct sigaction){.sa_handler = plain, .sa_flags = SA_RESETHAND | SA_NODEFER};
    SHOW(sigaction(SIGUSR1, &action, &old));
    SHOW(old.sa_sigaction == informed);
    SHOW(old.sa_flags & (SA_SIGINFO | SA_RESTART | SA_RESETHAND | SA_NODEFER));
    SHOW(sigismember(&old.sa_mask, SIGUSR2));
    SHOW(sigaction(SIGUSR1, NULL, &old));
    SHOW(old.sa_handler == plain);
    SHOW(old.sa_flags & (SA_SIGINFO | SA_RESTART | SA_RESETHAND | SA_NODEFER));
    SHOW(raise(SIGUSR1));
    SHOW(handled);
    SHOW(sigaction(SIGUSR1, NULL, &old)); // reset by the signal
    SHOW(old.sa_handler == SIG_DFL);
    SHOW(signal(SIGUSR1, plain) == SIG_DFL);
    SHOW(signal(SIGUSR1, leaving) == plain);
    SHOW(sigset(SIGUSR1, plain) == leaving);
    SHOW(sysv_signal(SIGUSR1, leaving) == plain);
    SHOW(sigaction(SIGUSR1, NULL, &old));
    SHOW(old.sa_flags & (SA_SIGINFO | SA_RESTART | SA_RESETHAND | SA_NODEFER | SA_ONESHOT));
    SHOW(signal(SIGUSR1, SIG_IGN) == leaving);
    SHOW(signal(SIGUSR1, SIG_DFL) == SIG_IGN);
    SHOW(sigaction(SIGKILL, &action, NULL));
    SHOW(sigaction(99, &action, NULL));
    SHOW(signal(99, plain) == SIG_ERR);
    SHOW(signal(SIGUSR1, plain) == SIG_DFL);
    SHOW(siginterrupt(SIGUSR1, 1));
    SHOW(sigaction(SIGUSR1, NULL, &old));
    SHOW(old.sa_flags & SA_RESTART);
}

// As rt_sigaction(2) has it; the C library's own is asked what was set.
static void what_was_set_by_number(void) {
    struct { void (*handler)(int); unsigned long flags; void (*restorer)(void); unsigned long mask; } raw, before;
    struct sigaction old, action = {.sa_handler = plain};
    SHOW(sigaction(SIGUSR2, &action, NULL)); // a restorer of the C library's, to be copied
    SHOW(syscall(SYS_rt_sigaction, SIGUSR2, NULL, &raw, 8));
    SHOW(raw.handler == plain);
    raw.handler = (void (*)(int))informed, raw.flags |= SA_SIGINFO | SA_RESTART, raw.mask = 1 << (SIGUSR1 - 1);
    SHOW(syscall(SYS_rt_sigaction, SIGUSR2, &raw, &before, 8));
    SHOW(before.handler == plain);
    SHOW(sigaction(SIGUSR2, NULL, &old));
    SHOW(old.sa_sigaction == informed);
    SHOW(old.sa_flags & (SA_SIGINFO | SA_RESTART | SA_RESETHAND | SA_NODEFER));
    SHOW(sigismember(&old.sa_mask, SIGUSR1));
    handled = 0;
    SHOW(raise(SIGUSR2));
    SHOW(handled);
    raw.handler = SIG_DFL, raw.flags &= ~SA_SIGINFO;
    SHOW(syscall(SYS_rt_sigaction, SIGUSR2, &raw, &before, 8));
    SHOW(before.handler == (void (*)(int))informed);
    SHOW(syscall(SYS_rt_sigaction, SIGUSR2, NULL, &raw, 4));
    SHOW(syscall(SYS_rt_sigaction, SIGKILL, &raw, NULL, 8));
}

static void what_is_interrupted(int fd, int other) {
    char data[8];
    set(SIGALRM, plain, 0);
    SHOW(ALARMED(recv(fd, data, 8, 0)));
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    SHOW(ALARMED(poll(&entry, 1, -1)));
    fd_set set_of_one;
    FD_ZERO(&set_of_one); FD_SET(fd, &set_of_one);
    SHOW(ALARMED(select(fd + 1, &set_of_one, NULL, NULL, NULL)));
    SHOW(FD_ISSET(fd, &set_of_one) != 0);
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
    set(SIGALRM, plain, SA_RESTART);
    SHOW(ALARMED(epoll_wait(epoll, &event, 1, -1)));
    close(epoll);
    // Restarted: the handler writes what is then read.
    handler_fd = other;
    set(SIGALRM, sending, SA_RESTART);
    SHOW(ALARMED(read(fd, data, 8)));
    SHOW(from_handler);
    SHOW(handled >= 4);
}

static void masks_of_calls(int fd) {
    sigset_t block, none;
    sigemptyset(&none), sigemptyset(&block), sigaddset(&block, SIGUSR2);
    set(SIGUSR2, plain, 0);
    sigprocmask(SIG_BLOCK, &block, NULL);
    raise(SIGUSR2);
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    struct timespec moment = {0, 1000000};
    SHOW(poll(&entry, 1, 1));
    SHOW(ppoll(&entry, 1, NULL, &none));
    raise(SIGUSR2);
    fd_set set_of_one;
    FD_ZERO(&set_of_one); FD_SET(fd, &set_of_one);
    SHOW(pselect(fd + 1, &set_of_one, NULL, NULL, NULL, &none));
    raise(SIGUSR2);
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
    SHOW(epoll_pwait(epoll, &event, 1, 1, NULL));
    SHOW(epoll_pwait(epoll, &event, 1, -1, &none));
    raise(SIGUSR2);
    SHOW(epoll_pwait2(epoll, &event, 1, &moment, &none));
    sigset_t now;
    sigprocmask(SIG_UNBLOCK, &block, &now);
    SHOW(sigismember(&now, SIGUSR2));
    SHOW(handled);
    close(epoll);
}

static void how_handlers_leave(int fd, int other) {
    char data[8];
    set(SIGALRM, leaving, SA_NODEFER);
    int left = 0;
    for (volatile int turn = 0; turn < 3; turn++) {
        if (sigsetjmp(back, 1) == 0) {
            after(10);
            recv(fd, data, 8, 0);
        } else {
            left++;
        }
    }
    SHOW(left);
    SHOW(write(other, "still", 5)); // our calls are ours after that as before
    SHOW(recv(fd, data, 8, 0));
}

static void what_is_told(void) {
    struct sigaction action = {.sa_sigaction = informed, .sa_flags = SA_SIGINFO};
    sigaction(SIGRTMIN, &action, NULL);
    handled = 0;
    SHOW(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = 4711}));
    SHOW(handled);
    SHOW(kind);
    sigaction(SIGUSR1, &action, NULL);
    SHOW(kill(getpid(), SIGUSR1));
    SHOW(kind == SI_USER);
}

static void broken_pipe(int fd, int other) {
    handled = 0;
    set(SIGPIPE, plain, 0);
    SHOW(shutdown(fd, SHUT_WR));
    SHOW(send(fd, "x", 1, MSG_NOSIGNAL));
    SHOW(handled);
    SHOW(send(fd, "x", 1, 0));
    SHOW(handled);
    SHOW(write(fd, "x", 1));
    SHOW(handled);
    SHOW(kind == SIGPIPE);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGPIPE, SIG_DFL);
        write(fd, "x", 1);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    SHOW(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE);
}

// Many signals at any point of many calls: a handler sends what it likes, none is lost, and no call fails of it.
static volatile sig_atomic_t storms, lost;
static int sent_by_handlers[2];
static void storm(int signal) {
    if (send(sent_by_handlers[0], "s", 1, MSG_NOSIGNAL) == 1) storms++;
    else lost++;
}

static void at_any_point(int ends[2]) {
    connection(sent_by_handlers);
    set(SIGALRM, storm, SA_RESTART);
    struct itimerval often = {.it_interval = {0, 200}, .it_value = {0, 200}}, never = {0};
    setitimer(ITIMER_REAL, &often, NULL);
    char data[1024];
    long moved = 0, failed = 0;
    for (time_t end = time(NULL) + 100; storms < 300 && time(NULL) < end; moved++) {
        if (send(ends[0], data, 64, 0) != 64 || recv(ends[1], data, 64, MSG_WAITALL) != 64) failed++;
    }
    setitimer(ITIMER_REAL, &never, NULL);
    SHOW(failed);
    SHOW(lost);
    SHOW(moved > 0 && storms >= 300);
    SHOW(recv(sent_by_handlers[1], data, storms, MSG_WAITALL) == storms);
    close(sent_by_handlers[0]), close(sent_by_handlers[1]);
}

int main(void) {
    int ends[2];
    connection(ends);
    what_was_set();
    what_was_set_by_number();
    what_is_interrupted(ends[0], ends[1]);
    masks_of_calls(ends[0]);
    how_handlers_leave(ends[0], ends[1]);
    what_is_told();
    at_any_point(ends);
    broken_pipe(ends[0], ends[1]);
    return 0;
}
