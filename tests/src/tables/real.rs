//! Tables of the size and the shape of the Internet's: ranges of addresses with the autonomous
//! systems that announce them, from the npm package `@ip-location-db/asn`, split into prefixes.
//!
//! The package says of itself that some of its data are wrong: good for a shape, not as a truth.
//! Nothing of it is kept in this repository.

use std::{
    ffi::OsStr,
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};
use forwarder::prefix::Family;

use super::{Net, Route, Table, bits_of, mask, skewed};

const PACKAGE: &str = "@ip-location-db/asn";

/// What the licence wants to be said wherever the data are used.
pub const ATTRIBUTION: &str = "routing data: https://www.routeviews.org, https://www.nro.net, \
    https://db-ip.com, by way of @ip-location-db/asn, CC BY 4.0, ranges split into prefixes";

/// Both tables, from a folder where the package is kept, as `npm pack` leaves it.
pub fn tables(folder: &Path) -> Result<[Table; 2]> {
    let package = find(folder)?;
    let package = package.with_context(|| format!("no {PACKAGE} in {}", folder.display()))?;
    let read = |family, file| {
        let text = extract(&package, file)?;
        table(family, &text, &label(&package)).with_context(|| format!("read {file} of {PACKAGE}"))
    };
    Ok([read(Family::Inet, "asn-ipv4.csv")?, read(Family::Inet6, "asn-ipv6.csv")?])
}

fn find(folder: &Path) -> Result<Option<PathBuf>> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(None) };
    let mut packages = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        if name.starts_with("ip-location-db-asn-") && path.extension() == Some(OsStr::new("tgz")) {
            packages.push(path);
        }
    }
    Ok(packages.into_iter().max())
}

fn extract(package: &Path, file: &str) -> Result<String> {
    let mut tar = Command::new("tar");
    tar.arg("-xzOf").arg(package).arg(format!("package/{file}"));
    let output = tar.output().context("start tar")?;
    if !output.status.success() {
        bail!("tar: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).context("read text")
}

/// Name and version.
fn label(package: &Path) -> String {
    let name = package.file_stem().and_then(OsStr::to_str).unwrap_or_default();
    format!("{PACKAGE} {}", name.trim_start_matches("ip-location-db-asn-"))
}

fn table(family: Family, text: &str, source: &str) -> Result<Table> {
    let mut routes = Vec::new();
    for line in text.lines() {
        let mut fields = line.splitn(4, ',');
        let mut next = || fields.next().with_context(|| format!("a field is missing: {line}"));
        let (first, last) = (bits(next()?)?, bits(next()?)?);
        let system: u64 = next()?.parse().with_context(|| format!("a number: {line}"))?;
        let id = skewed(system.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 17);
        split(family, first, last, |net| routes.push(Route { net, id }));
    }
    ensure!(routes.len() > 100_000, "only {} prefixes", routes.len());
    Ok(Table::new(family, source.to_owned(), routes))
}

fn bits(text: &str) -> Result<u128> {
    let address: IpAddr = text.parse().with_context(|| format!("an address: {text}"))?;
    Ok(match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    })
}

/// The fewest prefixes that make a range, whose last address is in it.
fn split(family: Family, first: u128, last: u128, mut visit: impl FnMut(Net)) {
    let last = last | !mask(bits_of(family));
    let mut at = first;
    while at <= last {
        let aligned = 128 - at.trailing_zeros().min(128);
        let fits = |len: &u32| {
            let net = Net::new(at, u8::try_from(*len).expect("at most 128"));
            net.last() <= last
        };
        let len = (aligned..=128).find(fits).expect("a single address fits");
        let net = Net::new(at, u8::try_from(len).expect("at most 128"));
        visit(net);
        match net.last().checked_add(1) {
            Some(behind) => at = behind,
            None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_becomes_the_fewest_prefixes() {
        let split = |first: &str, last: &str| {
            let family = if first.contains(':') { Family::Inet6 } else { Family::Inet };
            let mut nets = Vec::new();
            split(family, bits(first).unwrap(), bits(last).unwrap(), |net| {
                nets.push(net.prefix(family).to_string());
            });
            nets
        };
        assert_eq!(split("198.18.0.0", "198.18.0.255"), ["198.18.0.0/24"]);
        assert_eq!(
            split("198.18.1.0", "198.18.4.1"),
            ["198.18.1.0/24", "198.18.2.0/23", "198.18.4.0/31"]
        );
        assert_eq!(split("255.255.255.254", "255.255.255.255"), ["255.255.255.254/31"]);
        assert_eq!(split("2001:db8::", "2001:db8:1:ffff:ffff:ffff:ffff:ffff"), ["2001:db8::/47"]);
    }
}
