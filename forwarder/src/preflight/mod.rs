//! What is checked before anything is touched.
use crate::{config::Config, dataplane::AttachError};
pub struct Facts {
    name: String,
    ifindex: u32,
}
impl Facts {
    pub fn name(&self) -> &str {
        &self.name
    }
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }
    pub fn sends_frags(&self) -> bool {
        false
    }
}
pub struct Report {
    pub interfaces: Vec<Facts>,
    pub warnings: Vec<String>,
    pub notes: Vec<String>,
    pub kernel: String,
    pub cpus_online: Vec<u32>,
    pub cpus_possible: Vec<u32>,
}
pub async fn check(config: &Config, _ours: &[u32]) -> anyhow::Result<Report> {
    let interfaces = config
        .interfaces
        .iter()
        .map(|name| {
            anyhow::Ok(Facts {
                ifindex: nix::net::if_::if_nametoindex(name.as_str())?,
                name: name.clone(),
            })
        })
        .collect::<Result<_, _>>()?;
    Ok(Report {
        interfaces,
        warnings: vec![],
        notes: vec![],
        kernel: "x".into(),
        cpus_online: vec![0, 1],
        cpus_possible: vec![0, 1],
    })
}
pub fn explain_attach(error: AttachError, _report: &Report) -> anyhow::Error {
    error.into()
}
