// SPDX-License-Identifier: MIT OR Apache-2.0
#include <linux/module.h>
#include <linux/gfp.h>

/* Test module: from its load on it holds 1,024 pages, 512 of them one by one and the others in 32 blocks of order 4. */
static struct page *single[512], *block[32];

static int __init hold(void)
{
	int i;

	for (i = 0; i < 512; i++)
		single[i] = alloc_page(GFP_KERNEL);
	for (i = 0; i < 32; i++)
		block[i] = alloc_pages(GFP_KERNEL, 4);
	return 0;
}

module_init(hold);
MODULE_LICENSE("Dual MIT/GPL");
