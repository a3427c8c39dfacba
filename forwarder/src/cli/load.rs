//! `route load`: a file of routes, read as a whole before the first is sent.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
};

use foldhash::fast::RandomState;

use super::{error::CliError, output::Progress};
use crate::{
    prefix::{Family, Prefix},
    route::{Existing, NEXT_HOPS_MAX, Route, grammar, protocol},
};

/// Bytes of the longest line.
pub(super) const LINE_MAX: usize = 4096;
const READ_SIZE: usize = 256 << 10;
const LINES_BETWEEN_SIGNS: usize = 4096;
/// Lists of next hops that are remembered; a file with more of them is read more slowly.
const KNOWN_MAX: usize = 1 << 16;
/// Characters of a wrong line that are shown.
const SHOWN_MAX: usize = 200;

/// How the daemon says that a prefix stands in a load for the second time.
const TWICE: &str = "is there twice";

/// The routes of a file, and the line on which each stands.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) routes: Vec<Route>,
    lines: Vec<usize>,
    /// Routes of Linux's, as `route show` prints them beside ours.
    pub(super) skipped: u64,
}

/// A line that cannot be loaded, and why.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LineError {
    pub(super) number: usize,
    /// As much of it as is good to show.
    pub(super) line: String,
    pub(super) message: String,
}

impl LineError {
    /// The error as a user reads it: where, why, and the line itself.
    pub(super) fn in_file(&self, file: &Path) -> CliError {
        let Self { number, line, message } = self;
        let name = if is_stdin(file) { "standard input".into() } else { file.to_string_lossy() };
        CliError::Refused(format!("{name}:{number}: {message}\n  {line}\nnothing was changed"))
    }
}

/// Reads a file, or standard input for `-`.
pub(super) fn read_file(
    file: &Path,
    family: Option<Family>,
    existing: Existing,
    progress: &mut Progress,
) -> Result<Batch, CliError> {
    let unreadable =
        |error: io::Error| CliError::Refused(format!("cannot read {}: {error}", file.display()));
    let source: Box<dyn Read> = if is_stdin(file) {
        Box::new(io::stdin())
    } else {
        Box::new(File::open(file).map_err(unreadable)?)
    };
    let source = BufReader::with_capacity(READ_SIZE, source);
    let read_lines = |count| progress.show(format_args!("{count} lines read"));
    let batch = read(source, family, existing, read_lines);
    progress.clear();
    batch.map_err(unreadable)?.map_err(|error| error.in_file(file))
}

/// Reads lines. The outer error is the reader's, the inner one that of a line.
pub(super) fn read(
    mut source: impl BufRead,
    family: Option<Family>,
    existing: Existing,
    mut read_lines: impl FnMut(usize),
) -> io::Result<Result<Batch, LineError>> {
    let mut reader = Reader::new(family, existing);
    let mut bytes = Vec::new();
    for number in 1.. {
        bytes.clear();
        // One byte more than allowed tells a line that is too long from one that just fits.
        let size = source.by_ref().take(LINE_MAX as u64 + 1).read_until(b'\n', &mut bytes)?;
        if size == 0 {
            break;
        }
        if let Err(error) = reader.line(number, &bytes) {
            return Ok(Err(error));
        }
        if number % LINES_BETWEEN_SIGNS == 0 {
            read_lines(number);
        }
    }
    Ok(reader.end())
}

/// A route may go on in the next lines: they begin with `nexthop`.
struct Reader {
    family: Option<Family>,
    existing: Existing,
    batch: Batch,
    /// The line on which a route began that may go on.
    begun: Option<usize>,
    /// A route began that is not ours, and may go on.
    skips: bool,
    /// Its words, with a space between two.
    words: String,
    next_hops: usize,
    /// Its first line, as it is to be shown.
    shown: Vec<u8>,
    /// Whatever stood behind a prefix of a family, and what it meant: files repeat it.
    known: HashMap<String, Route, RandomState>,
}

impl Reader {
    fn new(family: Option<Family>, existing: Existing) -> Self {
        Self {
            family,
            existing,
            batch: Batch::default(),
            begun: None,
            skips: false,
            words: String::new(),
            next_hops: 0,
            shown: Vec::new(),
            known: HashMap::default(),
        }
    }

    fn line(&mut self, number: usize, bytes: &[u8]) -> Result<(), LineError> {
        if let Some(words) = plain(bytes).filter(|words| !names_another(words)) {
            self.route()?;
            self.skips = false;
            self.begin(number, bytes);
            self.words.push_str(words);
            return Ok(());
        }
        let wrong = |message| line_error(number, bytes, message);
        let words = words(bytes).map_err(wrong)?;
        match words.first() {
            None => Ok(()),
            Some(&"nexthop") if self.skips => Ok(()),
            Some(&"nexthop") if self.begun.is_some() => {
                self.take(&words);
                if self.next_hops > NEXT_HOPS_MAX {
                    return Err(wrong(format!("a route has at most {NEXT_HOPS_MAX} next hops")));
                }
                Ok(())
            }
            Some(_) => {
                self.route()?;
                let words = strip_command(&words, self.existing).map_err(wrong)?;
                self.skips = is_linuxs(words);
                if self.skips {
                    self.batch.skipped += 1;
                    return Ok(());
                }
                self.begin(number, bytes);
                self.take(words);
                Ok(())
            }
        }
    }

    fn begin(&mut self, number: usize, bytes: &[u8]) {
        self.words.clear();
        self.next_hops = 0;
        self.begun = Some(number);
        self.shown.clear();
        self.shown.extend_from_slice(bytes);
    }

    fn take(&mut self, words: &[&str]) {
        for word in words {
            if !self.words.is_empty() {
                self.words.push(' ');
            }
            self.words.push_str(word);
            self.next_hops += usize::from(*word == "nexthop");
        }
    }

    /// The route that was begun has ended.
    fn route(&mut self) -> Result<(), LineError> {
        let Some(number) = self.begun.take().filter(|_| !self.words.is_empty()) else {
            return Ok(());
        };
        let route = if let Some(route) = self.repeated() {
            route
        } else {
            let words: Vec<&str> = self.words.split(' ').collect();
            let route = grammar::route(&words, self.family)
                .map_err(|error| line_error(number, &self.shown, error.to_string()))?;
            self.remember(&route);
            route
        };
        self.batch.routes.push(route);
        self.batch.lines.push(number);
        Ok(())
    }

    /// A route whose words but the prefix were read before, behind a prefix of the same family.
    fn repeated(&self) -> Option<Route> {
        let (prefix, rest) = self.words.split_once(' ')?;
        let known = self.known.get(rest)?;
        let prefix: Prefix = prefix.parse().ok()?;
        (prefix.family() == known.prefix.family()).then(|| Route { prefix, ..known.clone() })
    }

    fn remember(&mut self, route: &Route) {
        // What is no prefix is a keyword, or its family depends on the words behind it.
        if let Some((prefix, rest)) = self.words.split_once(' ')
            && prefix.parse() == Ok(route.prefix)
            && self.known.len() < KNOWN_MAX
        {
            self.known.insert(rest.to_owned(), route.clone());
        }
    }

    fn end(mut self) -> Result<Batch, LineError> {
        self.route()?;
        Ok(self.batch)
    }
}

impl Batch {
    /// The line of a route that the daemon has refused, by its index.
    pub(super) fn blame(&self, index: u64, message: String) -> Option<LineError> {
        let index = usize::try_from(index).ok()?;
        let (route, number) = (self.routes.get(index)?, *self.lines.get(index)?);
        let is_same = |other: &Route| other.prefix == route.prefix && other.cpus == route.cpus;
        let first = self.routes[..index].iter().position(is_same);
        let message = match first.filter(|_| message.ends_with(TWICE)) {
            Some(first) => format!(
                "{}: File exists: line {} has this prefix already (with --replace the last one counts)",
                route.prefix, self.lines[first]
            ),
            None => message,
        };
        Some(LineError { number, line: route.to_string(), message })
    }
}

fn is_stdin(file: &Path) -> bool {
    file == Path::new("-")
}

/// The words of a line that is what most lines of large files are: a prefix that begins with a digit,
/// then words with one space before each, and neither a comment nor `nexthop` among them. It need not
/// be taken apart.
fn plain(bytes: &[u8]) -> Option<&str> {
    let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && *byte != b'#' || *byte == b' ';
    let begins = line.first().is_some_and(u8::is_ascii_digit);
    if !begins || bytes.len() > LINE_MAX || !line.iter().all(is_plain) || line.ends_with(b" ") {
        return None;
    }
    let words = str::from_utf8(line).ok()?;
    (!words.contains("  ") && !words.contains("nexthop")).then_some(words)
}

/// Those of a line; none where there is nothing on it.
fn words(bytes: &[u8]) -> Result<Vec<&str>, String> {
    if bytes.len() > LINE_MAX {
        return Err(format!("the line is longer than {LINE_MAX} bytes: is this a list of routes?"));
    }
    if bytes.contains(&0) {
        return Err("the line has a zero byte: is this a text file?".to_owned());
    }
    let text = str::from_utf8(bytes).map_err(|_| "the line is not UTF-8".to_owned())?;
    let text = text.split_once('#').map_or(text, |(before, _)| before);
    Ok(text.split_whitespace().collect())
}

/// Whether the words name a protocol that is not ours.
fn is_linuxs(words: &[&str]) -> bool {
    let named = words.windows(2).find(|pair| matches!(pair[0], "proto" | "protocol"));
    named.is_some_and(|pair| pair[1] != protocol::XDP && protocol::is_known(pair[1]))
}

/// Whether a line may name a protocol that is not ours: it is looked at more closely.
fn names_another(line: &str) -> bool {
    line.split_once(" proto").is_some_and(|(_, rest)| !rest.starts_with(" xdp"))
}

/// Skips `route add`, as files for `ip -batch` have it.
fn strip_command<'a, 'b>(
    words: &'a [&'b str],
    existing: Existing,
) -> Result<&'a [&'b str], String> {
    let (after_route, words) = match words {
        ["route" | "ro" | "r", rest @ ..] => (true, rest),
        words => (false, words),
    };
    match (words, existing) {
        ([command @ ("add" | "a" | "replace")], _) => {
            Err(format!("'{command}' needs a route after it"))
        }
        (["add" | "a", rest @ ..], _) | (["replace", rest @ ..], Existing::Replace) => Ok(rest),
        (["replace", ..], _) => {
            Err("'replace' is for `route load --replace`, which replaces on every line".to_owned())
        }
        ([command @ ("del" | "delete" | "append" | "change" | "flush"), ..], _) => {
            Err(format!("'{command}' is not supported in a file: its routes are all added"))
        }
        ([], _) if after_route => Err("'route' needs a route after it".to_owned()),
        (words, _) => Ok(words),
    }
}

fn line_error(number: usize, bytes: &[u8], message: String) -> LineError {
    let text = String::from_utf8_lossy(bytes);
    let shown = text.trim().chars().take(SHOWN_MAX);
    let line = shown.map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    LineError { number, line, message }
}

#[cfg(test)]
mod tests;
