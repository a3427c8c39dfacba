//! Tables of iptables as it was before nftables, which a kernel may still have beside those: read
//! by socket options, since no netlink tells of them. Nor does any notification.

mod entries;
mod socket_option;

use std::{
    fs, io,
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use socket2::{Domain, Socket, Type};

use self::{
    entries::{ENTRIES_AT, FORM4, FORM6, Form, INFO_LEN, TABLE_NAME_LEN, info, read},
    socket_option::{Level, Question, ask},
};
use crate::bypass::rules::Ruleset;

/// How often a table is read that changes while we do.
const ATTEMPTS_MAX: u32 = 8;
/// Bytes of a table's entries that are read: some 500,000 rules.
const ENTRIES_MAX: usize = 128 << 20;

/// The tables that there are, in the network namespace of the calling thread. `proc` is where
/// procfs is mounted.
pub fn rules(proc: &Path) -> io::Result<Ruleset> {
    let mut ruleset = Ruleset::default();
    let families = [
        (FORM4, "ip_tables_names", Domain::IPV4, Level::Ipv4),
        (FORM6, "ip6_tables_names", Domain::IPV6, Level::Ipv6),
    ];
    for (form, list, domain, level) in families {
        let tables = tables(&proc.join("thread-self/net").join(list))?;
        if tables.is_empty() {
            continue;
        }
        let socket = Socket::new(domain, Type::DGRAM, None)?;
        for table in tables {
            read_table(&socket, &form, level, &table, &mut ruleset)?;
        }
    }
    Ok(ruleset)
}

/// Names of tables that are in use: a kernel without them has no list either.
fn tables(list: &PathBuf) -> io::Result<Vec<String>> {
    match fs::read_to_string(list) {
        Ok(names) => Ok(names.lines().map(str::to_owned).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn read_table(
    socket: &Socket,
    form: &Form,
    level: Level,
    table: &str,
    ruleset: &mut Ruleset,
) -> io::Result<()> {
    for _ in 0..ATTEMPTS_MAX {
        let mut buffer = named(table, INFO_LEN);
        let answered = ask(socket.as_fd(), level, Question::Info, &mut buffer)?;
        let malformed = || io::Error::new(io::ErrorKind::InvalidData, "a malformed description");
        let info = info(&buffer[..answered]).ok_or_else(malformed)?;
        if info.size > ENTRIES_MAX {
            return Err(io::Error::other(format!(
                "table {table} has {} bytes of rules",
                info.size
            )));
        }
        let mut buffer = named(table, ENTRIES_AT + info.size);
        let size = u32::try_from(info.size).unwrap_or(u32::MAX).to_ne_bytes();
        buffer[TABLE_NAME_LEN..TABLE_NAME_LEN + 4].copy_from_slice(&size);
        match ask(socket.as_fd(), level, Question::Entries, &mut buffer) {
            Ok(_) => return read(form, table, &info, &buffer[ENTRIES_AT..], ruleset),
            // It has another size now.
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other(format!("table {table} changed each time while it was read")))
}

/// A question about a table, with room for the answer.
fn named(table: &str, len: usize) -> Vec<u8> {
    let mut buffer = vec![0; len];
    let bytes = table.as_bytes();
    let kept = bytes.len().min(TABLE_NAME_LEN - 1);
    buffer[..kept].copy_from_slice(&bytes[..kept]);
    buffer
}

#[cfg(test)]
mod tests;
