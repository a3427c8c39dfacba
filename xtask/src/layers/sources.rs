//! What a source file may name, by the folder that it lies in.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, bail};

use super::Fault;

/// In files below `within`, only those below one of `only` may name one of `words`.
struct Rule {
    within: &'static str,
    only: &'static [&'static str],
    words: &'static [&'static str],
}

const RULES: [Rule; 4] = [
    Rule {
        within: "forwarder/src/",
        only: &["forwarder/src/dataplane/"],
        words: &["aya", "aya_log", "aya_obj"],
    },
    Rule {
        within: "forwarder/src/",
        only: &["forwarder/src/netlink/", "forwarder/src/preflight/"],
        words: &[
            "ethtool",
            "genetlink",
            "netlink_packet_core",
            "netlink_packet_generic",
            "netlink_packet_route",
            "netlink_sys",
            "rtnetlink",
        ],
    },
    Rule {
        within: "forwarder-common/src/",
        only: &["forwarder-common/src/packet.rs", "forwarder-common/src/abi.rs"],
        words: &["unsafe"],
    },
    Rule {
        within: "forwarder/src/",
        only: &["forwarder/src/dataplane/memory.rs", "forwarder/src/xtables/socket_option.rs"],
        words: &["unsafe"],
    },
];

/// A path from the root of the workspace, and its text.
pub(super) struct Source {
    pub(super) path: String,
    pub(super) text: String,
}

pub(super) fn read(root: &Path) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    for folder in ["forwarder/src", "forwarder-common/src"] {
        let before = sources.len();
        collect(root, &root.join(folder), &mut sources)?;
        if sources.len() == before {
            bail!("{folder} holds no source");
        }
    }
    Ok(sources)
}

fn collect(root: &Path, folder: &Path, sources: &mut Vec<Source>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(root, &path, sources)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text =
                fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
            let path = path.strip_prefix(root)?.display().to_string();
            sources.push(Source { path, text });
        }
    }
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(())
}

pub(super) fn faults(sources: &[Source]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for source in sources {
        for rule in RULES.iter().filter(|rule| rule.covers(&source.path)) {
            for (line, text) in (1..).zip(source.text.lines()) {
                for word in rule.words.iter().filter(|word| names(&code(text), word)) {
                    faults.push(Fault {
                        place: format!("{}:{line}", source.path),
                        what: format!("names `{word}`, which only {} may", rule.only.join(" and ")),
                    });
                }
            }
        }
    }
    faults
}

impl Rule {
    fn covers(&self, path: &str) -> bool {
        path.starts_with(self.within) && !self.only.iter().any(|allowed| path.starts_with(allowed))
    }
}

/// A crate as the root of a path, or in a `use`; a keyword anywhere.
fn names(code: &str, word: &str) -> bool {
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    code.match_indices(word).any(|(at, _)| {
        let (before, after) = (&code[..at], &code[at + word.len()..]);
        let is_whole = !before.ends_with(is_word) && !after.starts_with(is_word);
        let is_inner = before.trim_end().ends_with("::") && !before.trim_end().ends_with(" ::");
        let is_path = after.trim_start().starts_with("::") || before.trim_end().ends_with("use");
        is_whole && (word == "unsafe" || (is_path && !is_inner))
    })
}

/// The line without its comment and without what stands in string literals.
fn code(line: &str) -> String {
    let mut code = String::new();
    let mut letters = line.chars().peekable();
    let mut in_string = false;
    while let Some(letter) = letters.next() {
        match letter {
            '\\' if in_string => drop(letters.next()),
            // The letter '"' opens no string.
            '"' if !in_string && code.ends_with('\'') && letters.peek() == Some(&'\'') => {}
            '"' => in_string = !in_string,
            '/' if !in_string && letters.peek() == Some(&'/') => break,
            _ if !in_string => code.push(letter),
            _ => {}
        }
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(path: &str, text: &str) -> Option<String> {
        let source = Source { path: path.to_owned(), text: text.to_owned() };
        let faults = super::faults(&[source]);
        assert!(faults.len() < 2, "{faults:?}");
        faults.first().map(ToString::to_string)
    }

    #[test]
    fn a_name_in_the_wrong_folder_is_a_fault_with_its_line() {
        assert_eq!(
            fault("forwarder/src/engine.rs", "//! Words\n\nuse aya::maps::Array;\n").unwrap(),
            "forwarder/src/engine.rs:3: names `aya`, which only forwarder/src/dataplane/ may"
        );
        assert_eq!(
            fault("forwarder/src/rib.rs", "fn a() { rtnetlink::new_connection(); }").unwrap(),
            "forwarder/src/rib.rs:1: names `rtnetlink`, which only forwarder/src/netlink/ and \
             forwarder/src/preflight/ may"
        );
        assert_eq!(
            fault("forwarder-common/src/wire.rs", "    let x = unsafe { *p };").unwrap(),
            "forwarder-common/src/wire.rs:1: names `unsafe`, which only \
             forwarder-common/src/packet.rs and forwarder-common/src/abi.rs may"
        );
        assert_eq!(
            fault("forwarder/src/dataplane/tables.rs", "let x = unsafe { *p };").unwrap(),
            "forwarder/src/dataplane/tables.rs:1: names `unsafe`, which only \
             forwarder/src/dataplane/memory.rs and forwarder/src/xtables/socket_option.rs may"
        );
        for text in ["let x: ::aya::Ebpf;", "use aya_obj as object;", "pub use aya;"] {
            assert!(fault("forwarder/src/engine.rs", text).is_some(), "{text}");
        }
    }

    #[test]
    fn the_same_name_in_its_folder_is_none() {
        assert_eq!(fault("forwarder/src/dataplane/load.rs", "use aya::Ebpf;"), None);
        assert_eq!(fault("forwarder/src/netlink/dump.rs", "use rtnetlink::Handle;"), None);
        assert_eq!(fault("forwarder/src/preflight/nic.rs", "use ethtool::x;"), None);
        assert_eq!(fault("forwarder-common/src/packet.rs", "unsafe fn a() {}"), None);
        assert_eq!(fault("forwarder-common/src/abi.rs", "unsafe impl Pod for X {}"), None);
        assert_eq!(fault("forwarder/src/dataplane/memory.rs", "unsafe { *p }"), None);
    }

    #[test]
    fn words_and_modules_of_the_same_name_are_none() {
        let table = [
            ("forwarder/src/engine.rs", "// aya::Ebpf stays in dataplane"),
            ("forwarder/src/engine.rs", "/// See [`aya::Ebpf`]."),
            ("forwarder/src/engine.rs", "let text = \"use aya::Ebpf \\\" aya::x\";"),
            ("forwarder/src/engine.rs", "let quote = '\"'; // aya::x"),
            ("forwarder/src/engine.rs", "let maya = papaya::x;"),
            ("forwarder/src/engine.rs", "use crate::preflight::ethtool::Features;"),
            ("forwarder/src/engine.rs", "pub mod ethtool;"),
            ("forwarder-common/src/lib.rs", "#![deny(unsafe_code)]"),
        ];
        for (path, text) in table {
            assert_eq!(fault(path, text), None, "{text}");
        }
    }
}
