//! Changes of bytes, of lines of text, and of numbers in a text, from a seed.

use crate::generate::Random;

/// Numbers at the edges of types, and of pages.
const EDGES: [u64; 16] = [
    0,
    1,
    7,
    0x7f,
    0x80,
    0xff,
    0xfff,
    0x1000,
    0x7fff,
    0xffff,
    0x10_0000,
    0x7fff_ffff,
    0xffff_ffff,
    0x1_0000_0000,
    0x7fff_ffff_ffff_ffff,
    0xffff_ffff_ffff_ffff,
];
/// Most times that a line or a run of bytes is repeated, and most bytes that come of it.
const MAX_REPEATS: u64 = 64;
const MAX_REPEATED: u64 = 16 << 10;

/// Changes bytes in one to eight places.
pub fn bytes(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..1 + random.below(8).min(random.below(8)) {
        one_change(random, bytes);
    }
}

/// Changes a text in one to eight places: lines, numbers, and now and then any byte.
pub fn text(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..1 + random.below(8).min(random.below(8)) {
        match random.below(8) {
            0..4 => lines(random, bytes),
            4..7 => number(random, bytes),
            _ => one_change(random, bytes),
        }
    }
}

/// As [`bytes`], for an input whose first byte chooses a variant: that one changes seldom.
pub fn chosen_bytes(random: &mut Random, input: &mut Vec<u8>) {
    behind_choice(random, input, bytes);
}

/// As [`text`], for an input whose first byte chooses a variant.
pub fn chosen_text(random: &mut Random, input: &mut Vec<u8>) {
    behind_choice(random, input, text);
}

/// Changes what stands behind the first byte, which chooses a variant and changes seldom.
pub fn behind_choice(random: &mut Random, input: &mut Vec<u8>, change: fn(&mut Random, &mut Vec<u8>)) {
    let mut rest = input.split_off(input.len().min(1));
    change(random, &mut rest);
    if input.is_empty() || random.chance(5) {
        *input = vec![random.bits() as u8];
    }
    input.append(&mut rest);
}

fn one_change(random: &mut Random, bytes: &mut Vec<u8>) {
    let len = bytes.len() as u64;
    let at = random.below(len) as usize;
    let end = at + (1 + random.below(len - at as u64)).min(1 + random.below(64)) as usize;
    match random.below(10) {
        _ if bytes.is_empty() => bytes.push(random.bits() as u8),
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = random.bits() as u8,
        2 => bytes[at] = *random.pick(&[0, 1, 0x7f, 0x80, 0xff, b'\n', b' ', b'0', b'%']),
        3 | 4 => set_number(random, bytes, at),
        5 => drop(bytes.drain(at..end)),
        6 => {
            let part = repeated(random, &bytes[at..end]);
            bytes.splice(at..at, part);
        }
        7 => {
            let part: Vec<u8> = (0..1 + random.below(16)).map(|_| random.bits() as u8).collect();
            bytes.splice(at..at, part);
        }
        8 => {
            let to = random.below(len - (end - at) as u64 + 1) as usize;
            bytes.copy_within(at..end, to);
        }
        _ => bytes.truncate(at),
    }
}

/// A part, several times.
fn repeated(random: &mut Random, part: &[u8]) -> Vec<u8> {
    let most = (MAX_REPEATED / (part.len() as u64).max(1)).clamp(1, MAX_REPEATS);
    part.repeat(1 + random.below(most) as usize)
}

/// Writes an edge, or a number near the one that is there, into one to eight bytes in either byte order.
fn set_number(random: &mut Random, bytes: &mut [u8], at: usize) {
    let size = *random.pick(&[1usize, 2, 4, 4, 8, 8]);
    let Some(place) = bytes.get_mut(at..at + size) else { return };
    let is_big = random.chance(30);
    let mut number = [0; 8];
    number[..size].copy_from_slice(place);
    if is_big {
        number[..size].reverse();
    }
    let old = u64::from_le_bytes(number);
    let new = match random.below(3) {
        0 => *random.pick(&EDGES),
        1 => old.wrapping_add(random.below(9)).wrapping_sub(4),
        _ => bytes_left(random, at),
    };
    number = new.to_le_bytes();
    if is_big {
        number[..size].reverse();
    }
    place.copy_from_slice(&number[..size]);
}

/// A small number, as offsets and lengths are.
fn bytes_left(random: &mut Random, at: usize) -> u64 {
    random.below(2 * at as u64 + 64)
}

/// Places of the lines of a text, each with its end.
fn places(text: &[u8]) -> Vec<(usize, usize)> {
    let mut places = Vec::new();
    let mut begin = 0;
    while begin < text.len() {
        let len = text[begin..].iter().position(|byte| *byte == b'\n').map_or(text.len() - begin, |end| end + 1);
        places.push((begin, begin + len));
        begin += len;
    }
    places
}

fn lines(random: &mut Random, text: &mut Vec<u8>) {
    let places = places(text);
    if places.is_empty() {
        return;
    }
    let (begin, end) = *random.pick(&places);
    let line = text[begin..end].to_vec();
    let (to, _) = *random.pick(&places);
    match random.below(5) {
        0 => drop(text.drain(begin..end)),
        1 => drop(text.splice(to..to, line)),
        2 => drop(text.splice(to..to, repeated(random, &line))),
        // Two lines become one.
        3 => drop(text.drain(end - 1..end)),
        _ => text.truncate(end),
    }
}

/// Puts another number in the place of one that the text has.
fn number(random: &mut Random, text: &mut Vec<u8>) {
    let is_begin = |at: &usize| text[*at].is_ascii_digit() && !(*at > 0 && text[*at - 1].is_ascii_hexdigit());
    let begins: Vec<usize> = (0..text.len()).filter(is_begin).collect();
    if begins.is_empty() {
        return;
    }
    let at = *random.pick(&begins);
    let digits = text[at..].iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let edge = *random.pick(&EDGES);
    let number = match random.below(6) {
        0 => edge.to_string(),
        1 => format!("{edge:x}"),
        2 => format!("-{edge}"),
        3 => random.below(1000).to_string(),
        4 => format!("{edge}{edge}"),
        _ => format!("{:x}", random.bits()),
    };
    text.splice(at..at + digits, number.into_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_follow_from_the_seed_and_end() {
        for seed in 0..3000 {
            let changed = |change: fn(&mut Random, &mut Vec<u8>)| {
                let mut bytes = b"1f line\nsecond 0x10 12\nthird\n"[..(seed % 30) as usize].to_vec();
                change(&mut Random::new(seed), &mut bytes);
                assert!(bytes.len() < 1 << 20);
                bytes
            };
            for change in [bytes, text, chosen_bytes, chosen_text] {
                assert_eq!(changed(change), changed(change), "seed {seed}");
            }
        }
    }
}
