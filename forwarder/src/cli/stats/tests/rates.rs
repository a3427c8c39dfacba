use std::{collections::VecDeque, time::Duration};

use super::*;
use crate::{
    cli::output::{Format, Output},
    snapshot::NicCounters,
};

/// What `busy` has counted, so many times, after so many seconds.
fn moment(seconds: u64, times: u64) -> Snapshot {
    let mut snapshot = busy();
    snapshot.uptime_ms = seconds * 1000;
    for interface in &mut snapshot.interfaces {
        for counters in interface.ingress.iter_mut().chain(&mut interface.worker) {
            for count in &mut counters.0 {
                *count = Count { packets: count.packets * times, bytes: count.bytes * times };
            }
        }
        interface.after.iter_mut().for_each(|after| after.sent *= times);
    }
    for queue in &mut snapshot.enqueued {
        (queue.frames, queue.dropped) = (queue.frames * times, queue.dropped * times);
    }
    snapshot
}

fn watched(watch: Watch, moments: Vec<Snapshot>, format: Format) -> (String, u32) {
    let (mut text, mut waits) = (Vec::new(), 0);
    let mut moments = VecDeque::from(moments);
    let look = || Ok(moments.pop_front().expect("one more look than was asked for"));
    let wait = |every| {
        assert_eq!(every, Duration::from_secs(2));
        waits += 1;
    };
    watch.run(look, wait, &mut Output::new(&mut text, format)).unwrap();
    (String::from_utf8(text).unwrap(), waits)
}

fn watch(count: u32, summary: bool, lines: Lines) -> Watch {
    Watch { every: Duration::from_secs(2), count: Some(count), summary, lines }
}

#[test]
fn rates_are_differences_by_the_second() {
    let moments = vec![moment(10, 1), moment(12, 3), moment(14, 4)];
    let (text, waits) = watched(watch(2, false, Lines::default()), moments, Format::Text);
    // 1,234,578 came in each time, 64 bytes each; 5 of them were steered, of which 4 left.
    let expected = [
        "   rx/s  Mbit/s  redirected/s   sent/s  passed/s  lost/s",
        "1234578     632       1234571  1234571         7       0",
        "  rx/s  Mbit/s  redirected/s  sent/s  passed/s  lost/s",
        "617289     316        617286  617286         4       0",
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    assert_eq!(waits, 2);
}

#[test]
fn a_summary_is_the_mean_of_all_looks() {
    let moments = vec![moment(10, 1), moment(12, 9), moment(14, 3)];
    let (text, _) = watched(watch(2, true, Lines::default()), moments, Format::Text);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[1].starts_with("617289     316        617286"), "{text}");
}

#[test]
fn lines_are_by_interface_and_by_cpu() {
    let lines = Lines { per_interface: true, per_cpu: true };
    let moments = vec![moment(10, 1), moment(12, 3)];
    let (text, _) = watched(watch(1, false, lines), moments, Format::Text);
    assert_eq!(
        text,
        "\
interface  cpu     rx/s  Mbit/s  redirected/s   sent/s  passed/s  lost/s
eth0         0  1234570     632       1234571        0         4       0
eth0         1        8       0             0        0         3       0
enp3s0f1     0        0       0             0  1234571         0       0
enp3s0f1     1        0       0             0        0         0       0
"
    );
    let lines = Lines { per_interface: false, per_cpu: true };
    let moments = vec![moment(10, 1), moment(12, 3)];
    let (text, _) = watched(watch(1, false, lines), moments, Format::Text);
    let cpu0 = text.lines().nth(1).unwrap();
    assert_eq!(cpu0, "  0  1234570     632       1234571  1234571         4       0");
}

#[test]
fn a_loss_now_and_then_is_not_rounded_away() {
    let (before, mut after) = (moment(10, 1), moment(110, 1));
    after.interfaces[1].after[0].unsent.0[0] = 3;
    after.enqueued[0].dropped = 1;
    let watch = Watch { every: Duration::from_secs(2), ..watch(1, false, Lines::default()) };
    let (text, _) = watched(watch, vec![before, after], Format::Text);
    assert!(text.ends_with(" <1\n"), "{text}");
}

#[test]
fn json_has_differences_their_time_and_rates() {
    let moments = vec![moment(10, 1), moment(12, 3)];
    let (text, _) = watched(watch(1, false, Lines::default()), moments, Format::Json);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["elapsed_ms"], 2000);
    assert_eq!(json["interfaces"][0]["cpus"][0]["ingress"]["rx"]["packets"], 2 * 1_234_570);
    assert_eq!(
        json["per_second"],
        json!({
            "rx": 1_234_578, "redirected": 1_234_571, "sent": 1_234_571, "passed": 7, "lost": 0
        })
    );
}

#[test]
fn what_the_interface_itself_has_lost_stands_beside_ours() {
    let mut snapshot = busy();
    assert_eq!(nic::render(&snapshot), "", "zeros are hidden");
    snapshot.interfaces[1].nic =
        Some(NicCounters { rx_missed: 12, tx_dropped: 3, ..NicCounters::default() });
    let text = nic::render(&snapshot);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert!(
        lines[2].starts_with("eth0            12  rx_missed   the NIC had no buffer"),
        "{text}"
    );
    assert!(
        lines[3].starts_with("eth0             3  tx_dropped  not sent by the driver"),
        "{text}"
    );
    assert!(render(&snapshot, false).ends_with(&text));
    let cpu = &as_json(&snapshot)["interfaces"][0];
    assert_eq!((&cpu["nic"]["rx_missed"], &cpu["nic"]["rx_fifo"]), (&json!(12), &json!(0)));
}
