//! What a viewer may write to the terminal: text, line ends, tabs, and the sequences that its screens use.
//!
//! A terminal answers to some other sequences, and types the answer as if the user had: into root's shell, once the viewer is gone. So
//! sequences are known here by what is allowed, and dropped as a whole otherwise. They are told apart as terminals do
//! (<https://vt100.net/emu/dec_ansi_parser>).

use kmemtrace_abi::text::escape::is_harmful;

/// Bytes of a sequence's parameters at most.
const MAX_PARAMETERS: usize = 40;
const ESCAPE: u8 = 0x1b;
/// CAN and SUB, which end any sequence.
const CANCEL: [u8; 2] = [0x18, 0x1a];
const BELL: u8 = 0x07;

/// Modes of a terminal that may be switched: the cursor, and the alternate screen.
const CURSOR: &[u8] = b"?25";
const ALTERNATE: &[u8] = b"?1049";

/// Place in the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Text,
    /// Inside a character of several bytes.
    Character,
    /// Behind an escape.
    Escape,
    /// Behind an escape and bytes that choose a meaning.
    Intermediate,
    /// Inside a control sequence.
    Sequence,
    /// Inside a text to the terminal itself, such as its title.
    Message,
    /// Behind an escape inside of that.
    MessageEscape,
}

/// Filter of one output.
#[derive(Debug)]
pub(crate) struct Filter {
    state: State,
    /// Bytes of the character or sequence so far.
    held: Vec<u8>,
    /// Characters beyond ASCII are let through: a terminal without UTF-8 may take their bytes for control characters.
    is_unicode: bool,
    has_sequences: bool,
    is_alternate: bool,
    hides_cursor: bool,
}

impl Filter {
    /// Filter for a terminal, or for something else that takes UTF-8.
    pub(crate) fn new(is_unicode: bool) -> Filter {
        Filter {
            state: State::Text,
            held: Vec::new(),
            is_unicode,
            has_sequences: true,
            is_alternate: false,
            hides_cursor: false,
        }
    }

    /// Filter that lets no sequences through.
    pub(crate) fn of_text() -> Filter {
        Filter { has_sequences: false, ..Filter::new(true) }
    }

    /// Appends what of `bytes` may pass to `out`.
    pub(crate) fn pass(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for &byte in bytes {
            self.take(byte, out);
        }
    }

    /// Sequences that give the screen its usual state back, as far as this output has changed it.
    pub(crate) fn closing(&self) -> Vec<u8> {
        let mut closing = Vec::new();
        if self.is_alternate {
            closing.extend_from_slice(b"\x1b[?1049l");
        }
        if self.hides_cursor {
            closing.extend_from_slice(b"\x1b[?25h");
        }
        if self.is_alternate || self.hides_cursor {
            closing.extend_from_slice(b"\x1b[0m");
        }
        closing
    }

    fn take(&mut self, byte: u8, out: &mut Vec<u8>) {
        if CANCEL.contains(&byte) {
            return self.enter(State::Text);
        }
        match self.state {
            State::Text => self.text(byte, out),
            State::Character => self.character(byte, out),
            State::Message if byte == ESCAPE => self.state = State::MessageEscape,
            State::Message if byte == BELL => self.enter(State::Text),
            State::Message => {}
            State::MessageEscape if byte == b'\\' => self.enter(State::Text),
            // Any other escape ends the message, and begins something else.
            State::MessageEscape | State::Escape => self.escape(byte, out),
            State::Intermediate => match byte {
                b' '..=b'/' => {}
                b'0'..=b'~' => self.enter(State::Text),
                _ => self.anew(byte, out),
            },
            State::Sequence => match byte {
                b' '..=b'?' => {
                    // A longer one is none of ours.
                    if self.held.len() <= MAX_PARAMETERS {
                        self.held.push(byte);
                    }
                }
                b'@'..=b'~' => {
                    self.finish_sequence(byte, out);
                    self.enter(State::Text);
                }
                _ => self.anew(byte, out),
            },
        }
    }

    fn enter(&mut self, state: State) {
        self.held.clear();
        self.state = state;
    }

    /// Drops what is held, and takes the byte as the begin of something new.
    fn anew(&mut self, byte: u8, out: &mut Vec<u8>) {
        self.enter(State::Text);
        self.text(byte, out);
    }

    fn text(&mut self, byte: u8, out: &mut Vec<u8>) {
        match byte {
            ESCAPE => self.enter(State::Escape),
            b'\n' | b'\r' | b'\t' | b' '..=b'~' => out.push(byte),
            0xc2..=0xf4 if self.is_unicode => {
                self.enter(State::Character);
                self.held.push(byte);
            }
            _ => {}
        }
    }

    fn character(&mut self, byte: u8, out: &mut Vec<u8>) {
        if !(0x80..=0xbf).contains(&byte) {
            return self.anew(byte, out);
        }
        self.held.push(byte);
        let len = match self.held.first() {
            Some(0xf0..) => 4,
            Some(0xe0..) => 3,
            _ => 2,
        };
        if self.held.len() < len {
            return;
        }
        // C1 controls are characters of two bytes; others turn the text around them.
        let character = std::str::from_utf8(&self.held).ok().and_then(|text| text.chars().next());
        if character.is_some_and(|character| !is_harmful(character)) {
            out.extend_from_slice(&self.held);
        }
        self.enter(State::Text);
    }

    fn escape(&mut self, byte: u8, out: &mut Vec<u8>) {
        match byte {
            ESCAPE => self.enter(State::Escape),
            b'[' => self.enter(State::Sequence),
            // OSC, DCS, SOS, PM, APC.
            b']' | b'P' | b'X' | b'^' | b'_' => self.enter(State::Message),
            b' '..=b'/' => self.enter(State::Intermediate),
            b'0'..=b'~' => self.enter(State::Text),
            _ => self.anew(byte, out),
        }
    }

    /// Lets a whole sequence through, if it is one of those that screens use.
    fn finish_sequence(&mut self, last: u8, out: &mut Vec<u8>) {
        let parameters = &self.held;
        let has_numbers =
            parameters.len() <= MAX_PARAMETERS && parameters.iter().all(|byte| byte.is_ascii_digit() || *byte == b';');
        let is_allowed = match last {
            // Colours, and the cursor's position.
            b'm' | b'H' | b'f' => has_numbers,
            // Erasing the screen or the line.
            b'J' | b'K' => matches!(parameters[..], [] | [b'0'..=b'2']),
            b'h' | b'l' => parameters == CURSOR || parameters == ALTERNATE,
            _ => false,
        };
        if !is_allowed || !self.has_sequences {
            return;
        }
        if parameters == ALTERNATE {
            self.is_alternate = last == b'h';
        } else if parameters == CURSOR {
            self.hides_cursor = last == b'l';
        }
        out.extend_from_slice(&[ESCAPE, b'[']);
        out.extend_from_slice(&self.held);
        out.push(last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(bytes: &[u8]) -> String {
        let (mut filter, mut out) = (Filter::new(true), Vec::new());
        filter.pass(bytes, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn text_and_the_sequences_of_screens_pass() {
        for same in [
            "text\r\n\ttab",
            "Größe → 漢字 😀",
            "\x1b[0m\x1b[1;38;5;11mx\x1b[m\x1b[39;49m",
            "\x1b[2J\x1b[J\x1b[K\x1b[1K\x1b[12;40H\x1b[H\x1b[1;1f",
            "\x1b[?1049h\x1b[?25l\x1b[?25h\x1b[?1049l",
        ] {
            assert_eq!(passed(same.as_bytes()), same);
        }
    }

    #[test]
    fn what_a_terminal_answers_to_or_acts_on_is_dropped_as_a_whole() {
        for hostile in [
            // Reports of the cursor, of the terminal's kind, of modes, colours, the title and the size.
            "\x1b[6n",
            "\x1b[5n",
            "\x1b[c",
            "\x1b[>c",
            "\x1b[=c",
            "\x1b[0c",
            "\x1b[?6n",
            "\x1b[?1$p",
            "\x1b[21t",
            "\x1b[18t",
            "\x1bZ",
            "\x05",
            "\x1b]4;1;?\x07",
            "\x1b]10;?\x1b\\",
            "\x1b]52;c;?\x07",
            "\x1b]0;title\x07",
            "\x1bP$qm\x1b\\",
            "\x1bP+q544e\x1b\\",
            "\x1b_Gi=1,a=q;AAAA\x1b\\",
            "\x1b^text\x1b\\",
            "\x1bXtext\x1b\\",
            // Keys, the mouse, pasting, the printer, the keyboard.
            "\x1b[?1000h",
            "\x1b[?2004h",
            "\x1b[?1h",
            "\x1b[?25;1049h",
            "\x1b[>1u",
            "\x1b[5i",
            "\x1b[3J",
            "\x1b[2;3J",
            "\x1bc",
            "\x1b#8",
            "\x1b(0",
            "\x1b%G",
            "\x1b=",
            "\x1b7",
            "\x1b[4:3m",
            "\x1b[?5m",
            "\x1b[ q",
            "\x1b[1 q",
            "\x1b[!p",
            "\x0e\x0f\x08\x0b\x0c\x7f\x00\x07",
            // What turns or breaks the text around it, or cannot be seen.
            "\u{202e}",
            "\u{2028}",
            "\u{200b}",
            // Controls of eight bits, as they are and as characters.
            "\u{9b}6n",
            "\u{90}q\u{9c}",
        ] {
            let rest = passed(format!("a{hostile}b").as_bytes());
            let has_control = rest.chars().any(char::is_control);
            assert!(!has_control && rest.starts_with('a') && rest.ends_with('b'), "{hostile:?}: {rest:?}");
            let is_whole = !hostile.contains('\u{9b}') && !hostile.contains('\u{90}');
            assert!(!is_whole || rest == "ab", "{hostile:?}: {rest:?}");
        }
        assert_eq!(passed(b"a\x9b6nb\xff\xc2\xe2\x82b\xc0\x80\xed\xa0\x80"), "a6nbb");
        let long = format!("a\x1b[{}mb", "1;".repeat(30));
        assert_eq!(passed(long.as_bytes()), "ab");
    }

    #[test]
    fn a_sequence_inside_another_is_told_apart() {
        assert_eq!(passed(b"\x1b[3\x1b[1mx"), "\x1b[1mx");
        assert_eq!(passed(b"\x1b[6\nn"), "\nn");
        assert_eq!(passed(b"\x1b[6\x18n"), "n");
        assert_eq!(passed(b"\x1b]0;title\x1b[6nx"), "x");
        assert_eq!(passed(b"\x1b]0;title\x1a[6nx"), "[6nx");
        assert_eq!(passed(b"\x1b]0;never ended \x1b"), "");
        assert_eq!(passed(b"\x1b\x1b[6nx"), "x");
        assert_eq!(passed(b"\x1b[\xc3\xa4x"), "\u{e4}x");
        assert_eq!(passed(b"\xe2\x1b[6nx"), "x");
    }

    #[test]
    fn a_cut_at_any_place_changes_nothing() {
        let text = "a\x1b[1mä→😀\x1b]0;t\x07\x1b[6n\x1b[?25l\x1bP1\x1b\\\r\nz".as_bytes();
        let whole = passed(text);
        for at in 0..text.len() {
            let (mut filter, mut out) = (Filter::new(true), Vec::new());
            filter.pass(&text[..at], &mut out);
            filter.pass(&text[at..], &mut out);
            assert_eq!(out, whole.as_bytes(), "{at}");
        }
    }

    #[test]
    fn whatever_comes_only_what_is_known_passes() {
        let mut state = 7u64;
        let alphabet = b"\x1b\x1b\x1b[[[]?;:0159mHJKhlcnq\\\x07\x18\x9b\xc2\x9b\xc3\xa4\r\nP_^X #a";
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..30)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    alphabet[(state >> 33) as usize % alphabet.len()]
                })
                .collect();
            let out = passed(&bytes);
            // Independent of the parser: without the sequences that are allowed no control character is left.
            let mut rest = out.as_str();
            while let Some((text, behind)) = rest.split_once('\x1b') {
                assert!(text.chars().all(|c| !c.is_control() || "\r\n\t".contains(c)), "{bytes:?}: {out:?}");
                let sequence = behind.strip_prefix('[').unwrap_or_else(|| panic!("{bytes:?}: {out:?}"));
                let end = sequence.find(|c: char| c.is_ascii_alphabetic()).unwrap_or_else(|| panic!("{out:?}"));
                let (parameters, last) = (&sequence[..end], sequence.as_bytes()[end]);
                let has_numbers = parameters.chars().all(|c| c.is_ascii_digit() || c == ';');
                let is_mode = ["?25", "?1049"].contains(&parameters) && b"hl".contains(&last);
                assert!(is_mode || has_numbers && b"mHfJK".contains(&last), "{bytes:?}: {out:?}");
                rest = &sequence[end + 1..];
            }
            assert!(rest.chars().all(|c| !c.is_control() || "\r\n\t".contains(c)), "{bytes:?}: {out:?}");
        }
    }

    #[test]
    fn a_terminal_without_utf8_gets_ascii_and_a_file_of_text_no_sequence() {
        let (mut ascii, mut text, mut out) = (Filter::new(false), Filter::of_text(), Vec::new());
        ascii.pass("ä→\x1b[1mx".as_bytes(), &mut out);
        assert_eq!(out, b"\x1b[1mx");
        out.clear();
        text.pass("ä\x1b[1mx\x1b[?25l\n".as_bytes(), &mut out);
        assert_eq!(out, "äx\n".as_bytes());
    }

    #[test]
    fn the_screen_gets_its_usual_state_back() {
        let (mut filter, mut out) = (Filter::new(true), Vec::new());
        filter.pass(b"\x1b[?1049h\x1b[?25l", &mut out);
        assert_eq!(filter.closing(), b"\x1b[?1049l\x1b[?25h\x1b[0m");
        filter.pass(b"\x1b[?25h\x1b[?1049l", &mut out);
        assert_eq!(filter.closing(), b"");
    }
}
