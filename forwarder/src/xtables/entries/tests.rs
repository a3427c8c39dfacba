use proptest::prelude::*;

use super::*;

/// An entry of IPv4 without conditions.
fn entry(target: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; FORM4.len + EXTENSION_LEN];
    bytes.extend(data);
    let number = |length: usize| u16::try_from(length).unwrap();
    let (target_at, len) = (number(FORM4.len), number(bytes.len()));
    bytes[FORM4.target_offset..][..2].copy_from_slice(&target_at.to_ne_bytes());
    bytes[FORM4.target_offset + 2..][..2].copy_from_slice(&len.to_ne_bytes());
    bytes[FORM4.len + 2..][..target.len()].copy_from_slice(target.as_bytes());
    bytes
}

/// A table with the hook FORWARD: `drop`, a jump to `user`, the policy; and the chain `user`.
fn table() -> (Info, Vec<u8>) {
    let standard = |verdict: i32| entry("", &[&verdict.to_ne_bytes()[..], &[0; 4]].concat());
    let len = standard(0).len();
    let name = |name: &str| {
        let mut data = [0; 32];
        data[..name.len()].copy_from_slice(name.as_bytes());
        entry("ERROR", &data)
    };
    let user = i32::try_from(3 * len + name("user").len()).unwrap();
    let entries = [
        standard(-1),
        standard(user),
        standard(-1),
        name("user"),
        entry("LOG", &[]),
        standard(-5),
        name("ERROR"),
    ];
    let mut hooks = [None; 5];
    hooks[2] = Some((0, 2 * len));
    let entries = entries.concat();
    (Info { hooks, size: entries.len() }, entries)
}

#[test]
fn chains_of_hooks_and_others() {
    let (info, entries) = table();
    let mut ruleset = Ruleset::default();
    read(&FORM4, "filter", &info, &entries, &mut ruleset).unwrap();
    let chains: Vec<_> = ruleset
        .chains
        .iter()
        .map(|(id, chain)| {
            let steps: Vec<_> =
                chain.rules.iter().map(|rule| format!("{:?}", rule.steps)).collect();
            (id.name.as_str(), chain.entry.is_some(), steps.join(" "))
        })
        .collect();
    let jump = "ChainId { family: \"iptables-legacy\", table: \"filter\", name: \"user\" }";
    assert_eq!(
        chains,
        [
            ("FORWARD", true, format!("[Does(\"DROP\")] [Goes({jump})]")),
            ("user", false, "[Does(\"LOG\")] []".to_owned()),
        ]
    );
    let forward = ruleset.chains.values().next().unwrap();
    let policy = forward.entry.as_ref().unwrap().policy.as_ref().unwrap();
    assert_eq!(policy.what, "policy DROP of iptables-legacy chain FORWARD in table filter");
}

#[test]
fn a_description_is_read_if_it_is_whole() {
    let mut bytes = vec![0; INFO_LEN];
    for (at, value) in [(0, 1_u32 << 2), (1 + 2, 152), (6 + 2, 304), (12, 7000)] {
        bytes[TABLE_NAME_LEN + 4 * at..][..4].copy_from_slice(&value.to_ne_bytes());
    }
    let mut hooks = [None; 5];
    hooks[2] = Some((152, 304));
    assert_eq!(info(&bytes), Some(Info { hooks, size: 7000 }));
    assert_eq!(info(&bytes[..INFO_LEN - 1]), None);
}

#[test]
fn a_table_cut_off_anywhere_is_an_error_or_shorter() {
    let (info, entries) = table();
    for length in 1..entries.len() {
        let mut ruleset = Ruleset::default();
        let result = read(&FORM4, "filter", &info, &entries[..length], &mut ruleset);
        let rules: usize = ruleset.chains.values().map(|chain| chain.rules.len()).sum();
        assert!(result.is_err() || rules < 5, "{length}");
    }
}

proptest! {
    #[test]
    fn damaged_tables_are_read_without_a_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        length in any::<prop::sample::Index>(),
        hook in (0..2000_usize, 0..2000_usize),
    ) {
        let (mut info, mut entries) = table();
        for (at, value) in edits {
            *at.get_mut(&mut entries) = value;
        }
        entries.truncate(length.index(entries.len() + 1));
        info.hooks[0] = Some(hook);
        for form in [FORM4, FORM6] {
            let _ = read(&form, "filter", &info, &entries, &mut Ruleset::default());
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..1024)) {
        let (info, _) = (table().0, super::info(&bytes));
        for form in [FORM4, FORM6] {
            let _ = read(&form, "filter", &info, &bytes, &mut Ruleset::default());
        }
    }
}
