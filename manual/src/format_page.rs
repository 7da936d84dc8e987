//! The man page of the format, made of `abi/FORMAT.md`.

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use crate::page::{Page, Reference, escaped, see_also, title};

/// Description of the format.
const FORMAT: &str = include_str!("../../abi/FORMAT.md");
const NAME: &str = "kmemtrace.data";
const SECTION: u8 = 5;
/// Mark between the cells of a table.
const BETWEEN_CELLS: &str = "\t";

/// Name and section of the page.
pub(crate) fn reference() -> Reference {
    (NAME.to_owned(), SECTION)
}

/// The page.
pub(crate) fn page(others: &[Reference]) -> Page {
    let mut roff = Roff::default();
    // The first line has man run the formatter of tables.
    roff.text += "'\\\" t\n";
    roff.text += &title(NAME, SECTION);
    // On a terminal the page is one long sheet: a table is told where it does not fit.
    roff.text += ".if n .pl 5000v\n";
    roff.text += &format!(".SH \"NAME\"\n{} \\- recording of kernel memory events\n", escaped(NAME));
    roff.text += ".SH \"DESCRIPTION\"\n";
    Parser::new_ext(FORMAT, Options::ENABLE_TABLES).for_each(|event| roff.add(event));
    roff.text += &see_also(others);
    Page { name: NAME.to_owned(), section: SECTION, text: roff.text.into_bytes() }
}

/// Requests to the formatter, as they are made.
#[derive(Default)]
struct Roff {
    text: String,
    /// Words of the paragraph, heading or cell that is read.
    words: String,
    /// Cells of the row that is read.
    cells: Vec<String>,
    is_code: bool,
    is_title: bool,
}

impl Roff {
    fn add(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(&tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) if self.is_code => self.lines(&text),
            Event::Text(text) => self.words += &escaped(&text),
            Event::Code(text) => self.words += &format!("\\fB{}\\fR", escaped(&text)),
            Event::SoftBreak | Event::HardBreak => self.words.push(' '),
            _ => {}
        }
    }

    fn start(&mut self, tag: &Tag<'_>) {
        match tag {
            // The page has a title of its own.
            Tag::Heading { level, .. } => self.is_title = *level == HeadingLevel::H1,
            Tag::CodeBlock(CodeBlockKind::Fenced(_) | CodeBlockKind::Indented) => {
                self.is_code = true;
                self.text += ".PP\n.RS 4\n.nf\n";
            }
            Tag::Table(columns) => {
                // Long texts stand in the last column, which takes what room is left.
                let mut forms = vec!["l"; columns.len().saturating_sub(1)];
                forms.push("lx");
                self.text += &format!(".PP\n.TS\n{}.\n", forms.join(" "));
            }
            Tag::Item => self.words.clear(),
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(level) => {
                let words = std::mem::take(&mut self.words);
                let request = if level == HeadingLevel::H2 { ".SH" } else { ".SS" };
                if !std::mem::take(&mut self.is_title) {
                    self.text +=
                        &format!("{request} \"{}\"\n", words.to_uppercase().replace("\\FB", "").replace("\\FR", ""));
                }
            }
            TagEnd::Paragraph => self.flow(".PP"),
            TagEnd::Item if !self.words.is_empty() => self.flow(".IP \\(bu 2"),
            TagEnd::CodeBlock => {
                self.is_code = false;
                self.text += ".fi\n.RE\n";
            }
            TagEnd::TableCell => self.cells.push(std::mem::take(&mut self.words)),
            TagEnd::TableHead | TagEnd::TableRow => {
                let cells: Vec<String> = std::mem::take(&mut self.cells).iter().map(|cell| boxed(cell)).collect();
                self.text += &format!("{}\n", cells.join(BETWEEN_CELLS));
            }
            TagEnd::Table => {
                self.text += ".TE\n";
            }
            _ => {}
        }
    }

    /// Text that the formatter breaks into lines, behind a request.
    fn flow(&mut self, request: &str) {
        let words = std::mem::take(&mut self.words);
        self.text += &format!("{request}\n{}\n", guarded(&words));
    }

    /// Lines that are printed as they are.
    fn lines(&mut self, text: &str) {
        for line in text.lines() {
            self.text += &format!("{}\n", guarded(&escaped(line)));
        }
    }
}

/// A cell whose text may be broken into lines.
fn boxed(cell: &str) -> String {
    format!("T{{\n{}\nT}}", guarded(cell))
}

/// A line that is no request to the formatter, whatever it begins with.
fn guarded(line: &str) -> String {
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line.to_owned() }
}
