//! `audit`: does everything leave as Linux would send it?

use std::{fmt, io::Write};

use serde::Serialize;

use super::{
    error::CliError,
    output::{Output, Progress, say},
};
use crate::{control::client::Client, routing::Difference};

#[derive(Serialize)]
struct DifferenceJson<'a> {
    dst: String,
    difference: &'a str,
}

struct Line<'a>(&'a Difference);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.destination, self.0.what)
    }
}

/// Prints the differences. One is enough for an error.
pub(super) fn run<W: Write>(mut client: Client, output: Output<W>) -> Result<(), CliError> {
    let mut progress = Progress::on_terminal();
    let mut list = output.list();
    let (mut checked, mut differing, mut after) = (0, 0, None);
    loop {
        let page = client.audit(after)?;
        checked += page.checked;
        differing += page.differences.len();
        for difference in &page.differences {
            let json = DifferenceJson {
                dst: difference.destination.to_string(),
                difference: &difference.what,
            };
            list.item(&json, &Line(difference))?;
        }
        progress.show(format_args!("{checked} destinations compared"));
        after = page.more_after;
        if after.is_none() {
            break;
        }
    }
    progress.clear();
    list.end()?;
    say(format_args!("{checked} destinations compared with Linux's answer: {differing} differ"));
    if differing == 0 {
        return Ok(());
    }
    Err(CliError::Refused(format!(
        "{differing} destinations are not forwarded as Linux would: please report this with the output of `ip route show` and `forwarder route show`"
    )))
}
