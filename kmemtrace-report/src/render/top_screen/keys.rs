//! Keys: changes of the screen, and what the caller has to do.

use kmemtrace::live::{LiveGroup, Snapshot};

use super::filter::RowFilter;
use super::state::{ScreenState, Sort};

/// Key that was pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Char(char),
    Enter,
    Escape,
    Backspace,
    Tab,
    Up,
    Down,
    Home,
    End,
    PageUp,
    PageDown,
    Left,
    Right,
    /// Control and C.
    Interrupt,
}

impl Key {
    /// Key of a word of a script: a name such as `enter`, or one character.
    pub(crate) fn named(word: &str) -> Option<Key> {
        let mut chars = word.chars();
        if let (Some(char), None) = (chars.next(), chars.next()) {
            return Some(Key::Char(char));
        }
        Some(match word {
            "space" => Key::Char(' '),
            "enter" => Key::Enter,
            "esc" => Key::Escape,
            "backspace" => Key::Backspace,
            "tab" => Key::Tab,
            "up" => Key::Up,
            "down" => Key::Down,
            "home" => Key::Home,
            "end" => Key::End,
            "pgup" => Key::PageUp,
            "pgdn" => Key::PageDown,
            "left" => Key::Left,
            "right" => Key::Right,
            _ => return None,
        })
    }
}

/// Work of the caller after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    None,
    Quit,
    /// Set the mark.
    Mark,
    /// Write the screen to files.
    Save,
    /// Read the names of the trace again.
    RenewNames,
}

/// Takes a key; `height` is the number of rows that the table has room for.
pub(crate) fn press(state: &mut ScreenState, snapshot: &Snapshot, height: usize, key: Key) -> Command {
    state.message = None;
    if key == Key::Interrupt {
        return Command::Quit;
    }
    if state.typed.is_some() {
        type_filter(state, key);
        return Command::None;
    }
    if std::mem::take(&mut state.shows_help) {
        return Command::None;
    }
    match key {
        Key::Char('q') => return Command::Quit,
        Key::Char('0') => return Command::Mark,
        Key::Char('w') => return Command::Save,
        Key::Char('r') => return Command::RenewNames,
        Key::Char('?' | 'h') => state.shows_help = true,
        Key::Char('/') => state.typed = Some(state.filter.text.clone()),
        Key::Escape => state.filter = RowFilter::default(),
        Key::Char(' ') if state.has_tree(snapshot) => drop(state.fold(snapshot, None)),
        Key::Right => drop(state.fold(snapshot, Some(true))),
        Key::Left => {
            if !state.fold(snapshot, Some(false)) {
                state.choose_above(snapshot, height);
            }
        }
        Key::Char('p' | ' ') => state.is_frozen = !state.is_frozen,
        Key::Char('m') | Key::Tab => state.next_group(&snapshot.groups),
        Key::Char('t') if snapshot.groups.contains(&LiveGroup::Stacks) => state.show_group(LiveGroup::Stacks),
        Key::Char('t') => state.message = Some("no call stacks so far: kmemtraced --stack records them".to_owned()),
        Key::Char('[') => state.change_window(false),
        Key::Char(']') => state.change_window(true),
        Key::Enter => state.shows_detail = !state.shows_detail,
        Key::Char('s') => state.next_sort(),
        Key::Char('S') => state.is_reversed = !state.is_reversed,
        _ => move_or_sort(state, snapshot, height, key),
    }
    Command::None
}

fn move_or_sort(state: &mut ScreenState, snapshot: &Snapshot, height: usize, key: Key) {
    let sort = match key {
        Key::Char('+') => Sort::Growth,
        Key::Char('l') => Sort::Live,
        Key::Char('P') => Sort::Peak,
        Key::Char('W') => Sort::Wasted,
        Key::Char('a') => Sort::Allocs,
        Key::Char('x') => Sort::CrossCpu,
        Key::Char('n') => Sort::Name,
        Key::Char('M') => Sort::SinceMark,
        _ => return move_choice(state, snapshot, height, key),
    };
    state.sort_by(sort);
}

fn move_choice(state: &mut ScreenState, snapshot: &Snapshot, height: usize, key: Key) {
    let rows = state.rows(snapshot);
    let at = state.chosen_index(&rows);
    let page = height.max(2) - 1;
    let to = match key {
        Key::Up | Key::Char('k') => at.saturating_sub(1),
        Key::Down | Key::Char('j') => at + 1,
        Key::Home | Key::Char('g') => 0,
        Key::End | Key::Char('G') => rows.len(),
        Key::PageUp => at.saturating_sub(page),
        Key::PageDown => at + page,
        _ => return,
    };
    state.choose(&rows, to, height);
}

/// Takes a key of a filter that is being typed.
fn type_filter(state: &mut ScreenState, key: Key) {
    let Some(typed) = &mut state.typed else { return };
    match key {
        Key::Char(char) => typed.push(char),
        Key::Backspace => drop(typed.pop()),
        Key::Escape => (state.typed, state.filter) = (None, RowFilter::default()),
        Key::Enter => match RowFilter::parse(typed) {
            Ok(filter) => (state.typed, state.filter) = (None, filter),
            Err(message) => (state.typed, state.message) = (None, Some(message)),
        },
        _ => {}
    }
}
