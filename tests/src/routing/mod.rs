//! Routing daemons as Debian packages them, on hosts of the lab: in the foreground, as children that
//! end with us, with all of their files in a folder that goes with them. No service of the machine
//! is started, asked or changed.

mod bird;
mod frr;

pub use bird::Bird;
pub use frr::Frr;

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::host::Host;

/// Where packages put programs that are not on everybody's path.
const FOLDERS: [&str; 2] = ["/usr/sbin", "/usr/lib/frr"];

/// Where a program lies.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(FOLDERS.map(PathBuf::from));
    folders.map(|folder| folder.join(program)).find(|it| it.is_file())
}

/// The program on a host, with the libraries of its own tree: a package need not be installed, it
/// may also have been unpacked somewhere.
fn command(host: &Host, program: &Path) -> Command {
    let mut command = host.command(program);
    let libraries = libraries(program);
    if !libraries.is_empty() {
        command.env("LD_LIBRARY_PATH", libraries);
    }
    command
}

/// The folders of libraries of the tree that a program was unpacked into; none if it is `/`.
fn libraries(program: &Path) -> OsString {
    let tree = program.ancestors().find(|it| it.ends_with("usr") && *it != Path::new("/usr"));
    let entries = tree.and_then(|usr| fs::read_dir(usr.join("lib")).ok());
    let folders = entries.into_iter().flatten().flatten().map(|entry| entry.path());
    let folders = folders.filter(|it| it.to_string_lossy().ends_with("-linux-gnu"));
    env::join_paths(folders.flat_map(|it| [it.join("frr"), it])).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_the_machine_has_the_libraries_of_the_machine() {
        assert_eq!(libraries(Path::new("/usr/lib/frr/zebra")), "");
        assert_eq!(libraries(Path::new("/usr/sbin/bird")), "");
    }

    #[test]
    fn an_unpacked_one_has_those_of_its_tree() {
        let tree = tempfile::tempdir().unwrap();
        let library = tree.path().join("usr/lib/x86_64-linux-gnu");
        fs::create_dir_all(&library).unwrap();
        let expected = env::join_paths([library.join("frr"), library]).unwrap();
        assert_eq!(libraries(&tree.path().join("usr/lib/frr/zebra")), expected);
    }
}
