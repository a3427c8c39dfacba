//! Lists of CPUs, as people write them (`0-3,6`), and whether this machine has them.

use forwarder_common::abi::CPUS_MAX;

/// What is wrong with a list of CPUs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuError {
    #[error("the list of CPUs is empty: write for example 0-3,6")]
    Empty,
    #[error("'{0}' is neither the number of a CPU nor a range of them: write for example 0-3,6")]
    Malformed(String),
    #[error("the range {first}-{last} runs backwards: write {last}-{first}")]
    Backwards { first: u32, last: u32 },
    #[error("CPU {cpu} is beyond the last possible number, {}", CPUS_MAX - 1)]
    TooHigh { cpu: u32 },
    #[error("CPU {cpu} is listed twice")]
    Twice { cpu: u32 },
    #[error("this machine has no CPU {cpu}: it has {possible}")]
    Absent { cpu: u32, possible: String },
    #[error(
        "CPU {cpu} is offline: bring it online (echo 1 > /sys/devices/system/cpu/cpu{cpu}/online) or choose of {online}"
    )]
    Offline { cpu: u32, online: String },
}

/// Reads a list: numbers and ranges, in any order, none twice. The answer ascends.
///
/// # Errors
///
/// Names the CPU that is at fault.
pub fn parse_cpus(text: &str) -> Result<Vec<u32>, CpuError> {
    if text.trim().is_empty() {
        return Err(CpuError::Empty);
    }
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = parse_range(part.trim())?;
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    match cpus.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(CpuError::Twice { cpu: pair[0] }),
        None => Ok(cpus),
    }
}

/// Checks that each CPU is there and runs. A CPU that is merely possible has no kernel thread that
/// could forward.
///
/// # Errors
///
/// Names the first CPU that cannot be used.
pub fn check_cpus(cpus: &[u32], online: &[u32], possible: &[u32]) -> Result<(), CpuError> {
    for &cpu in cpus {
        if !possible.contains(&cpu) {
            return Err(CpuError::Absent { cpu, possible: format_cpus(possible) });
        }
        if !online.contains(&cpu) {
            return Err(CpuError::Offline { cpu, online: format_cpus(online) });
        }
    }
    Ok(())
}

/// Writes an ascending list in its shortest form.
pub fn format_cpus(cpus: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(cpu) => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let ranges = ranges.into_iter().map(|(first, last)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    });
    ranges.collect::<Vec<_>>().join(",")
}

fn parse_range(part: &str) -> Result<(u32, u32), CpuError> {
    let number = |text: &str| {
        // Without this, "+3" would be a number.
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u32>().ok().filter(|_| digits)
    };
    let malformed = || CpuError::Malformed(part.to_owned());
    let (first, last) = match part.split_once('-') {
        None => number(part).map(|cpu| (cpu, cpu)),
        Some((first, last)) => number(first).zip(number(last)),
    }
    .ok_or_else(malformed)?;
    // Before a range is written out.
    if let Some(cpu) = [first, last].into_iter().find(|cpu| *cpu >= CPUS_MAX) {
        return Err(CpuError::TooHigh { cpu });
    }
    if first > last { Err(CpuError::Backwards { first, last }) } else { Ok((first, last)) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_are_read() {
        for (text, cpus) in [
            ("0", &[0][..]),
            ("0-3,6", &[0, 1, 2, 3, 6]),
            ("6,0-3", &[0, 1, 2, 3, 6]),
            ("3-3", &[3]),
            (" 1 , 2 ", &[1, 2]),
            ("4095", &[4095]),
        ] {
            assert_eq!(parse_cpus(text).unwrap(), cpus, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_list_is_named() {
        let malformed = "neither the number of a CPU nor a range of them: write for example 0-3,6";
        for (text, message) in [
            ("", "the list of CPUs is empty: write for example 0-3,6".to_owned()),
            (" ", "the list of CPUs is empty: write for example 0-3,6".to_owned()),
            ("0,,1", format!("'' is {malformed}")),
            ("0-", format!("'0-' is {malformed}")),
            ("-1", format!("'-1' is {malformed}")),
            ("+1", format!("'+1' is {malformed}")),
            ("a", format!("'a' is {malformed}")),
            ("0-1-2", format!("'0-1-2' is {malformed}")),
            ("99999999999", format!("'99999999999' is {malformed}")),
            ("3-1", "the range 3-1 runs backwards: write 1-3".to_owned()),
            ("0-4294967295", "CPU 4294967295 is beyond the last possible number, 4095".to_owned()),
            ("4096", "CPU 4096 is beyond the last possible number, 4095".to_owned()),
            ("1,1", "CPU 1 is listed twice".to_owned()),
            ("0-3,2", "CPU 2 is listed twice".to_owned()),
        ] {
            assert_eq!(parse_cpus(text).unwrap_err().to_string(), message, "{text}");
        }
    }

    #[test]
    fn a_cpu_that_cannot_forward_is_named() {
        let (online, possible) = ([0, 1, 3], [0, 1, 2, 3]);
        assert_eq!(check_cpus(&[0, 3], &online, &possible), Ok(()));
        assert_eq!(
            check_cpus(&[0, 4], &online, &possible).unwrap_err().to_string(),
            "this machine has no CPU 4: it has 0-3"
        );
        assert_eq!(
            check_cpus(&[2], &online, &possible).unwrap_err().to_string(),
            "CPU 2 is offline: bring it online (echo 1 > /sys/devices/system/cpu/cpu2/online) or choose of 0-1,3"
        );
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(cpus in prop::collection::btree_set(0..CPUS_MAX, 1..40)) {
            let cpus: Vec<u32> = cpus.into_iter().collect();
            prop_assert_eq!(parse_cpus(&format_cpus(&cpus)), Ok(cpus));
        }
    }
}
