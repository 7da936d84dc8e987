//! `kmemload`: makes a known number of kernel allocations, to be recorded; see `kmemtrace_tests::load`.
//!
//! Arguments: `iov COUNT VECTORS`, `cross COUNT BYTES`, `mix SECONDS [ROUNDS]`, `rounds COUNT`, `items COUNT SECONDS`,
//! `files COUNT`, `pipes COUNT` and `sockets COUNT`, one a second, `leak COUNT`, which holds its objects until its standard input
//! ends, or `hold pipes|sockets|opened COUNT`, which holds them until it is killed. Prints the process id, then `ready` after its work.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixDatagram;
use std::process::ExitCode;
use std::time::Duration;

use kmemtrace_tests::load;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<usize> = arguments.iter().skip(1).filter_map(|a| a.parse().ok()).collect();
    let word = |number: usize| arguments.get(number).map_or("", String::as_str);
    match run(word(0), word(1), &numbers) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kmemload: {}: {error}", arguments.join(" "));
            ExitCode::FAILURE
        }
    }
}

fn say(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout();
    writeln!(stdout, "{text}")?;
    stdout.flush()
}

fn run(mode: &str, kind: &str, numbers: &[usize]) -> io::Result<()> {
    say(&std::process::id().to_string())?;
    match (mode, numbers) {
        ("iov", &[count, vectors]) => load::iov(count, vectors)?,
        ("cross", &[count, bytes]) => match load::cpus()?[..] {
            [from, to, ..] => load::cross(count, bytes, (from, to))?,
            _ => return Err(io::Error::other("needs two CPUs")),
        },
        ("mix", &[seconds]) => load::mix(Duration::from_secs(seconds as u64), None)?,
        ("mix", &[seconds, pace]) => load::mix(Duration::from_secs(seconds as u64), u32::try_from(pace).ok())?,
        ("rounds", &[count]) => load::rounds(count as u64)?,
        ("items", &[count, seconds]) => load::items(count, Duration::from_secs(seconds as u64))?,
        ("pipes", &[count]) => load::one_a_second(count, io::pipe)?,
        ("sockets", &[count]) => load::one_a_second(count, UnixDatagram::unbound)?,
        ("files", &[count]) => load::files(count)?,
        ("hold", &[count]) => {
            let held = load::hold(kind, count)?;
            say("ready")?;
            while !held.is_empty() {
                std::thread::park();
            }
        }
        ("leak", &[count]) => {
            let held = load::leak(count)?;
            say("ready")?;
            io::stdin().read_to_end(&mut Vec::new())?;
            drop(held);
            return Ok(());
        }
        _ => {
            let usage = "kmemload iov COUNT VECTORS | cross COUNT BYTES | mix SECONDS [ROUNDS A SECOND] | rounds COUNT | items COUNT SECONDS | files COUNT | pipes COUNT | sockets COUNT | leak COUNT | hold pipes|sockets|opened COUNT";
            return Err(io::Error::other(format!("usage: {usage}")));
        }
    }
    say("ready")
}
