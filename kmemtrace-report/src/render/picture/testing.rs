//! Trees for the tests of layouts.

use kmemtrace_tests::generate::Random;

use super::block::Block;

/// Node of this size.
pub(crate) fn block(name: &str, size: u64, children: Vec<Block>) -> Block {
    Block { name: name.to_owned(), size, is_vague: false, children }
}

/// Tree of a seed, with sizes from 1 to beyond 2^40.
pub(crate) fn random_tree(seed: u64) -> Block {
    grown(&mut Random::new(seed), "linux".to_owned(), 0)
}

fn grown(random: &mut Random, name: String, depth: u32) -> Block {
    let children = if depth < 5 && (depth == 0 || random.chance(70)) { 1 + random.below(12) } else { 0 };
    let mut children: Vec<Block> = (0..children).map(|n| grown(random, format!("{name}{n}"), depth + 1)).collect();
    children.sort_by_key(|child| std::cmp::Reverse(child.size));
    let bits = 1 + random.below(36);
    let own = if children.is_empty() { 1 + random.below(1 << bits) } else { 0 };
    let size = children.iter().map(|child| child.size).sum::<u64>() + own;
    Block { name, size, is_vague: false, children }
}
