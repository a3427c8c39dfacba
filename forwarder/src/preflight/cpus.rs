//! CPUs as the kernel lists them: "0-3,8".

use std::{fs, io, path::Path};

use super::problem::Problem;

/// More than any kernel is built for.
const CPUS_MAX: usize = 1 << 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpus {
    /// Ascending.
    pub online: Vec<u32>,
    /// Those that could come online too; per-CPU maps have room for each.
    pub possible: Vec<u32>,
}

impl Cpus {
    /// `sys` is where sysfs is mounted.
    pub fn read(sys: &Path) -> io::Result<Self> {
        let list = |name: &str| {
            let path = sys.join("devices/system/cpu").join(name);
            let malformed = || io::Error::other(format!("{} is no list of CPUs", path.display()));
            parse_cpu_list(&fs::read_to_string(&path)?).ok_or_else(malformed)
        };
        Ok(Self { online: list("online")?, possible: list("possible")? })
    }

    /// Those of `wanted` that cannot be steered to.
    pub(super) fn check(&self, wanted: &[u32]) -> Vec<Problem> {
        let offline = wanted.iter().filter(|cpu| !self.online.contains(cpu));
        let problem = |&cpu| Problem::CpuOffline { cpu, online: format_cpu_list(&self.online) };
        offline.map(problem).collect()
    }
}

/// CPU numbers, ascending and none twice. `None` for anything but a list with at least one CPU.
pub fn parse_cpu_list(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last < first || (last - first) as usize >= CPUS_MAX - cpus.len() {
            return None;
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Some(cpus)
}

fn format_cpu_list(cpus: &[u32]) -> String {
    let ranges = cpus.chunk_by(|one, next| one + 1 == *next);
    let range = |range: &[u32]| match range {
        [first, .., last] => format!("{first}-{last}"),
        _ => range.first().map_or_else(String::new, u32::to_string),
    };
    ranges.map(range).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists() {
        let cases = [
            ("0", Some(vec![0])),
            ("0-3\n", Some(vec![0, 1, 2, 3])),
            ("0-1,4,6-7", Some(vec![0, 1, 4, 6, 7])),
            ("4,0-1,1", Some(vec![0, 1, 4])),
            ("", None),
            ("\n", None),
            ("3-1", None),
            ("0-", None),
            ("-1", None),
            ("0,,1", None),
            ("a", None),
            ("0-4294967295", None),
            ("4294967295-4294967295", Some(vec![u32::MAX])),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_cpu_list(text), expected, "{text:?}");
        }
    }

    #[test]
    fn only_online_cpus_can_be_steered_to() {
        let cpus = Cpus { online: vec![0, 1, 2, 5], possible: (0..8).collect() };
        let messages =
            |wanted: &[u32]| cpus.check(wanted).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(messages(&[0, 5]), [""; 0]);
        assert_eq!(
            messages(&[1, 4, 9]),
            [
                "CPU 4 of --steer is not online: online are 0-2,5",
                "CPU 9 of --steer is not online: online are 0-2,5",
            ]
        );
    }

    #[test]
    fn this_machine_has_cpus() {
        let cpus = Cpus::read(Path::new("/sys")).unwrap();
        assert!(!cpus.online.is_empty());
        assert!(cpus.online.iter().all(|cpu| cpus.possible.contains(cpu)));
    }

    proptest! {
        #[test]
        fn what_is_formatted_is_parsed_back(cpus in prop::collection::btree_set(0u32..300, 1..40)) {
            let cpus: Vec<_> = cpus.into_iter().collect();
            prop_assert_eq!(parse_cpu_list(&format_cpu_list(&cpus)), Some(cpus));
        }

        #[test]
        fn any_text_is_parsed_without_a_panic(text in "[0-9,\\- a]{0,24}") {
            if let Some(cpus) = parse_cpu_list(&text) {
                prop_assert!(!cpus.is_empty() && cpus.is_sorted() && cpus.len() <= CPUS_MAX);
            }
        }
    }
}
