//! Layers of the programs' sandboxes, as tests of all programs take them away.

/// Number of SIGSYS, which ends a program in the mode strict, on the machines that have a list of system calls.
pub const SIGSYS: i32 = 31;

/// Calls that close a layer, with an error of a kernel without it, and the layer's name.
pub const LAYERS: [(&str, &str); 4] = [
    ("capset:error=EPERM", "capabilities"),
    ("landlock_create_ruleset:error=ENOSYS", "landlock"),
    ("landlock_restrict_self:error=EOPNOTSUPP", "landlock"),
    ("seccomp:error=EINVAL", "seccomp"),
];
