// SPDX-License-Identifier: MIT OR Apache-2.0
#include <linux/gfp.h>
#include <linux/mm.h>
#include <linux/mmdebug.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

/*
 * Test module, for texts of one moment. While it is loaded it holds 128 pages, 64 of them one by one and the others in 8 blocks of order 3,
 * 100 objects of 200 bytes of a cache of its own, and 3 areas of 5 pages. It leaks 50 objects of 100 bytes, and dumps a page. When it is
 * unloaded it destroys the cache with the objects in it.
 */
static struct page *single[64], *block[8];
static struct kmem_cache *cache;
static void *node[100], *area[3];

static void clear(void *object)
{
	memset(object, 0, 200);
}

static noinline void leak(void)
{
	void *object;
	int i;

	for (i = 0; i < 50; i++) {
		object = kmalloc(100, GFP_KERNEL);
		OPTIMIZER_HIDE_VAR(object);
	}
}

static int __init text(void)
{
	int i;

	cache = kmem_cache_create("kmemtext_node", 200, 0, 0, clear);
	if (!cache)
		return -ENOMEM;
	for (i = 0; i < 64; i++)
		single[i] = alloc_page(GFP_KERNEL);
	for (i = 0; i < 8; i++)
		block[i] = alloc_pages(GFP_KERNEL, 3);
	for (i = 0; i < 100; i++)
		node[i] = kmem_cache_alloc(cache, GFP_KERNEL);
	for (i = 0; i < 3; i++)
		area[i] = vmalloc(5 * PAGE_SIZE);
	leak();
	dump_page(single[0], "a test");
	return 0;
}

static void __exit text_exit(void)
{
	kmem_cache_destroy(cache);
}

module_init(text);
module_exit(text_exit);
MODULE_LICENSE("GPL");
