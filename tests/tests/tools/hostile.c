/*
 * A decoder in a stranger's hands: at the first read of a file of a CPU it does what HOSTILE names, in place of reading.
 * Each deed prints its name and "done", or "refused" with the error. A file that includes this one for other places to do them
 * defines DEEDS_ONLY.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <netinet/in.h>
#include <unistd.h>

static char *path(const char *name)
{
	static char text[4096];

	snprintf(text, sizeof(text), "%s/%s", getenv("ELSEWHERE"), name);
	return text;
}

static long deed(const char *what)
{
	char *no_words[] = { NULL };

	if (!strcmp(what, "open-shadow"))
		return open("/etc/shadow", O_RDONLY);
	if (!strcmp(what, "open-passwd"))
		return open("/etc/passwd", O_RDONLY);
	if (!strcmp(what, "list-root"))
		return open("/root", O_RDONLY | O_DIRECTORY);
	if (!strcmp(what, "open-parent-environment")) {
		char name[64];

		snprintf(name, sizeof(name), "/proc/%d/environ", getppid());
		return open(name, O_RDONLY);
	}
	if (!strcmp(what, "open-memory"))
		return open("/dev/mem", O_RDONLY);
	if (!strcmp(what, "make-file"))
		return open(path("made"), O_WRONLY | O_CREAT, 0600);
	if (!strcmp(what, "change-file"))
		return open(path("kept"), O_WRONLY);
	if (!strcmp(what, "read-file"))
		return open(path("kept"), O_RDONLY);
	if (!strcmp(what, "cut-file"))
		return open(path("kept"), O_RDONLY | O_TRUNC);
	if (!strcmp(what, "remove-file"))
		return unlink(path("kept"));
	if (!strcmp(what, "make-folder"))
		return mkdir(path("folder"), 0700);
	if (!strcmp(what, "make-link"))
		return symlink("/etc/shadow", path("link"));
	if (!strcmp(what, "change-mode"))
		return chmod(path("kept"), 0777);
	if (!strcmp(what, "change-open-mode"))
		return fchmod(open("/proc/self/status", O_RDONLY), 0777);
	if (!strcmp(what, "connect")) {
		struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(9), .sin_addr = { htonl(INADDR_LOOPBACK) } };
		int s = socket(AF_INET, SOCK_STREAM, 0);

		if (s < 0)
			return s;
		connect(s, (void *)&to, sizeof(to));
		return 0;
	}
	if (!strcmp(what, "connect-local"))
		return socket(AF_UNIX, SOCK_DGRAM, 0);
	if (!strcmp(what, "execute"))
		return execve("/bin/true", no_words, no_words);
	if (!strcmp(what, "fork"))
		return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (!strcmp(what, "trace"))
		return ptrace(PTRACE_SEIZE, getppid(), 0, 0);
	if (!strcmp(what, "signal"))
		return kill(getppid(), SIGCONT);
	if (!strcmp(what, "signal-thread"))
		return syscall(SYS_tgkill, getppid(), getppid(), SIGCONT);
	if (!strcmp(what, "mount"))
		return mount("none", path(""), "tmpfs", 0, NULL);
	if (!strcmp(what, "namespace"))
		return unshare(CLONE_NEWUSER);
	if (!strcmp(what, "type"))
		return ioctl(0, TIOCSTI, "x");
	if (!strcmp(what, "execute-memory"))
		return mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0;
	if (!strcmp(what, "raise-limit")) {
		struct rlimit limit = { 1 << 20, 1 << 20 };

		return setrlimit(RLIMIT_NOFILE, &limit);
	}
	if (!strcmp(what, "read-process"))
		return syscall(SYS_process_vm_readv, getppid(), NULL, 0, NULL, 0, 0);
	if (!strcmp(what, "program-kernel"))
		return syscall(SYS_bpf, 0, NULL, 0);
	if (!strcmp(what, "change-user"))
		return syscall(SYS_setuid, 0);
	if (!strcmp(what, "change-root"))
		return chroot("/");
	errno = ENOTSUP;
	return -1;
}

static void do_all(void)
{
	char *what, *state;

	for (what = strtok_r(strdup(getenv("HOSTILE")), " ", &state); what; what = strtok_r(NULL, " ", &state)) {
		char line[256];
		long got;

		errno = 0;
		got = deed(what);
		snprintf(line, sizeof(line), "%s: %s %s\n", what, got < 0 ? "refused" : "done", got < 0 ? strerror(errno) : "");
		/* Nothing else: dprintf asks for the place in the file first. */
		syscall(SYS_write, 2, line, strlen(line));
	}
	_exit(99);
}

#ifndef DEEDS_ONLY
static int is_of_cpu(int fd)
{
	char link[64], name[4096];
	ssize_t len;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	len = readlink(link, name, sizeof(name) - 1);
	name[len > 0 ? len : 0] = 0;
	return strstr(name, "/cpu0.out") != NULL;
}

static void decode(int fd)
{
	static int is_done;

	if (is_done || !is_of_cpu(fd))
		return;
	is_done = 1;
	do_all();
}

ssize_t read(int fd, void *bytes, size_t len)
{
	decode(fd);
	return syscall(SYS_read, fd, bytes, len);
}

ssize_t pread64(int fd, void *bytes, size_t len, off_t at)
{
	decode(fd);
	return syscall(SYS_pread64, fd, bytes, len, at);
}
#endif
