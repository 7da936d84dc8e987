/*
 * A thread of the recorder in a stranger's hands: the thread that PLACE names does what HOSTILE names, once the file "go" is there.
 * A thread without a sandbox looks for the file: the list of a role may lack the call. The thread that records starts it while it sets up.
 */
#define DEEDS_ONLY
#include "../tools/hostile.c"
#include <pthread.h>
#include <sys/prctl.h>
#include <time.h>

static volatile int go;

static void *look(void *unused)
{
	struct timespec pause = { 0, 1000000 };

	while (syscall(SYS_faccessat, AT_FDCWD, path("go"), F_OK))
		syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &pause, NULL);
	go = 1;
	return unused;
}

static void pass(void)
{
	static int is_done, is_looking;
	char name[16] = "";
	pthread_t thread;

	prctl(PR_GET_NAME, name);
	if (!strcmp(name, "record") && !is_looking) {
		is_looking = 1;
		pthread_create(&thread, NULL, look, NULL);
	}
	if (is_done || !go || strcmp(name, getenv("PLACE")))
		return;
	is_done = 1;
	do_all();
}

ssize_t read(int fd, void *bytes, size_t len)
{
	pass();
	return syscall(SYS_read, fd, bytes, len);
}

ssize_t pread64(int fd, void *bytes, size_t len, off_t at)
{
	pass();
	return syscall(SYS_pread64, fd, bytes, len, at);
}

ssize_t write(int fd, const void *bytes, size_t len)
{
	pass();
	return syscall(SYS_write, fd, bytes, len);
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time, struct timespec *left)
{
	pass();
	return syscall(SYS_clock_nanosleep, clock, flags, time, left) ? errno : 0;
}
