use super::*;

fn load(text: &[u8], existing: Existing) -> Result<Batch, LineError> {
    read(text, None, existing, |_| ()).unwrap()
}

#[test]
fn lines_are_read_with_and_without_their_command() {
    let text = b"# routes of the lab\n\
        \n\
        198.18.2.0/24 via 198.18.1.2 dev eth1\n\
        route add 198.18.3.0/24 dev eth1  # connected\n\
        \tadd 2001:db8:2::/48 via 2001:db8::1\r\n\
        198.18.4.0/24 dev eth1 proto xdp  # pending: neighbour";
    let batch = load(text, Existing::Refuse).unwrap();
    let lines: Vec<String> = batch.routes.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "198.18.2.0/24 via 198.18.1.2 dev eth1",
            "198.18.3.0/24 dev eth1",
            "2001:db8:2::/48 via 2001:db8::1",
            "198.18.4.0/24 dev eth1",
        ]
    );
    assert_eq!(batch.lines, [3, 4, 5, 6]);
    assert_eq!(load(b"", Existing::Refuse), Ok(Batch::default()));
}

#[test]
fn what_route_show_prints_of_linux_is_left_out() {
    let text = b"198.18.2.0/24 proto xdp\n\tnexthop via 198.18.1.2\n\
        198.18.3.0/24 proto bird metric 32\n\tnexthop via 198.18.1.2\n\tnexthop via 198.18.1.3\n\
        blackhole 198.18.4.0/24 proto static  # Linux drops what goes there\n\
        198.18.5.0/24 nhid 7 via 198.18.1.2 dev eth1 proto 77\n\
        198.18.6.0/24 via 198.18.1.2";
    let batch = load(text, Existing::Refuse).unwrap();
    let prefixes: Vec<String> = batch.routes.iter().map(|it| it.prefix.to_string()).collect();
    assert_eq!(prefixes, ["198.18.2.0/24", "198.18.6.0/24"]);
    assert_eq!((batch.skipped, batch.lines), (3, vec![1, 8]));
    let error = load(b"198.18.5.0/24 dev eth1 proto nobody", Existing::Refuse).unwrap_err();
    assert!(error.message.starts_with("'proto' is not supported"), "{}", error.message);
}

#[test]
fn a_route_goes_on_in_lines_that_begin_with_nexthop() {
    let text = b"198.18.2.0/24 proto xdp  # cpu 1: via 198.18.1.4 dev eth1\n\
        \tnexthop via 198.18.1.2 dev eth1 weight 2  # pending: neighbour\n\
        # a comment between them\n\
        nexthop via 198.18.1.3 dev eth2\n\
        198.18.2.0/24 cpu 1 via 198.18.1.4 dev eth1\n\
        198.18.3.0/24 nexthop via 198.18.1.2\n\tnexthop via 198.18.1.3";
    let batch = load(text, Existing::Refuse).unwrap();
    let lines: Vec<String> = batch.routes.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "198.18.2.0/24 nexthop via 198.18.1.2 dev eth1 weight 2 nexthop via 198.18.1.3 dev eth2 weight 1",
            "198.18.2.0/24 cpu 1 via 198.18.1.4 dev eth1",
            "198.18.3.0/24 nexthop via 198.18.1.2 weight 1 nexthop via 198.18.1.3 weight 1",
        ]
    );
    assert_eq!(batch.lines, [1, 5, 6]);

    let many = |count: usize| {
        let next_hop = |host| format!("\tnexthop via 198.18.1.{host}\n");
        let next_hops: String = (1..=count).map(next_hop).collect();
        load(format!("198.18.2.0/24\n{next_hops}").as_bytes(), Existing::Refuse)
    };
    assert_eq!(many(NEXT_HOPS_MAX).unwrap().routes[0].next_hops.len(), NEXT_HOPS_MAX);
    let error = many(NEXT_HOPS_MAX + 1).unwrap_err();
    assert_eq!((error.number, &*error.message), (66, "a route has at most 64 next hops"));
    for (text, number) in [("nexthop via 198.18.1.2\n", 1), ("198.18.2.0/24 proto xdp\n\n", 1)] {
        let error = load(text.as_bytes(), Existing::Refuse).unwrap_err();
        assert_eq!(error.number, number, "{text}: {}", error.message);
    }
}

#[test]
fn a_wrong_line_is_named_and_shown() {
    let good = "198.18.2.0/24 dev eth1\n";
    for (line, message) in [
        (
            "198.18.3.7/24 dev eth1",
            "'198.18.3.7/24' has host bits set: the prefix is 198.18.3.0/24",
        ),
        ("route del 198.18.3.0/24", "'del' is not supported in a file: its routes are all added"),
        (
            "replace 198.18.3.0/24 dev eth1",
            "'replace' is for `route load --replace`, which replaces on every line",
        ),
        ("route", "'route' needs a route after it"),
        ("route add", "'add' needs a route after it"),
        ("add", "'add' needs a route after it"),
        (
            "198.18.3.0/24",
            "'198.18.3.0/24' leads nowhere: add `via ADDRESS`, `dev INTERFACE` or both",
        ),
    ] {
        let error = load(format!("{good}{line}\n").as_bytes(), Existing::Refuse).unwrap_err();
        assert_eq!((error.number, &*error.line, &*error.message), (2, line, message));
    }
}

#[test]
fn bytes_that_are_no_text_are_named() {
    for (bytes, line, message) in [
        (
            &b"198.18.2.0/24\0dev eth1"[..],
            "198.18.2.0/24\u{fffd}dev eth1",
            "the line has a zero byte: is this a text file?",
        ),
        (b"198.18.2.0/24 dev \xff", "198.18.2.0/24 dev \u{fffd}", "the line is not UTF-8"),
    ] {
        let error = load(bytes, Existing::Refuse).unwrap_err();
        let expected = LineError { number: 1, line: line.to_owned(), message: message.to_owned() };
        assert_eq!(error, expected);
    }
}

#[test]
fn a_line_may_be_as_long_as_the_limit_and_no_longer() {
    let route = "198.18.2.0/24 dev eth1";
    let fits = format!("{route}{}\n", " ".repeat(LINE_MAX - 1 - route.len()));
    assert_eq!(load(fits.as_bytes(), Existing::Refuse).unwrap().routes.len(), 1);
    let error = load(format!(" {fits}").as_bytes(), Existing::Refuse).unwrap_err();
    assert_eq!(error.message, "the line is longer than 4096 bytes: is this a list of routes?");
    // One that never ends is not read to its end.
    let mut endless = BufReader::new(io::repeat(b'x'));
    let error = read(&mut endless, None, Existing::Refuse, |_| ()).unwrap().unwrap_err();
    assert_eq!(error.line.len(), SHOWN_MAX);
}

#[test]
fn replace_takes_a_prefix_twice_and_the_word_replace() {
    let text = b"198.18.2.0/24 dev eth1\nroute replace 198.18.2.0/24 dev eth2\n";
    assert_eq!(load(text, Existing::Replace).unwrap().routes.len(), 2);
}

#[test]
fn the_daemon_s_refusal_finds_its_line() {
    let batch =
        load(b"\n198.18.2.0/24 dev eth1\n\n198.18.3.0/24 dev eth9\n", Existing::Refuse).unwrap();
    let error = batch.blame(1, "no interface eth9".to_owned()).unwrap();
    assert_eq!(
        error.in_file(Path::new("routes.txt")).to_string(),
        "routes.txt:4: no interface eth9\n  198.18.3.0/24 dev eth9\nnothing was changed"
    );
    assert_eq!(
        error.in_file(Path::new("-")).to_string().lines().next(),
        Some("standard input:4: no interface eth9")
    );
    assert_eq!(batch.blame(2, String::new()), None);
}

#[test]
fn a_prefix_that_is_there_twice_is_told_by_both_of_its_lines() {
    let text = b"198.18.2.0/24 dev eth1\n198.18.3.0/24 dev eth1\n\n198.18.2.0/24 dev eth2\n";
    let batch = load(text, Existing::Refuse).unwrap();
    let error = batch.blame(2, "route 198.18.2.0/24 is there twice".to_owned()).unwrap();
    assert_eq!(
        (error.number, &*error.message),
        (
            4,
            "198.18.2.0/24: File exists: line 1 has this prefix already (with --replace the last one counts)"
        )
    );
}

#[test]
fn what_is_repeated_is_read_as_if_it_were_not() {
    let text = b"198.18.2.0/24 via 198.18.1.2 dev eth1\n\
        198.18.3.0/24 via 198.18.1.2 dev eth1\n\
        2001:db8::/32 dev eth1\ndefault dev eth1\n198.18.4.0/24 dev eth1\n\
        198.18.5.0/24 cpu 1 nexthop via 198.18.1.2 weight 2\n nexthop via 198.18.1.3\n\
        198.18.6.0/24 cpu 1 nexthop via 198.18.1.2 weight 2\n nexthop via 198.18.1.3\n";
    let batch = load(text, Existing::Refuse).unwrap();
    let lines: Vec<String> = batch.routes.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "198.18.2.0/24 via 198.18.1.2 dev eth1",
            "198.18.3.0/24 via 198.18.1.2 dev eth1",
            "2001:db8::/32 dev eth1",
            "default dev eth1",
            "198.18.4.0/24 dev eth1",
            "198.18.5.0/24 cpu 1 nexthop via 198.18.1.2 weight 2 nexthop via 198.18.1.3 weight 1",
            "198.18.6.0/24 cpu 1 nexthop via 198.18.1.2 weight 2 nexthop via 198.18.1.3 weight 1",
        ]
    );
    for (one, other) in [(0, 1), (5, 6)] {
        let (one, other) = (&batch.routes[one].next_hops, &batch.routes[other].next_hops);
        assert!(std::sync::Arc::ptr_eq(one, other));
    }
    // What is wrong behind a prefix of one family may be right behind the other.
    for line in ["2001:db8::/32 via 198.18.1.2 dev eth1", "198.18.2.7/24 dev eth1"] {
        let text = [text, line.as_bytes()].concat();
        assert_eq!(load(&text, Existing::Refuse).unwrap_err().line, line);
    }
}

#[test]
fn a_line_that_need_not_be_taken_apart_is_read_as_one_that_must() {
    let read = |line: &str| {
        let text = format!("{line}\nnexthop via 198.18.1.2\n198.18.9.0/24 dev eth1\n");
        load(text.as_bytes(), Existing::Refuse).map(|batch| batch.routes)
    };
    let plain = "198.18.2.0/24 via 198.18.1.3";
    // What goes on with `nexthop` is refused behind `via`, whichever way its first line was read.
    assert!(read(plain).is_err());
    for line in ["198.18.2.0/24", plain, "198.18.2.0/24 via 198.18.1.3 dev eth1"] {
        let words: Vec<&str> = line.split(' ').collect();
        let others = [
            format!(" {line}"),
            format!("{line} "),
            format!("{line} # and more"),
            format!("{line}\r"),
            words.join("\t"),
            words.join("  "),
            format!("route add {line}"),
        ];
        let messages = |line: &str| read(line).map_err(|error| (error.number, error.message));
        for other in others {
            assert_eq!(messages(&other), messages(line), "{other:?}");
            let alone =
                |line: &str| load(line.as_bytes(), Existing::Refuse).map_err(|it| it.message);
            assert_eq!(alone(&other), alone(line), "{other:?}");
        }
    }
}
