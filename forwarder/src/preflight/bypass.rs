//! What XDP would bypass, read from wherever Linux has it.

use std::{collections::BTreeSet, io, path::PathBuf};

use super::Problem;
use crate::{
    bypass::{Families, Finding, Kind, LISTED_MAX, Port, kinds, rules, words},
    dataplane,
    netlink::Rules,
    xtables,
};

/// How often in a row something cannot be read before that counts as found: rules that are being
/// replaced are told again and again by the kernel as interrupted.
const FAILURES_MAX: u32 = 3;

/// What is found and not allowed stands against forwarding.
pub(super) fn check(found: &[Finding], allowed: &BTreeSet<Kind>) -> Vec<Problem> {
    let refused: Vec<_> = found.iter().filter(|it| !allowed.contains(&it.kind)).cloned().collect();
    let count = refused.len().saturating_sub(LISTED_MAX);
    let words = words(&(&kinds(&refused) | allowed));
    let mut problems: Vec<_> =
        refused.into_iter().take(LISTED_MAX).map(Problem::Bypassed).collect();
    if count > 0 {
        problems.push(Problem::MoreBypassed { count, words });
    }
    problems
}

/// Reads again and again; what it needs for that.
pub struct Scanner {
    rules: Rules,
    proc: PathBuf,
    /// As they are called, where that is known to be so still.
    ports: Option<Vec<Port>>,
    nftables: Source,
    xtables: Source,
    bpf: Source,
    traffic_control: Source,
    ipsec: Source,
}

impl Scanner {
    /// In the network namespace of the calling thread, and so must its scans be. `proc` is where
    /// procfs is mounted.
    pub fn open(proc: PathBuf) -> io::Result<Self> {
        Ok(Self {
            rules: Rules::open()?,
            proc,
            ports: None,
            nftables: Source::new(Kind::Netfilter, "nftables"),
            xtables: Source::new(Kind::Netfilter, "iptables-legacy"),
            bpf: Source::new(Kind::Netfilter, "BPF links"),
            traffic_control: Source::new(Kind::Tc, "queueing disciplines and filters of tc"),
            ipsec: Source::new(Kind::Xfrm, "IPsec policies"),
        })
    }

    /// Reads all of it again next time.
    pub fn forget(&mut self) {
        self.rules.forget();
        self.ports = None;
    }

    /// What is there between the interfaces with these indexes. What cannot be read is found too:
    /// nobody knows what it would have been.
    pub async fn scan(&mut self, ifindexes: &[u32]) -> Vec<Finding> {
        let ports = match self.ports.take() {
            Some(ports) => ports,
            None => match self.rules.ports(ifindexes).await {
                Ok(ports) => ports,
                Err(error) => {
                    return Kind::ALL.map(|kind| unreadable(kind, "links", &error)).into();
                }
            },
        };
        let legacy = xtables::rules(&self.proc).map(|rules| rules::findings(&rules, &ports));
        let found = [
            self.nftables.take(self.rules.nftables(&ports).await),
            self.xtables.take(legacy),
            self.bpf.take(dataplane::bypassed(&ports)),
            self.traffic_control.take(self.rules.traffic_control(&ports).await),
            self.ipsec.take(self.rules.ipsec(&ports).await),
        ];
        self.ports = Some(ports);
        found.concat()
    }
}

/// One place that rules are read from.
struct Source {
    kind: Kind,
    name: &'static str,
    /// As last read.
    last: Option<Vec<Finding>>,
    /// Since then.
    failures: u32,
}

impl Source {
    fn new(kind: Kind, name: &'static str) -> Self {
        Self { kind, name, last: None, failures: 0 }
    }

    fn take(&mut self, read: io::Result<Vec<Finding>>) -> Vec<Finding> {
        match read {
            Ok(found) => {
                self.failures = 0;
                self.last.insert(found).clone()
            }
            Err(error) => {
                self.failures += 1;
                tracing::warn!(%error, "cannot read the kernel's {}", self.name);
                match &self.last {
                    Some(last) if self.failures < FAILURES_MAX => last.clone(),
                    _ => vec![unreadable(self.kind, self.name, &error)],
                }
            }
        }
    }
}

fn unreadable(kind: Kind, name: &str, error: &io::Error) -> Finding {
    Finding {
        kind,
        families: Families::BOTH,
        what: format!("the kernel's {name}, which cannot be read ({error})"),
        remedy: "have a look at them".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(what: &str) -> Finding {
        Finding {
            kind: Kind::Xfrm,
            families: Families::V4,
            what: what.to_owned(),
            remedy: "remove it".to_owned(),
        }
    }

    #[test]
    fn what_is_not_allowed_is_refused_and_the_list_ends() {
        let tc = Finding { kind: Kind::Tc, ..finding("a filter") };
        let found = [finding("a policy"), tc];
        let refused = |allowed: &[Kind]| {
            let problems = check(&found, &allowed.iter().copied().collect());
            problems.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(refused(&Kind::ALL), [""; 0]);
        let policy = "XDP would bypass a policy for IPv4: remove it, or say that nobody needs it \
                      with --bypass=xfrm";
        assert_eq!(refused(&[Kind::Tc]), [policy]);
        assert_eq!(refused(&[]).len(), 2);

        let many = vec![finding("a policy"); LISTED_MAX + 3];
        let problems = check(&many, &[Kind::Netfilter].into());
        assert_eq!(problems.len(), LISTED_MAX + 1);
        assert_eq!(
            problems[LISTED_MAX].to_string(),
            "and 3 more that XDP would bypass: to forward in spite of all of them takes \
             --bypass=netfilter,xfrm"
        );
    }

    #[test]
    fn what_cannot_be_read_is_found_too_when_it_lasts() {
        let mut source = Source::new(Kind::Xfrm, "policies");
        let fail = |source: &mut Source| source.take(Err(io::Error::other("busy")));
        let found = fail(&mut source);
        assert_eq!(found[0].what, "the kernel's policies, which cannot be read (busy)");
        assert_eq!((found[0].kind, found[0].families), (Kind::Xfrm, Families::BOTH));

        let one = vec![finding("one")];
        assert_eq!(source.take(Ok(one.clone())), one);
        assert_eq!((fail(&mut source), fail(&mut source)), (one.clone(), one.clone()));
        assert!(fail(&mut source)[0].what.contains("cannot be read"));
        assert!(fail(&mut source)[0].what.contains("cannot be read"));
        assert_eq!(source.take(Ok(vec![])), []);
        assert_eq!(fail(&mut source), []);
    }
}
