# One line for each thing that people and CI run. `just` alone lists them.

_list:
    @just --list --unsorted

# Programs, library and tests, as tests run them
build:
    cargo build --workspace --locked

# All that must pass, as in CI; as root with the live tests and the guests
test:
    ./tests/run

# Format and clippy
lint:
    cargo fmt --all --check && cargo clippy --workspace --all-targets --all-features --locked -- -D warnings

# Documentation of all crates; a warning is an error
docs:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --all-features --locked

# All measurements, as root (KMEMTRACE_BENCH_SECONDS=3 for a short look)
bench:
    ./benches/run

# A check with the oldest compiler that Cargo.toml names
msrv:
    CARGO_TARGET_DIR=target/msrv cargo "+$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)" check --workspace --locked

# Miri on the unsafe code of the library (needs the nightly components miri and rust-src)
miri:
    CARGO_TARGET_DIR=target/miri cargo +nightly miri test --locked -p kmemtrace --lib -- zeroed prefetch

# Licences, sources and duplicates of crates (needs cargo-deny)
deny:
    cargo deny --locked check bans licenses sources

# Targets of fuzzing, each for so many seconds: just fuzz 60, just fuzz 600 meta
fuzz seconds="60" *targets="":
    ./fuzz/run {{seconds}} {{targets}}

# The programs of this tree against those of a commit: the same documents, messages and exit statuses
compare commit="main":
    ./tests/compare {{commit}}

# Man pages into target/man, completions for bash, zsh and fish into target/completions
man:
    cargo run --quiet --locked -p kmemtrace-manual -- target

# Packages for Debian, for distributions with rpm, and static programs, with checksums, into target/packages
packages *kinds:
    ./contrib/packages/build {{kinds}}

# Packages of HEAD, built twice in different folders: they must be equal byte for byte
packages-twice *kinds:
    ./contrib/packages/twice {{kinds}}

# Version number, changelog, tag and packages of a release
release version:
    ./contrib/packages/release {{version}}

# The crates that are published, as crates.io would get them
package-crates:
    cargo package --workspace --locked --exclude kmemtrace-benches --exclude kmemtrace-manual --exclude kmemtrace-tests

# The pages of docs/ and the reference as a site in target/site (needs mdbook)
site: man
    ./contrib/site

# Programs, man pages and completions into PREFIX; DESTDIR is put before it
install prefix="/usr/local": man
    cargo build --release --locked -p kmemtrace-cli -p kmemtraced -p kmemtrace-check -p kmemtrace-report
    install -D -m 755 -t "${DESTDIR-}{{prefix}}/bin" target/release/kmemtrace target/release/kmemtraced target/release/kmemtrace-check target/release/kmemtrace-report
    install -D -m 644 -t "${DESTDIR-}{{prefix}}/share/man/man1" target/man/*.1
    install -D -m 644 -t "${DESTDIR-}{{prefix}}/share/man/man5" target/man/*.5
    install -D -m 644 -t "${DESTDIR-}{{prefix}}/share/man/man8" target/man/*.8
    install -D -m 644 -t "${DESTDIR-}{{prefix}}/share/bash-completion/completions" target/completions/*.bash
    install -D -m 644 -t "${DESTDIR-}{{prefix}}/share/zsh/site-functions" target/completions/_*
    install -D -m 644 -t "${DESTDIR-}{{prefix}}/share/fish/vendor_completions.d" target/completions/*.fish
