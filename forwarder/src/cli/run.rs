//! `run`: what was typed becomes a [`Config`], or an error that says what to write instead.

use std::{collections::HashSet, net::SocketAddr};

use forwarder_common::abi::INTERFACES_MAX;

use super::{
    args::{BypassArg, Global, ModeArg, RoutesArg, RunArgs},
    error::CliError,
};
use crate::{
    bypass::Kind,
    config::{Config, Mode, RouteSource, Steering, check_name, cpus::parse_cpus},
    route::grammar::interface,
};

impl RunArgs {
    /// # Errors
    ///
    /// Names the option and the value that is wrong.
    pub fn into_config(self, global: &Global) -> Result<Config, CliError> {
        if let Some(name) = &global.name {
            check_name(name)?;
        }
        Ok(Config {
            interfaces: parse_interfaces(&self.iface)?,
            mode: match self.mode {
                ModeArg::Auto => Mode::Auto,
                ModeArg::Native => Mode::Native,
                ModeArg::Generic => Mode::Generic,
            },
            routes: match self.routes {
                RoutesArg::Kernel => RouteSource::Kernel,
                RoutesArg::Static => RouteSource::Static,
            },
            steering: parse_steering(&self.steer)?,
            queue_size: self.queue_size,
            name: global.name.clone(),
            metrics: parse_metrics(&self.metrics)?,
            metrics_routes: self.metrics_routes,
            routes4_max: self.routes4_max,
            routes6_max: self.routes6_max,
            yes: self.yes,
            accept_unfinished_checksums: self.accept_unfinished_checksums,
            bypass: self.bypass.iter().map(|kind| bypass(*kind)).collect(),
            grace_s: self.grace,
            run_dir: global.run_dir.clone(),
            group: self.group,
        })
    }
}

fn bypass(kind: BypassArg) -> Kind {
    match kind {
        BypassArg::Netfilter => Kind::Netfilter,
        BypassArg::Tc => Kind::Tc,
        BypassArg::Xfrm => Kind::Xfrm,
    }
}

fn parse_interfaces(words: &[String]) -> Result<Vec<String>, CliError> {
    let usage = |message: String| CliError::Usage(format!("--iface: {message}"));
    let mut seen = HashSet::new();
    for word in words {
        if word.is_empty() {
            return Err(usage("a name is empty: write for example --iface eth0,eth1".to_owned()));
        }
        interface(word).map_err(|error| usage(error.to_string()))?;
        if !seen.insert(word) {
            return Err(usage(format!("'{word}' is given twice")));
        }
    }
    if let [only] = words {
        return Err(usage(format!(
            "'{only}' alone has nowhere to forward to: name at least two, for example --iface eth0,eth1"
        )));
    }
    if words.len() > INTERFACES_MAX as usize {
        return Err(usage(format!("{} are given: at most {INTERFACES_MAX}", words.len())));
    }
    Ok(words.to_vec())
}

fn parse_steering(text: &str) -> Result<Steering, CliError> {
    match (text, text.strip_prefix("cpus=")) {
        ("off", _) => Ok(Steering::Off),
        (_, Some(list)) => Ok(Steering::Cpus(parse_cpus(list)?)),
        _ => Err(CliError::Usage(format!(
            "--steer: '{text}' is neither off nor cpus=LIST: write for example cpus=0-3,6"
        ))),
    }
}

fn parse_metrics(text: &str) -> Result<Option<SocketAddr>, CliError> {
    if text == "off" {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        CliError::Usage(format!(
            "--metrics: '{text}' is neither off nor ADDRESS:PORT: write for example 127.0.0.1:9184 or [::1]:9184"
        ))
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser;

    use super::*;
    use crate::cli::args::{Cli, Command};

    fn config(line: &str) -> Result<Config, CliError> {
        let words = ["forwarder"].into_iter().chain(line.split_whitespace());
        let cli = Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{error}"));
        let Command::Run(args) = cli.command else { panic!("not run") };
        args.into_config(&cli.global)
    }

    #[test]
    fn defaults_are_those_that_the_help_tells() {
        let config = config("run --iface eth0,eth1 --run-dir /run/forwarder").unwrap();
        assert_eq!(config.interfaces, ["eth0", "eth1"]);
        assert_eq!(config.mode, Mode::Auto);
        assert_eq!(config.routes, RouteSource::Kernel);
        assert_eq!(config.steering, Steering::Off);
        assert_eq!(config.queue_size, 2048);
        assert_eq!(config.name, None);
        assert_eq!(config.metrics, "127.0.0.1:9184".parse().ok());
        assert_eq!(config.metrics_routes, 0);
        assert_eq!((config.routes4_max, config.routes6_max), (1 << 20, 1 << 18));
        assert!(!config.yes && !config.accept_unfinished_checksums && config.bypass.is_empty());
        assert_eq!(config.grace_s, 60);
        assert_eq!(config.run_dir, Path::new("/run/forwarder"));
        assert_eq!(config.group, "forwarder");
    }

    #[test]
    fn every_option_arrives() {
        let config = config(
            "--name lab run --iface eth0,eth1 --iface eth2 --mode generic --steer cpus=6,0-2 \
             --queue-size 64 --metrics [::1]:9000 --metrics-routes 8 --routes4-max 5 \
             --routes6-max 6 --yes --accept-unfinished-checksums --grace 7 --group wheel \
             --bypass xfrm,tc --bypass tc --run-dir /tmp/x",
        )
        .unwrap();
        assert_eq!(config.interfaces, ["eth0", "eth1", "eth2"]);
        assert_eq!(config.mode, Mode::Generic);
        assert_eq!(config.steering, Steering::Cpus(vec![0, 1, 2, 6]));
        assert_eq!(config.queue_size, 64);
        assert_eq!(config.name.as_deref(), Some("lab"));
        assert_eq!(config.metrics, "[::1]:9000".parse().ok());
        assert_eq!(config.metrics_routes, 8);
        assert_eq!((config.routes4_max, config.routes6_max), (5, 6));
        assert!(config.yes && config.accept_unfinished_checksums);
        assert_eq!(config.bypass, [Kind::Tc, Kind::Xfrm].into());
        assert_eq!(config.grace_s, 7);
        assert_eq!(config.run_dir, Path::new("/tmp/x"));
        assert_eq!(config.group, "wheel");
        assert_eq!(super::parse_metrics("off").unwrap(), None);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_option() {
        for (options, message) in [
            (
                "--iface eth0",
                "--iface: 'eth0' alone has nowhere to forward to: name at least two, for example --iface eth0,eth1",
            ),
            ("--iface eth0,eth1,eth0", "--iface: 'eth0' is given twice"),
            ("--iface eth0,,eth1", "--iface: a name is empty: write for example --iface eth0,eth1"),
            (
                "--iface eth0,interface-sixteen",
                "--iface: 'interface-sixteen' is not a name of an interface: 1 to 15 bytes, without '/', ':' and spaces",
            ),
            (
                "--iface eth0,eth1 --steer on",
                "--steer: 'on' is neither off nor cpus=LIST: write for example cpus=0-3,6",
            ),
            ("--iface eth0,eth1 --steer cpus=0,0", "--steer: CPU 0 is listed twice"),
            (
                "--iface eth0,eth1 --steer cpus=",
                "--steer: the list of CPUs is empty: write for example 0-3,6",
            ),
            (
                "--iface eth0,eth1 --metrics 9184",
                "--metrics: '9184' is neither off nor ADDRESS:PORT: write for example 127.0.0.1:9184 or [::1]:9184",
            ),
            (
                "--iface eth0,eth1 --name a/b",
                "'a/b' cannot be the name of a forwarder: write 1 to 32 letters, digits, '.', '_' or '-', not beginning with '.'",
            ),
        ] {
            let error = config(&format!("run {options}")).unwrap_err();
            assert_eq!(error.to_string(), message);
            assert_eq!(error.exit_code(), 2);
        }
    }

    #[test]
    fn interfaces_are_limited() {
        let names = |count: u32| (0..count).map(|n| format!("e{n}")).collect::<Vec<_>>();
        assert_eq!(parse_interfaces(&names(INTERFACES_MAX)).unwrap().len(), 256);
        let error = parse_interfaces(&names(INTERFACES_MAX + 1)).unwrap_err();
        assert_eq!(error.to_string(), "--iface: 257 are given: at most 256");
    }

    #[test]
    fn numbers_out_of_range_are_refused_by_the_parser() {
        for option in [
            "--queue-size 0",
            "--queue-size 16385",
            "--grace 0",
            "--routes4-max 0",
            "--metrics-routes 32769",
            "-4 -6",
            "--mode fast",
            "--bypass nftables",
            "--bypass netfilter,",
            "--bypass",
        ] {
            let line = format!("forwarder run --iface eth0,eth1 {option}");
            assert!(Cli::try_parse_from(line.split_whitespace()).is_err(), "{option}");
        }
    }
}
