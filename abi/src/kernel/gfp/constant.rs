//! Constants of C, as the kernel prints them in place of macros: `(( gfp_t)((((1UL))) << (10)))|0x40u`.
//!
//! The text is hostile: its length and its depth are bounded, and anything but a constant is refused.

/// Largest length of an expression, in bytes. Kernels have up to 600.
const MAX_BYTES: usize = 1 << 14;
/// Largest depth of parentheses, casts and signs. Kernels have up to 15.
const MAX_DEPTH: u32 = 64;

/// Words of a cast to a `long`.
const LONG_WORDS: [&str; 5] = ["long", "u64", "__u64", "uint64_t", "size_t"];
/// Words of a cast to an `int`.
const INT_WORDS: [&str; 7] = ["int", "gfp_t", "u32", "__u32", "uint32_t", "isolate_mode_t", "slab_flags_t"];
/// Words that a cast has beside those.
const OTHER_WORDS: [&str; 3] = ["unsigned", "signed", "__force"];

/// Value of the expression; `None` where it is no constant, or longer or deeper than any kernel's.
pub(super) fn evaluate(text: &str) -> Option<u64> {
    if text.len() > MAX_BYTES {
        return None;
    }
    let mut parser = Parser { rest: text, depth: 0 };
    let value = parser.binary(0)?;
    parser.rest.trim_start().is_empty().then_some(value.extended())
}

/// Number of a type: an `int` or a `long`, which has 64 bits here; the caller cuts the result to the kernel's.
#[derive(Clone, Copy)]
struct Value {
    /// Bits of the number, all others zero.
    bits: u64,
    is_long: bool,
    is_signed: bool,
}

impl Value {
    fn new(bits: u64, is_long: bool, is_signed: bool) -> Value {
        Value { bits: if is_long { bits } else { bits & u64::from(u32::MAX) }, is_long, is_signed }
    }

    /// The number as 64 bits, with its sign.
    fn extended(self) -> u64 {
        if self.is_signed && !self.is_long { i64::from(self.bits as u32 as i32).cast_unsigned() } else { self.bits }
    }

    /// The result of an operator on two numbers, in the type that C converts both to.
    fn with(self, other: Value, operator: fn(u64, u64) -> u64) -> Value {
        let is_long = self.is_long || other.is_long;
        let is_unsigned = |value: Value| !value.is_signed && value.is_long == is_long;
        let is_signed = !is_unsigned(self) && !is_unsigned(other);
        Value::new(operator(self.extended(), other.extended()), is_long, is_signed)
    }

    /// The result of a shift, which has the type of the number that is shifted.
    fn shifted(self, by: Value, is_left: bool) -> Option<Value> {
        let by = u32::try_from(by.extended()).ok().filter(|&by| by < if self.is_long { 64 } else { 32 })?;
        let bits = match (is_left, self.is_signed) {
            (true, _) => self.bits << by,
            (false, true) => (self.extended().cast_signed() >> by).cast_unsigned(),
            (false, false) => self.bits >> by,
        };
        Some(Value::new(bits, self.is_long, self.is_signed))
    }
}

/// Binary operators, each with its rank: one of a higher rank binds its operands more closely.
const OPERATORS: [(&str, u8); 7] = [("|", 0), ("^", 1), ("&", 2), ("<<", 3), (">>", 3), ("+", 4), ("-", 4)];

/// Expression that is being read.
struct Parser<'a> {
    rest: &'a str,
    depth: u32,
}

impl<'a> Parser<'a> {
    /// Reads operands and the operators of at least this rank between them.
    fn binary(&mut self, least: u8) -> Option<Value> {
        let mut value = self.operand()?;
        loop {
            let text = self.rest.trim_start();
            let found = OPERATORS.iter().find_map(|&(sign, rank)| Some((sign, rank, text.strip_prefix(sign)?)));
            // `||` and `&&` are no operators here: their second half is no operand.
            let Some((sign, rank, rest)) = found.filter(|&(_, rank, _)| rank >= least) else { return Some(value) };
            self.rest = rest;
            let other = self.binary(rank.saturating_add(1))?;
            value = match sign {
                "|" => value.with(other, |a, b| a | b),
                "^" => value.with(other, |a, b| a ^ b),
                "&" => value.with(other, |a, b| a & b),
                "+" => value.with(other, u64::wrapping_add),
                "-" => value.with(other, u64::wrapping_sub),
                _ => value.shifted(other, sign == "<<")?,
            };
        }
    }

    /// Reads a number, with the casts and signs before it, or parentheses.
    fn operand(&mut self) -> Option<Value> {
        self.depth = self.depth.saturating_add(1);
        if self.depth > MAX_DEPTH {
            return None;
        }
        let text = self.rest.trim_start();
        self.rest = text.get(1..)?;
        let value = match text.as_bytes().first()? {
            b'~' => self.operand().map(|value| Value::new(!value.bits, value.is_long, value.is_signed))?,
            b'-' => {
                self.operand().map(|value| Value::new(value.bits.wrapping_neg(), value.is_long, value.is_signed))?
            }
            b'(' => match self.cast() {
                Some((is_long, is_signed)) => Value::new(self.operand()?.extended(), is_long, is_signed),
                None => {
                    let value = self.binary(0)?;
                    self.rest = self.rest.trim_start().strip_prefix(')')?;
                    value
                }
            },
            b'0'..=b'9' => {
                let end = text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len());
                let (digits, rest) = text.split_at(end);
                self.rest = rest;
                number(digits)?
            }
            _ => return None,
        };
        self.depth = self.depth.saturating_sub(1);
        Some(value)
    }

    /// Reads the type of a cast and the parenthesis behind it: true for a `long`, and true for a number with a sign.
    fn cast(&mut self) -> Option<(bool, bool)> {
        let (words, rest) = self.rest.split_once(')')?;
        let (mut is_long, mut is_signed, mut has_words) = (false, true, false);
        for word in words.split_ascii_whitespace() {
            let has = |list: &[&str]| list.contains(&word);
            if !has(&LONG_WORDS) && !has(&INT_WORDS) && !has(&OTHER_WORDS) {
                return None;
            }
            is_long |= has(&LONG_WORDS);
            is_signed &= matches!(word, "long" | "int" | "signed" | "__force");
            has_words = true;
        }
        if !has_words {
            return None;
        }
        self.rest = rest;
        Some((is_long, is_signed))
    }
}

/// A number with its suffix: `10`, `0x40u`, `1UL`, `010`.
fn number(text: &str) -> Option<Value> {
    let digits = text.trim_end_matches(['u', 'U', 'l', 'L']);
    let suffix = &text[digits.len()..];
    let (digits, radix) = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None if digits.len() > 1 && digits.starts_with('0') => (&digits[1..], 8),
        None => (digits, 10),
    };
    let bits = u64::from_str_radix(digits, radix).ok()?;
    let is_long = suffix.contains(['l', 'L']) || bits > u64::from(u32::MAX);
    let is_signed = !suffix.contains(['u', 'U']) && bits <= if is_long { i64::MAX as u64 } else { i32::MAX as u64 };
    Some(Value::new(bits, is_long, is_signed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_have_the_value_that_c_gives_them() {
        for (text, value) in [
            ("0", 0),
            ("42", 42),
            ("010", 8),
            ("0x400u|0x800U", 0xc00),
            ("( gfp_t)((((1UL))) << (10))", 0x400),
            ("(unsigned long)(((((( gfp_t)(0x400u|0x800u)) | (( gfp_t)0x40u)) & ~(( gfp_t)0x400u))))", 0x840),
            // `&` binds more closely than `^`, that more closely than `|`, shifts and sums more closely still.
            ("1|2&4", 1),
            ("1|6^2", 5),
            ("7&1<<2", 4),
            ("1<<1+2", 8),
            ("1<<2<<1", 8),
            ("9-2-3", 4),
            ("((1UL) << 23) - 1", 0x7f_ffff),
            // A number has the bits of its type: 32 as an `int`, 64 as a `long`, and the sign goes along.
            ("~0u", 0xffff_ffff),
            ("~0", u64::MAX),
            ("-1", u64::MAX),
            ("(unsigned int)-1", 0xffff_ffff),
            ("( unsigned long)-1", u64::MAX),
            ("( unsigned long)~(( gfp_t)1)", 0xffff_fffe),
            ("~1UL", u64::MAX - 1),
            ("-1 >> 1", u64::MAX),
            ("~0u >> 28", 15),
            ("-1 & 0xffffffffu", 0xffff_ffff),
            ("-1 | 0UL", u64::MAX),
            ("0x80000000 << 1", 0),
            ("1ULL << 63", 1 << 63),
            ("(u64)1 << 40", 1 << 40),
            (" ( 3 ) ", 3),
        ] {
            assert_eq!(evaluate(text), Some(value), "{text}");
        }
    }

    #[test]
    fn anything_but_a_constant_is_refused() {
        for text in [
            "",
            " ",
            "x",
            "1UL << (___GFP_IO_BIT)",
            "((void *)0)",
            "(1",
            "1)",
            "()",
            "1 2",
            "1 |",
            "| 1",
            "1 || 1",
            "1 && 1",
            "1 ? 2 : 3",
            "1 * 2",
            "0x",
            "0xg",
            "08",
            "1u8",
            "ul",
            "99999999999999999999",
            "1 << 32",
            "1UL << 64",
            "1 << -1",
            "1 >> 32",
            "f(1)",
            "\u{e9}",
            "(\u{e9})1",
            "1\u{e9}",
        ] {
            assert_eq!(evaluate(text), None, "{text}");
        }
    }

    #[test]
    fn length_and_depth_are_bounded() {
        let nested = |open: &str, close: &str, depth: usize| {
            evaluate(&format!("{}1{}", open.repeat(depth), close.repeat(depth))).is_some()
        };
        for (open, close) in [("(", ")"), ("~", ""), ("-", ""), ("(int)", "")] {
            assert_eq!([nested(open, close, 63), nested(open, close, 64)], [true, false], "{open}");
            assert!(!nested(open, close, 3000), "{open}");
        }
        // A long expression need not be a deep one.
        assert_eq!(evaluate(&["1"; 8192].join("|")), Some(1));
        assert_eq!(evaluate(&["1"; 8193].join("|")), None);
    }
}
