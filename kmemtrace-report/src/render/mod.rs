//! From values to text: nothing outside this module knows how a figure or a name looks.

pub(crate) mod escape;
pub(crate) mod units;
pub(crate) mod jsonl {
    pub(crate) fn jsonl(_: &str, _: &serde_json::Value, _: &mut dyn std::io::Write) -> std::io::Result<()> {
        Ok(())
    }
}
pub(crate) mod csv {
    pub(crate) fn csv(_: &str, _: &serde_json::Value, _: &mut dyn std::io::Write) -> std::io::Result<()> {
        Ok(())
    }
}
pub(crate) mod table {
    pub(crate) struct TableOptions {
        pub(crate) width: usize,
        pub(crate) bytes: bool,
        pub(crate) show_addresses: bool,
        pub(crate) title: String,
    }
    pub(crate) fn table(_: &str, d: &serde_json::Value, _: &TableOptions) -> String {
        d.to_string()
    }
}
