//! Data on standard output, as text or JSON; talk on standard error.

use std::{
    fmt::{Arguments, Display},
    io::{self, IsTerminal as _, Write},
    time::{Duration, Instant},
};

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Text,
    Json,
    PrettyJson,
}

impl Format {
    pub(super) fn new(json: bool, pretty: bool) -> Self {
        match (json, pretty) {
            (false, _) => Self::Text,
            (true, false) => Self::Json,
            (true, true) => Self::PrettyJson,
        }
    }
}

/// Where a command writes its data.
pub(super) struct Output<W> {
    to: W,
    pub(super) format: Format,
}

impl<W: Write> Output<W> {
    pub(super) fn new(to: W, format: Format) -> Self {
        Self { to, format }
    }

    /// One document: this text, or that structure.
    pub(super) fn document(
        &mut self,
        json: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> io::Result<()> {
        match self.format {
            Format::Text => self.to.write_all(text().as_bytes())?,
            Format::Json | Format::PrettyJson => {
                self.value(json)?;
                writeln!(self.to)?;
            }
        }
        self.to.flush()
    }

    /// What has one form only.
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.to.write_all(bytes)?;
        self.to.flush()
    }

    /// A list whose length need not be known: lines, or one array.
    pub(super) fn list(self) -> List<W> {
        List { output: self, items: 0 }
    }

    fn value(&mut self, json: &impl Serialize) -> io::Result<()> {
        match self.format {
            Format::PrettyJson => serde_json::to_writer_pretty(&mut self.to, json),
            Format::Text | Format::Json => serde_json::to_writer(&mut self.to, json),
        }
        .map_err(io::Error::from)
    }
}

pub(super) struct List<W> {
    output: Output<W>,
    items: u64,
}

impl<W: Write> List<W> {
    pub(super) fn item(&mut self, json: &impl Serialize, text: &impl Display) -> io::Result<()> {
        let first = self.items == 0;
        self.items += 1;
        if self.output.format == Format::Text {
            return writeln!(self.output.to, "{text}");
        }
        self.output.to.write_all(if first { b"[" } else { b"," })?;
        self.output.value(json)
    }

    /// Must be called: an array without its end is no JSON.
    pub(super) fn end(mut self) -> io::Result<()> {
        match (self.output.format, self.items) {
            (Format::Text, _) => {}
            (_, 0) => writeln!(self.output.to, "[]")?,
            (_, _) => writeln!(self.output.to, "]")?,
        }
        self.output.to.flush()
    }
}

/// One line on a terminal that says how far something is; nothing where there is no terminal, and
/// nothing of what takes less than a moment.
pub(super) struct Progress {
    is_on: bool,
    next: Instant,
    is_shown: bool,
}

/// Between two changes of the line, and before the first.
const PROGRESS_STEP: Duration = Duration::from_millis(250);

impl Progress {
    /// On standard error.
    pub(super) fn on_terminal() -> Self {
        Self {
            is_on: io::stderr().is_terminal(),
            next: Instant::now() + PROGRESS_STEP,
            is_shown: false,
        }
    }

    pub(super) fn show(&mut self, line: Arguments<'_>) {
        if self.is_on && Instant::now() >= self.next {
            self.next = Instant::now() + PROGRESS_STEP;
            self.is_shown = true;
            let _ = write!(io::stderr(), "\r{line}\x1b[K");
        }
    }

    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// A line on standard error. Where nobody listens, there is nobody to tell that.
pub(super) fn say(line: Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(format: Format, items: &[u32]) -> String {
        let mut bytes = Vec::new();
        let mut list = Output::new(&mut bytes, format).list();
        for item in items {
            list.item(item, &format_args!("item {item}")).unwrap();
        }
        list.end().unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_list_is_lines_or_one_array() {
        assert_eq!(listed(Format::Text, &[]), "");
        assert_eq!(listed(Format::Text, &[1, 2]), "item 1\nitem 2\n");
        assert_eq!(listed(Format::Json, &[]), "[]\n");
        assert_eq!(listed(Format::Json, &[1]), "[1]\n");
        assert_eq!(listed(Format::Json, &[1, 2]), "[1,2]\n");
        assert_eq!(listed(Format::PrettyJson, &[1, 2]), "[1,2]\n");
    }

    #[test]
    fn a_document_is_text_or_json() {
        for (format, expected) in [
            (Format::Text, "text\n"),
            (Format::Json, "{\"key\":1}\n"),
            (Format::PrettyJson, "{\n  \"key\": 1\n}\n"),
        ] {
            let mut bytes = Vec::new();
            let json = serde_json::json!({ "key": 1 });
            let mut output = Output::new(&mut bytes, format);
            output.document(&json, || "text\n".to_owned()).unwrap();
            assert_eq!(String::from_utf8(bytes).unwrap(), expected);
        }
    }

    #[test]
    fn pretty_alone_is_text() {
        assert_eq!(Format::new(false, true), Format::Text);
    }
}
