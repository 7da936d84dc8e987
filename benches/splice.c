/*
 * splice - the least that draining the kernel's ring buffer can cost
 *
 * Makes an instance of tracefs with the four slab events, runs COMMAND, and moves whole sub-buffers from trace_pipe_raw of each CPU into
 * a file of DIR with splice(2), one pinned thread a CPU. Nothing is looked at.
 *
 *   cc -O2 -pthread -o splice splice.c
 *   splice DIR BUFFER_KB COMMAND...
 *
 * Prints events, lost events, bytes and the threads' processor time in ns as one line of JSON. Needs root, and tracefs in
 * /sys/kernel/tracing.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PIPE_BYTES (1 << 20)
#define MAX_CPUS 1024

static char instance[128];
static atomic_bool stop;

struct drain {
	pthread_t thread;
	int cpu, from, to;
	int64_t ns, bytes;
};

static void fail(const char *what)
{
	fprintf(stderr, "splice: %s: %s\n", what, strerror(errno));
	if (instance[0])
		rmdir(instance);
	exit(1);
}

static int open_control(int flags, const char *format, ...)
{
	char path[256];
	int used = snprintf(path, sizeof(path), "%s/", instance);
	va_list list;

	va_start(list, format);
	vsnprintf(path + used, sizeof(path) - used, format, list);
	va_end(list);
	return open(path, flags | O_CLOEXEC);
}

static void set(const char *file, const char *value)
{
	int fd = open_control(O_WRONLY, "%s", file);

	if (fd < 0 || write(fd, value, strlen(value)) < 0)
		fail(file);
	close(fd);
}

/* Number behind `name` in the stats of a CPU. */
static int64_t stat_of(int cpu, const char *name)
{
	char text[1024];
	int fd = open_control(O_RDONLY, "per_cpu/cpu%d/stats", cpu);
	ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	char *at;

	if (len < 0)
		fail("stats");
	close(fd);
	text[len] = 0;
	at = strstr(text, name);
	return at ? atoll(at + strlen(name)) : 0;
}

/* Moves what is there; returns the bytes. */
static int64_t drain_once(struct drain *drain, const int ends[2])
{
	int64_t moved = 0;
	ssize_t taken;

	while ((taken = splice(drain->from, NULL, ends[1], NULL, PIPE_BYTES, SPLICE_F_MOVE | SPLICE_F_NONBLOCK)) > 0) {
		for (ssize_t left = taken, put; left > 0; left -= put) {
			put = splice(ends[0], NULL, drain->to, NULL, left, SPLICE_F_MOVE);
			if (put <= 0)
				fail("splice to the file");
		}
		moved += taken;
	}
	return moved;
}

static void *drain_cpu(void *argument)
{
	struct drain *drain = argument;
	struct timespec time;
	cpu_set_t cpus;
	int ends[2];

	CPU_ZERO(&cpus);
	CPU_SET(drain->cpu, &cpus);
	sched_setaffinity(0, sizeof(cpus), &cpus);
	setpriority(PRIO_PROCESS, 0, -20);
	if (pipe(ends) || fcntl(ends[1], F_SETPIPE_SZ, PIPE_BYTES) < 0)
		fail("pipe");
	for (;;) {
		int is_last = atomic_load(&stop);
		struct pollfd wait = { .fd = drain->from, .events = POLLIN };

		if (!is_last)
			poll(&wait, 1, 50);
		int64_t moved = drain_once(drain, ends);

		drain->bytes += moved;
		if (is_last && !moved)
			break;
		if (!moved)
			usleep(5000);
	}
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	drain->ns = time.tv_sec * 1000000000LL + time.tv_nsec;
	return NULL;
}

static void run(char **command)
{
	pid_t child = fork();
	int status, null;

	if (!child) {
		null = open("/dev/null", O_WRONLY);
		dup2(null, 1);
		execvp(command[0], command);
		_exit(127);
	}
	if (child < 0 || waitpid(child, &status, 0) < 0)
		fail("fork");
	if (status)
		fprintf(stderr, "splice: %s failed\n", command[0]);
}

int main(int argc, char **argv)
{
	static struct drain drains[MAX_CPUS];
	int cpus = sysconf(_SC_NPROCESSORS_ONLN);
	int64_t events = 0, lost = 0, bytes = 0, ns = 0;

	if (argc < 4 || cpus > MAX_CPUS) {
		fprintf(stderr, "usage: splice DIR BUFFER_KB COMMAND...\n");
		return 2;
	}
	snprintf(instance, sizeof(instance), "/sys/kernel/tracing/instances/splice-%d", getpid());
	if (mkdir(instance, 0700)) {
		instance[0] = 0;
		fail("an instance of tracefs");
	}
	set("tracing_on", "0");
	set("trace_clock", "mono");
	set("buffer_percent", "25");
	set("buffer_size_kb", argv[2]);
	set("events/kmem/kmalloc/enable", "1");
	set("events/kmem/kmem_cache_alloc/enable", "1");
	set("events/kmem/kfree/enable", "1");
	set("events/kmem/kmem_cache_free/enable", "1");
	for (int cpu = 0; cpu < cpus; cpu++) {
		struct drain *drain = &drains[cpu];
		char path[4096];

		snprintf(path, sizeof(path), "%s/cpu%d", argv[1], cpu);
		drain->cpu = cpu;
		drain->from = open_control(O_RDONLY | O_NONBLOCK, "per_cpu/cpu%d/trace_pipe_raw", cpu);
		drain->to = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		if (drain->from < 0 || drain->to < 0)
			fail(path);
		if (pthread_create(&drain->thread, NULL, drain_cpu, drain))
			fail("a thread");
	}
	set("tracing_on", "1");
	run(argv + 3);
	set("tracing_on", "0");
	atomic_store(&stop, 1);
	for (int cpu = 0; cpu < cpus; cpu++) {
		pthread_join(drains[cpu].thread, NULL);
		close(drains[cpu].from);
		ns += drains[cpu].ns;
		bytes += drains[cpu].bytes;
		events += stat_of(cpu, "read events: ");
		lost += stat_of(cpu, "\noverrun: ");
	}
	printf("{\"events\": %lld, \"lost\": %lld, \"bytes\": %lld, \"ns\": %lld}\n", (long long)events, (long long)lost,
	       (long long)bytes, (long long)ns);
	if (rmdir(instance))
		fail("removing the instance");
	return 0;
}
