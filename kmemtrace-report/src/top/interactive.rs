//! The screen on a terminal: one thread reads and pairs, another takes keys and draws, so that neither waits for the other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use kmemtrace::live::{Snapshot, SnapshotRequest};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::player::{FRAME, Player, SECOND};
use super::save::Saved;
use super::script::{Script, Step};
use super::terminal::{self, Input, Tty};
use crate::render::top_screen::keys::{self, Command, Key};
use crate::render::top_screen::state::ScreenState;
use crate::render::top_screen::{self, Look, ScreenView, Subject};

/// Time between two looks at keys, signals and snapshots.
const KEYS: Duration = Duration::from_millis(40);
/// Pause of the reading thread where nothing new is there.
const PAUSE: Duration = Duration::from_millis(100);

/// Orders to the reading thread, and its answers.
struct Shared {
    orders: Mutex<Orders>,
    changed: Condvar,
}

struct Orders {
    request: SnapshotRequest,
    /// A snapshot is wanted at once.
    is_urgent: bool,
    sets_mark: bool,
    renews_names: bool,
    has_quit: bool,
    /// Latest snapshot, its number, and the state of the recording.
    answer: (Arc<Snapshot>, u64, Subject),
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the other thread, whatever ends this one.
struct QuitAtEnd<'s>(&'s Shared);

impl Drop for QuitAtEnd<'_> {
    fn drop(&mut self) {
        self.0.lock().has_quit = true;
        self.0.changed.notify_all();
    }
}

/// Shows the screen until the user leaves it.
pub(super) fn run(
    player: &mut Player<'_>,
    script: Option<Script>,
    (from, speed): (u64, f64),
    (has_colour, saved): (bool, &Saved),
) -> anyhow::Result<()> {
    let signals = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP, SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&signals)).context("signals cannot be caught")?;
    }
    let state = player.screen_state();
    let subject = player.subject.clone();
    let request = state.request(&Snapshot::default());
    let snapshot = Arc::new(player.snapshot(&request));
    let shared = Shared {
        orders: Mutex::new(Orders {
            request,
            is_urgent: true,
            sets_mark: false,
            renews_names: false,
            has_quit: false,
            answer: (snapshot, 0, subject),
        }),
        changed: Condvar::new(),
    };
    let look = Look { is_unicode: crate::terminal::screen::is_unicode(), has_colour };
    std::thread::scope(|scope| {
        let screen = scope.spawn(|| {
            let _quit = QuitAtEnd(&shared);
            show(&shared, state, (look, saved), script, &signals)
        });
        {
            let _quit = QuitAtEnd(&shared);
            read(player, &shared, (from, speed));
        }
        screen.join().unwrap_or_else(|_| Err(anyhow::anyhow!("top: the screen's thread has failed")))
    })
}

/// Reads and pairs until the other thread quits.
fn read(player: &mut Player<'_>, shared: &Shared, (from, speed): (u64, f64)) {
    let begun = Instant::now();
    let mut next = begun;
    loop {
        let played = (begun.elapsed().as_secs_f64() * speed * SECOND as f64) as u64;
        let is_idle = player.round(Some(from.saturating_add(played)));
        let (request, is_urgent, sets_mark, renews_names) = {
            let mut orders = shared.lock();
            if orders.has_quit {
                return;
            }
            let taken = (orders.request.clone(), orders.is_urgent, orders.sets_mark, orders.renews_names);
            (orders.is_urgent, orders.sets_mark, orders.renews_names) = (false, false, false);
            taken
        };
        if sets_mark {
            player.set_mark();
        }
        if renews_names {
            player.renew_names();
        }
        if is_urgent || Instant::now() >= next {
            next = Instant::now() + FRAME;
            let snapshot = Arc::new(player.snapshot(&request));
            let mut orders = shared.lock();
            let number = orders.answer.1 + 1;
            orders.answer = (snapshot, number, player.subject.clone());
        }
        let pause = if is_idle { PAUSE } else { player.rest() };
        if !pause.is_zero() {
            let orders = shared.lock();
            if !orders.is_urgent && !orders.has_quit {
                drop(shared.changed.wait_timeout(orders, pause));
            }
        }
    }
}

/// Takes keys and draws until the user quits.
fn show(
    shared: &Shared,
    mut state: ScreenState,
    (look, saved): (Look, &Saved),
    mut script: Option<Script>,
    signals: &AtomicBool,
) -> anyhow::Result<()> {
    let mut tty = Tty::take().context("the terminal cannot be taken")?;
    let (mut snapshot, mut number, mut subject) = shared.lock().answer.clone();
    let (mut is_stale, mut height, mut next_step, mut ordered) = (true, 0, Instant::now(), None);
    loop {
        if signals.load(Ordering::Relaxed) || shared.lock().has_quit {
            return Ok(());
        }
        let answer = shared.lock().answer.clone();
        // A frozen screen keeps its figures, whatever else is chosen on it.
        if answer.1 != number && (!state.is_frozen || answer.0.rows.is_empty()) {
            (snapshot, number, subject) = answer;
            is_stale = true;
        }
        let detail = state.request(&snapshot).detail;
        if is_stale && detail != ordered {
            ordered = detail;
            order(shared, &state, &snapshot, Command::None);
        }
        if is_stale {
            let view = ScreenView { snapshot: &snapshot, subject: &subject, state: &state, look };
            tty.draw(|buffer| height = top_screen::draw(view, buffer))?;
            is_stale = false;
        }
        let mut pressed = scripted(&mut script, &mut next_step);
        if pressed.is_none() {
            match terminal::input(KEYS)? {
                Some(Input::Key(key)) => pressed = Some(key),
                Some(Input::Gone) => return Ok(()),
                Some(Input::Resized) => {
                    tty.redraw()?;
                    is_stale = true;
                }
                None => {}
            }
        }
        let Some(key) = pressed else { continue };
        let was_frozen = state.is_frozen;
        let command = keys::press(&mut state, &snapshot, height, key);
        match command {
            Command::Quit => return Ok(()),
            Command::Save => {
                let view = ScreenView { snapshot: &snapshot, subject: &subject, state: &state, look };
                state.message = Some(saved.save(view));
            }
            _ => {}
        }
        // Other rows are needed at once, on a frozen screen, too.
        if state.is_frozen && was_frozen && !state.is_answered_by(&snapshot) {
            state.is_frozen = false;
            state.message = Some("no longer frozen: other rows have other figures".to_owned());
        }
        order(shared, &state, &snapshot, command);
        is_stale = true;
    }
}

/// Tells the reading thread what the screen needs.
fn order(shared: &Shared, state: &ScreenState, snapshot: &Snapshot, command: Command) {
    let mut orders = shared.lock();
    orders.request = state.request(snapshot);
    orders.is_urgent = true;
    orders.sets_mark |= command == Command::Mark;
    orders.renews_names |= command == Command::RenewNames;
    shared.changed.notify_all();
}

/// Next key of the script, where it is due.
fn scripted(script: &mut Option<Script>, next_step: &mut Instant) -> Option<Key> {
    if Instant::now() < *next_step {
        return None;
    }
    match script.as_mut()?.next_step()? {
        Step::Key(key) => Some(key),
        Step::Wait(time) => {
            *next_step = Instant::now() + Duration::from_nanos(time);
            None
        }
    }
}
