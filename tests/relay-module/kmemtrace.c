// SPDX-License-Identifier: GPL-2.0
/*
 * The relay interface of the 2008 kmemtrace (patch set of 2008-08-10), on kernels that have the kmem tracepoints:
 * debugfs kmemtrace/cpuN, total_overruns, abi_version and enabled. For tests of programs that read such a channel.
 */
#include <linux/atomic.h>
#include <linux/debugfs.h>
#include <linux/irqflags.h>
#include <linux/module.h>
#include <linux/relay.h>
#include <linux/slab.h>

/* slub_def.h uses it; its definition is in mm/slab.h, which is not among the installed headers. */
struct slab {
	unsigned long __page_flags;
	struct kmem_cache *slab_cache;
	union {
		struct list_head slab_list;
		struct rcu_head rcu_head;
	};
	void *freelist;
	unsigned inuse:16;
	unsigned objects:15;
	unsigned frozen:1;
};
static inline void *slab_address(const struct slab *slab) { return NULL; }
#include <linux/slub_def.h>

#include <trace/events/kmem.h>

#define ABI_VERSION 1
#define SUBBUF_SIZE 524288

enum { EVENT_ALLOC, EVENT_FREE };
enum { TYPE_KMALLOC, TYPE_CACHE };

struct kmemtrace_event {
	u8 event_id;
	u8 type_id;
	u16 event_size;
	s32 seq_num;
	u64 call_site;
	u64 ptr;
} __packed;

struct kmemtrace_stats_alloc {
	u64 bytes_req;
	u64 bytes_alloc;
	u32 gfp_flags;
	s32 numa_node;
} __packed;

static unsigned int subbufs = 20;
module_param(subbufs, uint, 0444);
MODULE_PARM_DESC(subbufs, "sub-buffers of 512 KiB a CPU");

static int first = 1;
module_param(first, int, 0444);
MODULE_PARM_DESC(first, "sequence number of the first record");

static struct dentry *dir;
static struct rchan *chan;
static atomic_t seq_num;
static u32 total_overruns;
static bool enabled;
static DEFINE_MUTEX(enabling);

/* A record whose second part is there for allocations only. Interrupts off: the numbers of a CPU's file ascend. */
static void record(u8 event_id, u8 type_id, unsigned long call_site, const void *ptr,
		   const struct kmemtrace_stats_alloc *alloc)
{
	size_t size = sizeof(struct kmemtrace_event) + (alloc ? sizeof(*alloc) : 0);
	struct kmemtrace_event *event;
	unsigned long flags;

	local_irq_save(flags);
	event = relay_reserve(chan, size);
	if (event) {
		event->event_id = event_id;
		event->type_id = type_id;
		event->event_size = size;
		event->seq_num = atomic_inc_return(&seq_num);
		event->call_site = call_site;
		event->ptr = (unsigned long)ptr;
		if (alloc)
			memcpy(event + 1, alloc, sizeof(*alloc));
	}
	local_irq_restore(flags);
}

static void probe_kmalloc(void *data, unsigned long call_site, const void *ptr, size_t bytes_req, size_t bytes_alloc,
			  gfp_t gfp_flags, int node)
{
	struct kmemtrace_stats_alloc alloc = { bytes_req, bytes_alloc, (__force u32)gfp_flags, node };

	record(EVENT_ALLOC, TYPE_KMALLOC, call_site, ptr, &alloc);
}

static void probe_kfree(void *data, unsigned long call_site, const void *ptr)
{
	record(EVENT_FREE, TYPE_KMALLOC, call_site, ptr, NULL);
}

static void probe_cache_alloc(void *data, unsigned long call_site, const void *ptr, struct kmem_cache *s,
			      gfp_t gfp_flags, int node)
{
	struct kmemtrace_stats_alloc alloc = { s->object_size, s->size, (__force u32)gfp_flags, node };

	record(EVENT_ALLOC, TYPE_CACHE, call_site, ptr, &alloc);
}

static void probe_cache_free(void *data, unsigned long call_site, const void *ptr, const struct kmem_cache *s)
{
	record(EVENT_FREE, TYPE_CACHE, call_site, ptr, NULL);
}

static void unregister_probes(void)
{
	unregister_trace_kmalloc(probe_kmalloc, NULL);
	unregister_trace_kfree(probe_kfree, NULL);
	unregister_trace_kmem_cache_alloc(probe_cache_alloc, NULL);
	unregister_trace_kmem_cache_free(probe_cache_free, NULL);
	tracepoint_synchronize_unregister();
}

static int register_probes(void)
{
	int err = register_trace_kmalloc(probe_kmalloc, NULL) ?: register_trace_kfree(probe_kfree, NULL) ?:
		  register_trace_kmem_cache_alloc(probe_cache_alloc, NULL) ?:
		  register_trace_kmem_cache_free(probe_cache_free, NULL);

	if (err)
		unregister_probes();
	return err;
}

static int enabled_get(void *data, u64 *value)
{
	*value = enabled;
	return 0;
}

static int enabled_set(void *data, u64 value)
{
	int err = 0;

	mutex_lock(&enabling);
	if (value > 1) {
		err = -EINVAL;
	} else if (value && !enabled) {
		err = register_probes();
		enabled = !err;
	} else if (!value && enabled) {
		unregister_probes();
		enabled = false;
	}
	mutex_unlock(&enabling);
	return err;
}
DEFINE_DEBUGFS_ATTRIBUTE(enabled_fops, enabled_get, enabled_set, "%llu\n");

static int abi_version_get(void *data, u64 *value)
{
	*value = ABI_VERSION;
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(abi_version_fops, abi_version_get, NULL, "%llu\n");

static int total_overruns_get(void *data, u64 *value)
{
	*value = total_overruns;
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(total_overruns_fops, total_overruns_get, NULL, "%llu\n");

/* A full buffer refuses the switch to the next sub-buffer: once for each record that is dropped. */
static int subbuf_start(struct rchan_buf *buf, void *subbuf, void *prev_subbuf, size_t prev_padding)
{
	if (relay_buf_full(buf)) {
		total_overruns++;
		return 0;
	}
	return 1;
}

static struct dentry *create_buf_file(const char *name, struct dentry *parent, umode_t mode, struct rchan_buf *buf,
				      int *is_global)
{
	return debugfs_create_file(name, 0400, parent, buf, &relay_file_operations);
}

static int remove_buf_file(struct dentry *dentry)
{
	debugfs_remove(dentry);
	return 0;
}

static const struct rchan_callbacks callbacks = {
	.subbuf_start = subbuf_start,
	.create_buf_file = create_buf_file,
	.remove_buf_file = remove_buf_file,
};

static int __init kmemtrace_init(void)
{
	atomic_set(&seq_num, first - 1);
	dir = debugfs_create_dir("kmemtrace", NULL);
	if (IS_ERR(dir))
		return PTR_ERR(dir);
	chan = relay_open("cpu", dir, SUBBUF_SIZE, subbufs, &callbacks, NULL);
	if (!chan) {
		debugfs_remove_recursive(dir);
		return -ENOMEM;
	}
	debugfs_create_file("abi_version", 0400, dir, NULL, &abi_version_fops);
	debugfs_create_file("total_overruns", 0400, dir, NULL, &total_overruns_fops);
	debugfs_create_file("enabled", 0600, dir, NULL, &enabled_fops);
	return 0;
}

static void __exit kmemtrace_exit(void)
{
	enabled_set(NULL, 0);
	relay_close(chan);
	debugfs_remove_recursive(dir);
}

module_init(kmemtrace_init);
module_exit(kmemtrace_exit);
MODULE_DESCRIPTION("The relay interface of kmemtrace (2008)");
MODULE_LICENSE("GPL");
