//! How a command fails, and the exit code for it.

use std::{io, process::ExitCode};

use crate::{
    config::{NameError, cpus::CpuError},
    control::client::ClientError,
    route::grammar::GrammarError,
};

#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// What was typed makes no sense.
    #[error("{0}")]
    Usage(String),
    /// It makes sense, and was not done.
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    NoDaemon(String),
    /// Whoever read the output has seen enough (`| head`).
    #[error("the output was closed")]
    ClosedPipe,
}

impl CliError {
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::ClosedPipe => 0,
            Self::Refused(_) => 1,
            Self::Usage(_) => 2,
            Self::NoDaemon(_) => 3,
        }
    }

    /// Says what went wrong, on standard error.
    pub fn report(&self) -> ExitCode {
        if !matches!(self, Self::ClosedPipe) {
            super::output::say(format_args!("error: {self}"));
        }
        self.exit_code().into()
    }
}

impl From<io::Error> for CliError {
    /// Of the output: other files are named where they are read.
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::ClosedPipe,
            _ => Self::Refused(format!("cannot write the output: {error}")),
        }
    }
}

impl From<ClientError> for CliError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::NoDaemon { .. } => Self::NoDaemon(error.to_string()),
            error => Self::Refused(error.to_string()),
        }
    }
}

impl From<GrammarError> for CliError {
    fn from(error: GrammarError) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<NameError> for CliError {
    fn from(error: NameError) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<CpuError> for CliError {
    fn from(error: CpuError) -> Self {
        Self::Usage(format!("--steer: {error}"))
    }
}
