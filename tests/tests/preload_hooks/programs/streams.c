// stdio over sockets: the C library reads, writes and closes past all hooks.
#include "show.h"

static int print_list(int fd, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int result = vdprintf(fd, format, arguments);
    va_end(arguments);
    return result;
}

int main(void) {
    int ends[2];
    char line[128];
    connection(ends);
    SHOW(dprintf(ends[0], "%s %d %.3f %lld %c%c%c%c %g %g %g\n", "text", 7, 1.5, 1LL << 40, 'a', 'b', 'c', 'd', 0.25, 1e9, 3.0));
    SHOW(print_list(ends[0], "%d-%s-%.1f\n", 1, "two", 3.0));
    FILE *reader = fdopen(ends[1], "r+");
    SHOW(fgets(line, sizeof line, reader) != NULL);
    printf("%s", line);
    SHOW(fgets(line, sizeof line, reader) != NULL);
    printf("%s", line);
    SHOW(fprintf(reader, "answer\n"));
    SHOW(fflush(reader));
    SHOW(read(ends[0], line, sizeof line));
    SHOW(fclose(reader));
    SHOW(close(ends[1]));
    SHOW(read(ends[0], line, sizeof line));
    SHOW(close(ends[0]));
    // What is put in place of standard output is printed to.
    connection(ends);
    int saved = dup(1);
    dup2(ends[0], 1);
    printf("printed\n"), fflush(stdout);
    dup2(saved, 1);
    SHOW(recv(ends[1], line, 8, MSG_WAITALL));
    SHOW(memcmp(line, "printed\n", 8));
    dup2(ends[0], 10);
    FILE *stream = fdopen(10, "w");
    SHOW(freopen("/dev/null", "w", stream) != NULL);
    SHOW(fclose(stream));
    SHOW(dprintf(99, "nowhere"));
    return 0;
}
