//! Options by which kmemtraced starts this program as the viewer of a recording; nobody types them.

/// Word that makes this program a viewer: a process of a user without rights, whose only inputs are a stream and keys.
pub(crate) const WORD: &str = "--viewer";

/// Long names of the options.
pub(crate) const OPTIONS: [&str; 3] = ["viewer", "title", "copied"];

/// Options of a viewer.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ViewerArgs {
    /// Show what kmemtraced records: of top the stream is descriptor 3, and screens are saved through descriptor 4
    #[arg(long = "viewer", help_heading = "Output", hide = true)]
    pub(crate) is_viewer: bool,
    /// Name of the recording
    #[arg(long, value_name = "NAME", help_heading = "Output", hide = true)]
    pub(crate) title: Option<String>,
    /// What is written here goes to a terminal: stdout, stderr
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = "Output", hide = true)]
    pub(crate) copied: Vec<String>,
}
