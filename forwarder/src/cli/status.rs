//! The text of `status`.

use std::fmt::Write;

use crate::engine::{InterfaceStatus, Status};

pub(super) fn render(status: &Status) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_status(&mut text, status);
    text
}

fn write_status(text: &mut String, status: &Status) -> std::fmt::Result {
    let Status { version, name, pid, kernel, .. } = status;
    let uptime = format_uptime(status.uptime_ms / 1000);
    writeln!(text, "forwarder {version} '{name}', pid {pid}, up {uptime}, Linux {kernel}")?;
    write_interfaces(text, &status.interfaces)?;
    writeln!(text, "steering:   {}", status.steering)?;
    let Status { routes4, routes4_max, routes6, routes6_max, routes_waiting, .. } = status;
    writeln!(text, "routes:     {routes4} of {routes4_max} IPv4, {routes6} of {routes6_max} IPv6")?;
    if *routes_waiting > 0 {
        writeln!(
            text,
            "            {routes_waiting} of them do not forward: see `forwarder route show`"
        )?;
    }
    if status.audit_differences > 0 {
        let Status { audited, audit_differences, .. } = status;
        writeln!(
            text,
            "            {audit_differences} of {audited} destinations were not forwarded as Linux \
             would: see the log, and `forwarder audit`"
        )?;
    }
    writeln!(text, "metrics:    {}", status.metrics.as_deref().unwrap_or("off"))?;
    status.notes.iter().try_for_each(|note| writeln!(text, "note:       {note}"))
}

fn write_interfaces(text: &mut String, interfaces: &[InterfaceStatus]) -> std::fmt::Result {
    let width = interfaces.iter().map(|interface| interface.name.len()).max().unwrap_or(0);
    for (number, interface) in interfaces.iter().enumerate() {
        let title = if number == 0 { "interfaces:" } else { "" };
        let InterfaceStatus { name, mode, mac, mtu, up, carrier, .. } = interface;
        let state = match (up, carrier) {
            (true, true) => "up",
            (true, false) => "up, no carrier",
            (false, _) => "down",
        };
        writeln!(text, "{title:<11} {name:<width$}  {mode:<7}  {mac}  mtu {mtu}  {state}")?;
    }
    Ok(())
}

fn format_uptime(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{minutes} min {} s", seconds % 60),
        3600..86_400 => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_reads_well() {
        let interface = |name: &str, up, carrier| InterfaceStatus {
            name: name.to_owned(),
            ifindex: 3,
            mode: "native".to_owned(),
            mac: "02:00:00:00:00:01".to_owned(),
            mtu: 1500,
            up,
            carrier,
        };
        let status = Status {
            version: "0.1.0".to_owned(),
            name: "lab".to_owned(),
            pid: 42,
            uptime_ms: 61_999,
            kernel: "6.18.0".to_owned(),
            interfaces: vec![
                interface("eth0", true, true),
                interface("eth1.100", true, false),
                interface("eth2", false, false),
            ],
            steering: "cpus=0-3".to_owned(),
            routes4: 2,
            routes6: 1,
            routes_waiting: 1,
            audited: 0,
            audit_differences: 0,
            routes4_max: 1_048_576,
            routes6_max: 262_144,
            metrics: Some("http://127.0.0.1:9184/metrics".to_owned()),
            notes: vec!["ip_forward is off: only XDP forwards".to_owned()],
        };
        assert_eq!(
            render(&status),
            "\
forwarder 0.1.0 'lab', pid 42, up 1 min 1 s, Linux 6.18.0
interfaces: eth0      native   02:00:00:00:00:01  mtu 1500  up
            eth1.100  native   02:00:00:00:00:01  mtu 1500  up, no carrier
            eth2      native   02:00:00:00:00:01  mtu 1500  down
steering:   cpus=0-3
routes:     2 of 1048576 IPv4, 1 of 262144 IPv6
            1 of them do not forward: see `forwarder route show`
metrics:    http://127.0.0.1:9184/metrics
note:       ip_forward is off: only XDP forwards
"
        );
    }

    #[test]
    fn uptime_has_two_units() {
        for (seconds, text) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min 0 s"),
            (3599, "59 min 59 s"),
            (3600, "1 h 0 min"),
            (86_399, "23 h 59 min"),
            (90_000, "1 d 1 h"),
        ] {
            assert_eq!(format_uptime(seconds), text);
        }
    }
}
