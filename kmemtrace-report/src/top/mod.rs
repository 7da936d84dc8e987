//! The live screen, as a command: follows a trace while it is written, or plays a finished one, on a terminal or as text.

mod interactive;
mod machine;
mod pace;
mod player;
mod save;
mod script;
mod source;
mod stream;
mod terminal;

use std::io::{self, Write};
use std::time::{Duration, Instant};

use anyhow::Context;
use kmemtrace::live::{Monitor, MonitorBase, MonitorOptions, Snapshot};
use kmemtrace_sandbox::Sandbox;
use ratatui::buffer::Buffer;

use crate::args::Args;
use crate::cli::Request;
use crate::exit;
use crate::of_text;
use crate::render::top_screen::keys::{self, Command};
use crate::render::top_screen::state::ScreenState;
use crate::render::top_screen::{self, Look, ScreenView};
use crate::report;
use crate::terminal::output::UNPRINTABLE;
use crate::told;
use player::{Player, SECOND};
use save::Saved;
use script::{Script, Step};

/// Allows what the screen opens beside its trace: its script, the folders that screens are saved in, its terminal, and without a name
/// the directory of the running recorder.
pub(crate) fn allow(sandbox: &mut Sandbox, args: &Args) {
    sandbox.write(save::folder(args.live.save_in.as_deref()));
    sandbox.write(std::env::temp_dir());
    sandbox.device("/dev/tty");
    if args.words.is_empty() {
        source::allow_running(sandbox);
    }
}

/// Runs the live screen.
pub(crate) fn run(request: &Request) -> anyhow::Result<u8> {
    let args = &request.args;
    let is_text = args.live.once || args.live.batch.is_some();
    if !is_text {
        terminal::check()?;
    }
    let script = args.live.script.as_deref().map(Script::read).transpose()?;
    let mut source = source::Source::open(args)?;
    let mut trace = source.trace()?;
    of_text::check(request, &trace)?;
    report::check_text_options(request, &trace)?;
    let subject = source.subject(&trace);
    let (shows_own, max_memory, flush) = (args.own, args.max_memory, args.live.flush);
    let caller = if source.is_growing() { machine::own_thread() } else { None };
    let options = MonitorOptions { follows: source.is_growing(), shows_own, caller, max_memory, flush };
    let base = MonitorBase::new(&mut trace, options)?;
    let monitor = Monitor::new(&base, &mut trace);
    let saved = if args.viewer.is_viewer { Saved::through_pipe()? } else { Saved::In(args.live.save_in.clone()) };
    let mut player = Player::new(source, trace, monitor, subject);
    let from = args.live.from.unwrap_or(0);
    if is_text {
        let frames = if args.live.once { 1 } else { args.live.batch.unwrap_or(1) };
        frames_of_text(&mut player, frames, script, (args.live.from, args.live.speed), &saved)?;
    } else {
        let has_colour = crate::terminal::screen::Screen::of_output(false, args.color, None).has_colour;
        interactive::run(&mut player, script, (from, args.live.speed), (has_colour, &saved))?;
    }
    told::bad_text(player.trace());
    Ok(exit::OK)
}

/// Prints frames, one a second: of a trace that is played, of its own time. Without a first time, and a script that waits, one frame
/// is that of the end.
fn frames_of_text(
    player: &mut Player<'_>,
    frames: u64,
    script: Option<Script>,
    (from, speed): (Option<u64>, f64),
    saved: &Saved,
) -> anyhow::Result<()> {
    let mut state = player.screen_state();
    let second = (speed * SECOND as f64) as u64;
    // Keys without a time are pressed on the one frame: before the first event there are no rows to choose from.
    let is_timed = frames > 1 || script.as_ref().is_some_and(Script::waits);
    let mut until = from.or(is_timed.then_some(0));
    let goes_on = |player: &mut Player<'_>, until: &mut Option<u64>, time: u64| {
        if player.follows() {
            return player.wait_until(None, Instant::now() + Duration::from_nanos(time));
        }
        *until = until.map(|until| until.saturating_add((time as f64 * speed) as u64));
        player.play_until(*until);
    };
    player.load();
    goes_on(player, &mut until, 0);
    for step in script.into_iter().flatten() {
        match step {
            Step::Wait(time) => goes_on(player, &mut until, time),
            Step::Key(key) => {
                let snapshot = player.snapshot(&state.request(&Snapshot::default()));
                match keys::press(&mut state, &snapshot, 24, key) {
                    Command::Quit => return Ok(()),
                    Command::Mark => player.set_mark(),
                    Command::RenewNames => player.renew_names(),
                    Command::Save => {
                        let snapshot = player.snapshot(&state.request(&snapshot));
                        let view = ScreenView {
                            snapshot: &snapshot,
                            subject: &player.subject,
                            state: &state,
                            look: Look::default(),
                        };
                        state.message = Some(saved.save(view));
                    }
                    Command::None => {}
                }
                // A filter takes its allocations from here on.
                player.snapshot(&state.request(&snapshot));
            }
        }
    }
    for frame in 0..frames {
        if frame > 0 || (frames > 1 && from.is_none()) {
            goes_on(player, &mut until, SECOND.max(if player.follows() { 0 } else { second.min(SECOND) }));
        }
        print_frame(player, &state).context(UNPRINTABLE)?;
        if frame + 1 < frames {
            writeln!(io::stdout()).context(UNPRINTABLE)?;
        }
        if player.has_ended() && until.is_some() {
            break;
        }
    }
    Ok(())
}

/// Prints the screen as lines.
fn print_frame(player: &mut Player<'_>, state: &ScreenState) -> io::Result<()> {
    let rows = player.snapshot(&state.request(&Snapshot::default()));
    let snapshot = player.snapshot(&state.request(&rows));
    let mut buffer = Buffer::empty(terminal::size(None));
    let view = ScreenView { snapshot: &snapshot, subject: &player.subject, state, look: Look::default() };
    top_screen::draw(view, &mut buffer);
    kmemtrace_fence::check_stdout()?;
    let mut out = io::stdout().lock();
    out.write_all(top_screen::text(&buffer).as_bytes())?;
    out.flush()
}
