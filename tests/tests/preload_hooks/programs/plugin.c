/* A library that says whose socket(2) it calls, and a program that loads it as PHP loads its extensions. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

const char *whose_socket(void)
{
	static Dl_info info;

	return dladdr((void *)socket, &info) ? strrchr(info.dli_fname, '/') + 1 : "nobody's";
}

int main(int argc, char **argv)
{
	void *library = dlopen(argv[1], RTLD_NOW | RTLD_DEEPBIND);
	const char *(*ask)(void);

	if (!library) {
		puts(dlerror());
		return 1;
	}
	ask = (const char *(*)(void))dlsym(library, "whose_socket");
	puts(ask());
	return 0;
}
