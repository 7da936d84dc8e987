/*
 * into-cgroup DIR COMMAND...: starts COMMAND in the cgroup DIR by clone3(CLONE_INTO_CGROUP), as systemd and container managers do, and
 * waits for it. No cgroup_attach_task event comes of it.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct clone_args args = { .flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD };
	int cgroup, status;
	pid_t child;

	if (argc < 3) {
		fprintf(stderr, "usage: into-cgroup DIR COMMAND...\n");
		return 2;
	}
	cgroup = open(argv[1], O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (cgroup < 0) {
		perror(argv[1]);
		return 1;
	}
	args.cgroup = (uint64_t)cgroup;
	child = syscall(SYS_clone3, &args, sizeof(args));
	if (child < 0) {
		perror("clone3");
		return 1;
	}
	if (child == 0) {
		execvp(argv[2], argv + 2);
		perror(argv[2]);
		_exit(127);
	}
	return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
