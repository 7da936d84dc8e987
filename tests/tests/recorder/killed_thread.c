/*
 * A thread of the recorder that ends without a result, as one that the kernel kills after an error of its own: the thread that PLACE names,
 * once the file GO is there.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static void pass(void)
{
	char name[16] = "";

	prctl(PR_GET_NAME, name);
	if (!strcmp(name, getenv("PLACE")) && !access(getenv("GO"), F_OK))
		syscall(SYS_exit, 0);
}

ssize_t read(int fd, void *bytes, size_t len)
{
	pass();
	return syscall(SYS_read, fd, bytes, len);
}

ssize_t write(int fd, const void *bytes, size_t len)
{
	pass();
	return syscall(SYS_write, fd, bytes, len);
}
