//! What findings mean for a running forwarder: which families stand still, and what to say of it.

use std::collections::BTreeSet;

use super::{Finding, Kind, LISTED_MAX};
use crate::prefix::Family;

/// What was found, and what of it is allowed.
#[derive(Clone, Debug, Default)]
pub struct Stops {
    allowed: BTreeSet<Kind>,
    findings: Vec<Finding>,
}

/// Something to tell in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// A family stands still now, or for one reason more.
    Stopped(String),
    GoesOn(String),
    /// More, or less, is bypassed than before.
    Bypassed(String),
}

impl Stops {
    /// `findings` are those from before the start, all of them allowed.
    pub fn new(allowed: BTreeSet<Kind>, findings: Vec<Finding>) -> Self {
        Self { allowed, findings }
    }

    pub fn stops(&self, family: Family) -> bool {
        self.of(family).next().is_some()
    }

    /// Takes in what is there now.
    pub fn update(&mut self, findings: Vec<Finding>) -> Vec<News> {
        let before = std::mem::replace(self, Self { allowed: self.allowed.clone(), findings });
        let mut news = Vec::new();
        let new = self.findings.iter().filter(|finding| !before.findings.contains(finding));
        for finding in new.take(LISTED_MAX) {
            news.push(if self.allowed.contains(&finding.kind) {
                News::Bypassed(bypassed(finding))
            } else {
                News::Stopped(stopped(finding))
            });
        }
        for family in Family::ALL {
            if before.stops(family) && !self.stops(family) {
                news.push(News::GoesOn(format!("{family} is forwarded in XDP again")));
            }
        }
        news
    }

    /// Sentences for `status`.
    pub fn notes(&self) -> Vec<String> {
        let (allowed, stopping): (Vec<_>, Vec<_>) =
            self.findings.iter().partition(|finding| self.allowed.contains(&finding.kind));
        let mut notes = listed(&stopping, stopped);
        notes.extend(listed(&allowed, bypassed));
        notes
    }

    fn of(&self, family: Family) -> impl Iterator<Item = &Finding> {
        let stops = move |finding: &&Finding| {
            finding.families.has(family) && !self.allowed.contains(&finding.kind)
        };
        self.findings.iter().filter(stops)
    }
}

fn listed(findings: &[&Finding], sentence: fn(&Finding) -> String) -> Vec<String> {
    let mut notes: Vec<_> =
        findings.iter().take(LISTED_MAX).map(|finding| sentence(finding)).collect();
    if findings.len() > LISTED_MAX {
        notes.push(format!("and {} more of this kind", findings.len() - LISTED_MAX));
    }
    notes
}

fn stopped(finding: &Finding) -> String {
    let Finding { kind, families, what, remedy } = finding;
    format!(
        "no {} is forwarded in XDP, which would bypass {what}: {remedy}, or start again with \
         --bypass={}",
        families.or(),
        kind.word()
    )
}

fn bypassed(finding: &Finding) -> String {
    let Finding { kind, families, what, .. } = finding;
    format!("XDP bypasses {what} for {families}, as --bypass={} allows", kind.word())
}
