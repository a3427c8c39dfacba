//! `cargo xtask soak`: the tests that are too long for every day.

use std::time::Duration;

use anyhow::Result;

use crate::{test, workspace::Workspace};

/// Run the long tests
///
/// They are the ignored tests in tests/tests/soak*.rs, run one after the other, with the same
/// preparations as `cargo xtask test`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A test program that takes longer is ended
    #[arg(long, default_value_t = 4, value_name = "HOURS")]
    limit: u32,
    /// Only tests whose name contains one of these
    #[arg(value_name = "FILTER")]
    filters: Vec<String>,
}

pub(crate) fn run(workspace: &Workspace, args: Args) -> Result<()> {
    test::soak(workspace, &args.filters, Duration::from_hours(args.limit.into()))
}
