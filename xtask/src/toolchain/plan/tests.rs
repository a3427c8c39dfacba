use super::*;
use Finding::{Absent, NoSources, Ready};

fn rustup(toolchain: &str) -> Way {
    Way::Rustup(toolchain.to_owned())
}

fn facts(pinned: Finding, nightly: Finding, system: Finding) -> Facts {
    let ways =
        vec![(rustup("1.95.0"), pinned), (rustup("nightly"), nightly), (Way::System, system)];
    Facts {
        ways,
        named: false,
        linker_refused: false,
        rustup: true,
        apt: true,
        root: true,
        tried: Vec::new(),
    }
}

fn unfit() -> Finding {
    Finding::Unfit("rustc 1.80.0 is older than 1.95".to_owned())
}

fn give_up(facts: &Facts) -> String {
    match next(facts) {
        Step::GiveUp(message) => message,
        step => panic!("{step:?}"),
    }
}

#[test]
fn what_is_there_is_used_before_anything_is_installed() {
    let table = [
        (facts(Ready, Ready, Ready), rustup("1.95.0")),
        (facts(NoSources, Ready, Ready), rustup("nightly")),
        (facts(NoSources, Absent, Ready), Way::System),
        (facts(unfit(), unfit(), Ready), Way::System),
    ];
    for (facts, way) in table {
        assert_eq!(next(&facts), Step::Use(way));
    }
}

#[test]
fn each_way_is_tried_once_and_in_order() {
    let mut facts = facts(NoSources, Absent, Absent);
    let expected = [
        Action::AddSources("1.95.0".to_owned()),
        Action::InstallToolchain("nightly".to_owned()),
        Action::InstallPackages,
    ];
    for action in expected {
        assert_eq!(next(&facts), Step::Install(action.clone()));
        facts.failed(&action, "no network".to_owned());
    }
    give_up(&facts);
}

#[test]
fn an_existing_nightly_is_added_to_and_never_updated() {
    let facts = facts(unfit(), NoSources, Absent);
    let action = Action::AddSources("nightly".to_owned());
    assert_eq!(action.line(), "rustup component add rust-src --toolchain nightly");
    assert_eq!(next(&facts), Step::Install(action));
}

#[test]
fn a_way_that_was_installed_is_used_unless_it_proves_unfit() {
    let mut facts = facts(unfit(), Absent, Absent);
    let install = Action::InstallToolchain("nightly".to_owned());
    assert_eq!(next(&facts), Step::Install(install.clone()));
    facts.done(&install, Ready);
    assert_eq!(next(&facts), Step::Use(rustup("nightly")));
    facts.reject(&rustup("nightly"), "no bpf-linker for it: no cc".to_owned());
    assert_eq!(next(&facts), Step::Install(Action::InstallPackages));
}

#[test]
fn a_named_linker_that_is_of_no_use_lets_nothing_be_installed() {
    let mut facts = facts(NoSources, Ready, Ready);
    facts.linker_refused = true;
    for way in [rustup("nightly"), Way::System] {
        assert_eq!(next(&facts), Step::Use(way.clone()));
        facts.reject(&way, "no bpf-linker for it: of no use".to_owned());
    }
    let message = give_up(&facts);
    assert!(message.contains("/usr/bin/rustc: no bpf-linker for it: of no use"), "{message}");
}

#[test]
fn an_installation_that_changed_nothing_is_not_repeated() {
    let mut facts = facts(unfit(), unfit(), Absent);
    facts.done(&Action::InstallPackages, NoSources);
    let message = give_up(&facts);
    assert!(
        message.contains("/usr/bin/rustc: the sources of `core` are missing, even after `apt-get")
    );
}

#[test]
fn without_root_nothing_is_installed_by_apt_and_the_line_is_shown() {
    let mut facts = facts(unfit(), unfit(), Absent);
    facts.root = false;
    let line = "/usr/bin/rustc: not installed; get it: \
                sudo apt-get install -y --no-install-recommends rustc-web rust-web-src";
    let message = give_up(&facts);
    assert!(message.contains(line), "{message}");
}

#[test]
fn without_apt_it_is_not_proposed() {
    let mut facts = facts(unfit(), unfit(), NoSources);
    facts.apt = false;
    let message = give_up(&facts);
    assert!(message.contains("/usr/bin/rustc: the sources of `core` are missing\n"), "{message}");
}

#[test]
fn the_failure_names_what_is_missing_and_every_way_to_get_it() {
    let mut facts = facts(NoSources, Absent, unfit());
    facts.root = false;
    for action in
        [Action::AddSources("1.95.0".to_owned()), Action::InstallToolchain("nightly".to_owned())]
    {
        facts.failed(&action, format!("`{}` failed", action.line()));
    }
    assert_eq!(
        give_up(&facts),
        "no toolchain for the eBPF program: it takes a rustc 1.95 or newer with LLVM 22 to 23 and \
         the sources of its `core`, and a bpf-linker built against that LLVM\n  \
         rustup, 1.95.0: the sources of `core` are missing; `rustup component add rust-src \
         --toolchain 1.95.0` failed\n  \
         rustup, nightly: not installed; `rustup toolchain install nightly \
         --profile minimal --component rust-src --no-self-update` failed\n  \
         /usr/bin/rustc: rustc 1.80.0 is older than 1.95\n  \
         by hand: set FORWARDER_BPF_RUSTC to such a rustc, and FORWARDER_BPF_LINKER to a \
         bpf-linker for it"
    );
}

#[test]
fn without_rustup_the_message_says_where_it_is() {
    let ways = Vec::new();
    let facts = Facts {
        ways,
        named: false,
        linker_refused: false,
        rustup: false,
        apt: false,
        root: false,
        tried: Vec::new(),
    };
    let message = give_up(&facts);
    assert!(message.contains("rustup: not installed (https://rustup.rs)"), "{message}");
    assert!(message.contains("by hand: set FORWARDER_BPF_RUSTC"), "{message}");
}

#[test]
fn a_named_compiler_that_does_not_fit_is_not_replaced_by_another() {
    let ways = vec![(Way::Named, NoSources)];
    let facts = Facts {
        ways,
        named: true,
        linker_refused: false,
        rustup: true,
        apt: true,
        root: true,
        tried: Vec::new(),
    };
    let message = give_up(&facts);
    let end = "\n  FORWARDER_BPF_RUSTC: the sources of `core` are missing";
    assert!(message.ends_with(end), "{message}");
}

#[test]
fn the_environment_can_leave_one_way() {
    let ways = vec![rustup("nightly"), Way::System];
    assert_eq!(allowed(None, ways.clone()), Ok(ways.clone()));
    assert_eq!(allowed(Some("system"), ways.clone()), Ok(vec![Way::System]));
    assert_eq!(allowed(Some("rustup"), ways.clone()), Ok(vec![rustup("nightly")]));
    assert!(allowed(Some("gentoo"), ways).is_err());
}
