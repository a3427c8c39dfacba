//! A look at the forwarder's metrics, as Prometheus takes it.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use anyhow::{Context, Result, bail};

use crate::host::Host;

const TIMEOUT: Duration = Duration::from_secs(10);

/// A name, and labels with their values.
type Series = (String, BTreeMap<String, String>);

/// All samples of one scrape.
#[derive(Clone, Debug, PartialEq)]
pub struct Scrape {
    /// As it came.
    pub text: String,
    samples: BTreeMap<Series, f64>,
}

impl Scrape {
    /// Of this address, in the host's network.
    pub fn take(host: &Host, address: SocketAddr) -> Result<Self> {
        let text = host.run(|| get(address)).with_context(|| format!("scrape {address}"))?;
        let samples = text.lines().filter(|line| !line.starts_with('#')).map(sample);
        let mut all = BTreeMap::new();
        for found in samples {
            let (series, value) = found?;
            if all.insert(series.clone(), value).is_some() {
                bail!("{series:?} is there twice");
            }
        }
        Ok(Self { text, samples: all })
    }

    /// The sample with exactly these labels; there must be one.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let owned = labels.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let series = (name.to_owned(), owned.collect());
        let found = self.samples.get(&series);
        *found.unwrap_or_else(|| panic!("no {name} {labels:?} in\n{}", self.text))
    }

    /// The samples of a name: their labels and values.
    pub fn family(&self, name: &str) -> Vec<(&BTreeMap<String, String>, f64)> {
        let family = self.samples.iter().filter(|((of, _), _)| of == name);
        family.map(|((_, labels), value)| (labels, *value)).collect()
    }

    /// Over all samples of a name.
    pub fn sum(&self, name: &str) -> f64 {
        self.family(name).iter().map(|(_, value)| value).sum()
    }
}

fn get(address: SocketAddr) -> Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    body(&answer).map(str::to_owned)
}

/// Of an answer whose length is told, as it must be for a connection that might be cut off.
fn body(answer: &str) -> Result<&str> {
    let (head, body) = answer.split_once("\r\n\r\n").context("no end of the head")?;
    let mut lines = head.lines();
    let status = lines.next().unwrap_or_default();
    if !status.starts_with("HTTP/1.1 200 ") {
        bail!("{status}: {body}");
    }
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    match length {
        Some(length) if length == body.len() => Ok(body),
        length => bail!("{} bytes of {length:?} in {head}", body.len()),
    }
}

/// `name{label="value",…} 7`; no value of ours has a quote or a comma in it.
fn sample(line: &str) -> Result<(Series, f64)> {
    let wrong = || format!("not a sample: {line}");
    let (series, value) = line.rsplit_once(' ').with_context(wrong)?;
    let value = value.parse().with_context(wrong)?;
    let Some((name, labels)) = series.split_once('{') else {
        return Ok(((series.to_owned(), BTreeMap::new()), value));
    };
    let labels = labels.strip_suffix('}').with_context(wrong)?;
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        let value = value.strip_prefix('"')?.strip_suffix('"')?;
        Some((name.to_owned(), value.to_owned()))
    };
    let labels: Option<_> = labels.split(',').map(pair).collect();
    Ok(((name.to_owned(), labels.with_context(wrong)?), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read() {
        let (series, value) = sample("x_total{cpu=\"0\",interface=\"eth0\"} 17").unwrap();
        let labels = [("cpu", "0"), ("interface", "eth0")];
        let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(series, ("x_total".to_owned(), labels.into()));
        assert!((value - 17.0).abs() < f64::EPSILON);
        assert_eq!(sample("up 0.5").unwrap().0, ("up".to_owned(), BTreeMap::new()));
        for wrong in ["", "x", "x{cpu=\"0\" 1", "x{cpu=0} 1", "x one"] {
            assert!(sample(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_answer_is_taken_whole_or_not_at_all() {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n";
        assert_eq!(body(&format!("{head}abc")).unwrap(), "abc");
        for wrong in ["HTTP/1.1 503 No\r\n\r\nno", &format!("{head}ab"), "HTTP/1.1 200 OK\r\n"] {
            assert!(body(wrong).is_err(), "{wrong}");
        }
    }
}
