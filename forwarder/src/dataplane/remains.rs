//! What the kernel takes apart only after we have let go of it.

use std::{fs, io, path::Path};

use aya::programs::loaded_programs;

/// Programs and kernel threads that end by themselves, a moment after their last reference.
#[derive(Debug, Default)]
pub struct Remains {
    /// Ids of the programs of links. A link itself is of no use here: it gives up its id before it
    /// detaches, and only after that its program.
    pub(super) programs: Vec<u32>,
    /// Ids of CPU maps, each with a kernel thread for every queue.
    pub(super) cpu_maps: Vec<u32>,
}

impl Remains {
    /// Whether anything of it is still there.
    pub fn are_there(&self) -> io::Result<bool> {
        let is_ours = |id| self.programs.contains(&id);
        if loaded_programs().filter_map(Result::ok).any(|program| is_ours(program.id())) {
            return Ok(true);
        }
        Ok(self.cpu_maps.iter().any(|map| has_threads(Path::new("/proc"), *map)))
    }
}

/// The kernel names them `cpumap/CPU/map:ID`.
fn has_threads(proc: &Path, map: u32) -> bool {
    let suffix = format!("/map:{map}");
    let processes = fs::read_dir(proc).into_iter().flatten().flatten();
    let mut names = processes.filter_map(|it| fs::read_to_string(it.path().join("comm")).ok());
    names.any(|name| name.starts_with("cpumap/") && name.trim_end().ends_with(&suffix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_told_by_the_id_of_their_map() {
        let proc = tempfile::tempdir().unwrap();
        for (process, name) in [("2", "kthreadd"), ("70", "cpumap/0/map:26"), ("self", "x")] {
            fs::create_dir(proc.path().join(process)).unwrap();
            fs::write(proc.path().join(process).join("comm"), format!("{name}\n")).unwrap();
        }
        fs::write(proc.path().join("cpuinfo"), "cpumap/0/map:6").unwrap();
        assert!(has_threads(proc.path(), 26));
        assert!(!has_threads(proc.path(), 6));
    }
}
