// fork, vfork, exec, posix_spawn and the ways to end, each seen from the other side.
#include "show.h"
#include <sched.h>

extern char **environ;

static int status_of(pid_t child) {
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -status;
}

static void forks(int ends[2]) {
    char data[8];
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int fine = recv(ends[1], data, 8, 0) == 4 && send(ends[1], "back", 4, 0) == 4;
        _exit(fine ? 11 : 1);
    }
    SHOW(send(ends[0], "fork", 4, 0));
    SHOW(status_of(child));
    SHOW(recv(ends[0], data, 8, 0));
    child = _Fork();
    if (child == 0) _Exit(send(ends[1], "x", 1, 0) == 1 ? 12 : 1);
    SHOW(status_of(child));
    child = vfork();
    if (child == 0) _exit(13);
    SHOW(status_of(child));
    SHOW(recv(ends[0], data, 1, 0));
    // A program that vfork starts: the child changes only what execve takes along.
    child = vfork();
    if (child == 0) {
        dup2(ends[1], 9);
        execl("/bin/sh", "sh", "-c", "echo from vfork >&9; exit 15", NULL);
        _exit(1);
    }
    SHOW(status_of(child));
    char line[32];
    SHOW(recv(ends[0], line, 11, MSG_WAITALL));
    SHOW(close(9));
}

static int execute(int which, char **arguments, char **environment) {
    pid_t child = fork();
    if (child != 0) return status_of(child);
    int shell = open("/bin/sh", O_RDONLY | O_CLOEXEC);
    switch (which) {
        case 0: execve("/bin/sh", arguments, environment); break;
        case 1: environ = environment, execv("/bin/sh", arguments); break;
        case 2: environ = environment, execvp("sh", arguments); break;
        case 3: execvpe("sh", arguments, environment); break;
        case 4: fexecve(open("/bin/sh", O_RDONLY), arguments, environment); break;
        case 5: execveat(shell, "", arguments, environment, AT_EMPTY_PATH); break;
        case 6: environ = environment, execl("/bin/sh", "sh", "-c", arguments[2], NULL); break;
        case 7: execle("/bin/sh", "sh", "-c", arguments[2], NULL, environment); break;
        case 8: environ = environment, execlp("sh", "sh", "-c", arguments[2], NULL); break;
        case 9: syscall(SYS_execve, "/bin/sh", arguments, environment); break;
        case 10: syscall(SYS_execveat, shell, "", arguments, environment, AT_EMPTY_PATH); break;
    }
    _exit(99);
}

static void programs(void) {
    char *arguments[] = {"sh", "-c", "test \"$ANSWER\" = 42 && exit 42", NULL};
    char *environment[] = {"ANSWER=42", "PATH=/bin:/usr/bin", NULL};
    for (int which = 0; which < 11; which++) SHOW(execute(which, arguments, environment));
    SHOW(execve("/nowhere", arguments, environment));
    SHOW(execvp("nowhere-at-all", arguments));
    SHOW(execl("/nowhere", "x", NULL));
}

// Whatever came before it, and in however many pieces: what no fork's child sent above may be among it.
static int receives_to_the_end_of(int fd, const char *text) {
    char data[64];
    size_t len = 0, wanted = strlen(text);
    while (len < wanted || memcmp(data + len - wanted, text, wanted) != 0) {
        ssize_t more = recv(fd, data + len, sizeof data - len, 0);
        if (more <= 0) return 0;
        len += more;
    }
    return 1;
}

static void spawned(int ends[2]) {
    char *arguments[] = {"sh", "-c", "echo spawned; echo $ANSWER >&2", NULL}, *environment[] = {"ANSWER=42", NULL}, line[32];
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    SHOW(posix_spawn_file_actions_adddup2(&actions, ends[1], 1));
    SHOW(posix_spawn_file_actions_adddup2(&actions, ends[1], 2));
    SHOW(posix_spawn_file_actions_addclose(&actions, ends[1]));
    pid_t child;
    SHOW(posix_spawn(&child, "/bin/sh", &actions, NULL, arguments, environment));
    SHOW(status_of(child));
    SHOW(recv(ends[0], line, 11, MSG_WAITALL));
    SHOW(memcmp(line, "spawned\n42\n", 11));
    arguments[2] = "exit 6";
    SHOW(posix_spawnp(&child, "sh", NULL, NULL, arguments, environ));
    SHOW(status_of(child));
    SHOW(posix_spawn(&child, "/nowhere", NULL, NULL, arguments, environ));
    SHOW(system("exit 3") >> 8);
    FILE *pipe = popen("echo popped", "r");
    SHOW(fgets(line, sizeof line, pipe) != NULL);
    SHOW(memcmp(line, "popped\n", 7));
    SHOW(pclose(pipe));
    // Connections that children get under their own numbers, nobody having said so.
    for (int which = 0; which < 3; which++) {
        int own[2];
        connection(own);
        SHOW(dup2(own[1], 8));
        close(own[1]);
        if (which == 0) {
            arguments[2] = "echo by spawn >&8";
            SHOW(posix_spawn(&child, "/bin/sh", NULL, NULL, arguments, environ));
            SHOW(status_of(child));
        } else if (which == 1) {
            SHOW(system("echo by shell >&8"));
        } else {
            SHOW(pclose(popen("echo by popen >&8", "r")));
        }
        SHOW(recv(own[0], line, 9, MSG_WAITALL));
        SHOW(send(8, "on", 2, 0));
        SHOW(recv(own[0], line, 2, MSG_WAITALL));
        close(own[0]), close(8);
    }
    SHOW(send(ends[1], "after", 5, 0));
    SHOW(receives_to_the_end_of(ends[0], "after"));
}

static void on_exit_called(void) { printf("at exit\n"), fflush(stdout); }
static void on_quick_exit_called(void) { printf("at quick exit\n"), fflush(stdout); }

static int end(int how) {
    fflush(stdout);
    pid_t child = fork();
    if (child != 0) return status_of(child);
    atexit(on_exit_called);
    at_quick_exit(on_quick_exit_called);
    switch (how) {
        case 0: exit(20);
        case 1: _exit(21);
        case 2: _Exit(22);
        case 3: quick_exit(23);
        case 4: syscall(SYS_exit_group, 24);
        case 5: abort();
    }
    return 0;
}

static int begun(void *argument) {
    int *ends = argument;
    return send(ends[1], "c", 1, 0) == 1 ? 16 : 1;
}

// A process that no fork(3) made; each with a connection that nobody but its parent has used.
static pid_t made(int how, int ends[2]) {
    static char stack[1 << 16];
    unsigned long long arguments[8] = {[4] = SIGCHLD}; // struct clone_args
    pid_t child = 0;
    switch (how) {
        case 0: return clone(begun, stack + sizeof stack, SIGCHLD, ends);
        case 1: return clone(begun, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, ends);
        case 2: child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); break;
        case 3: child = syscall(SYS_clone3, arguments, sizeof arguments); break;
    }
    if (child == 0) _exit(begun(ends));
    return child;
}

static void cloned(void) {
    static char stack[1 << 12];
    char data[4];
    for (int how = 0; how < 4; how++) {
        int ends[2];
        connection(ends);
        SHOW(send(ends[0], "to", 2, 0));
        await(ends[1]);
        SHOW(status_of(made(how, ends)));
        SHOW(recv(ends[0], data, 1, 0));
        // The parent has both ends still.
        SHOW(recv(ends[1], data, 4, 0));
        SHOW(send(ends[1], "p", 1, 0));
        SHOW(recv(ends[0], data, 1, 0));
        close(ends[0]), close(ends[1]);
    }
    SHOW(clone(NULL, stack + sizeof stack, SIGCHLD, NULL));
    SHOW(clone(begun, stack + sizeof stack, CLONE_THREAD | SIGCHLD, NULL));
}

// What is sent right before the end arrives, and so does the end.
static void last_words(void) {
    int listening = relayed() ? -1 : listener(), end = -1;
    struct sockaddr_in there = loopback(7000);
    if (relayed()) {
        there.sin_addr.s_addr = inet_addr(getenv("SIDESTEP_RELAY"));
        end = connected(there);
    } else {
        there = own_address(listening);
    }
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        send(connected(there), "last", 4, 0);
        syscall(SYS_exit_group, 25);
    }
    if (!relayed()) end = accept(listening, NULL, NULL);
    char data[4];
    SHOW(recv(end, data, 4, MSG_WAITALL));
    SHOW(recv(end, data, 4, 0));
    SHOW(status_of(child));
    close(end), close(listening);
}

// As daemon(3) programs do it: two forks, and every descriptor closed.
static void daemonised(void) {
    int pipes[2];
    char line[8];
    pipe(pipes);
    fflush(stdout);
    if (fork() == 0) {
        setsid();
        if (fork() != 0) _exit(0);
        dup2(pipes[1], 3);
        for (int fd = 0; fd < 3; fd++) close(fd);
        closefrom(4);
        open("/dev/null", O_RDWR), dup(0), dup(0);
        int ends[2];
        connection(ends);
        int fine = send(ends[0], "abc", 3, 0) == 3 && recv(ends[1], line, 3, MSG_WAITALL) == 3;
        dprintf(3, fine ? "served" : "failed");
        _exit(0);
    }
    close(pipes[1]);
    wait(NULL);
    SHOW(read(pipes[0], line, 6));
    SHOW(memcmp(line, "served", 6));
    close(pipes[0]);
}

int main(void) {
    int ends[2];
    connection(ends);
    forks(ends);
    cloned();
    programs();
    spawned(ends);
    for (int how = 0; how < 6; how++) SHOW(end(how));
    last_words();
    daemonised();
    return 0;
}
