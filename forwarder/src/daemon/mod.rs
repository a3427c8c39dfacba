//! The daemon's life: what it checks, what it sets up and in which order, and how it ends.

mod claim;
mod seed;
mod startup;
mod watch;

use std::{
    fmt::Arguments,
    io::{self, IsTerminal, Write},
    process::ExitCode,
    sync::Arc,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{Notify, mpsc},
    task::{JoinHandle, JoinSet},
};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

pub use self::claim::unload_leftovers;
use self::claim::{OneDaemon, find_pins};
use crate::{
    config::{Config, default_name, directory, socket_path},
    control::server::{Limits as ControlLimits, Server},
    dataplane::{Dataplane, Pins, Remains},
    engine::{
        EngineHandle, Refusal,
        run::{Engine, Facts},
    },
    metrics,
    netlink::Subscription,
    object_bytes,
    preflight::{self, Machine},
};

/// The maps and the clients are served while one thread is busy with a large load.
const RUNTIME_THREADS: usize = 2;
/// Kernel events that wait for the engine; more wait in the socket's buffer.
const EVENTS_MAX: usize = 8192;
/// How long the kernel may take to detach programs, and to end the threads of the CPU map.
const REMAINS_TIMEOUT: Duration = Duration::from_secs(5);
const REMAINS_POLL: Duration = Duration::from_millis(5);

/// `forwarder run`, from start to end.
pub fn start(config: Config) -> Result<ExitCode> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        // It would say so where it could not write, and panic when that fails.
        .log_internal_errors(false)
        .init();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(RUNTIME_THREADS)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(run(config))?;
    Ok(ExitCode::SUCCESS)
}

/// Runs until a signal or `forwarder unload`, and leaves nothing behind.
async fn run(config: Config) -> Result<()> {
    let started = Instant::now();
    let object = object_bytes::object().ok_or_else(|| anyhow!(object_bytes::MISSING))?;
    // First of all: whoever ends us must leave nothing behind, however early that is.
    let shutdown = CancellationToken::new();
    let stop = stop_on_signal(shutdown.clone())?;
    let machine = Machine::this();
    preflight::check_privileges(&machine)?;
    let name = match &config.name {
        Some(name) => name.clone(),
        None => default_name().context("cannot name this network namespace: give a --name")?,
    };
    let claim = OneDaemon::claim(&directory(&config.run_dir, &name), &name)?;

    let (pins, leftovers) = find_pins(&name)?;
    let left_programs = leftovers.as_ref().map_or(&[][..], |left| &left.programs);
    let report = preflight::check(&config, &machine, left_programs).await?;
    for warning in &report.warnings {
        tracing::warn!("{warning}");
    }

    let listener = match config.metrics {
        Some(address) => Some(metrics::server::bind(address).await?),
        None => None,
    };
    let socket = socket_path(&config.run_dir, &name);
    let control = Server::bind(&socket, &config.group, ControlLimits::default())?;
    let (events, mut events_to_engine) = mpsc::channel(EVENTS_MAX);
    let reread = Arc::new(Notify::new());
    let subscription = Subscription::open(config.routes.follow(), Arc::clone(&reread)).await;
    let subscription = subscription.context("cannot listen to the kernel")?;
    let following = tokio::spawn(subscription.run(events));
    let (watcher, findings) = tokio::sync::watch::channel(report.bypassed.clone());
    let scanner = watch::scanner().context("cannot look for what XDP would bypass")?;
    let ports = report.interfaces.iter().map(preflight::Facts::ifindex).collect();
    let watching = tokio::spawn(watch::follow(scanner, ports, watcher));
    let metrics_url = match &listener {
        Some(listener) => Some(metrics::server::url(listener.local_addr()?)),
        None => None,
    };
    let facts = startup::facts(&config, &report, name, metrics_url, started);
    let facts = Facts { reread, ..facts };
    let mut engine =
        startup::prepare(object, &config, &report, facts, &mut events_to_engine).await?;
    if let Some(left) = leftovers {
        tracing::warn!("a forwarder of this name was killed: removing what it left");
        let remains = left.remove().context("cannot remove what a killed forwarder left")?;
        wait_for_end_of(&remains)?;
    }
    startup::attach(&mut engine, &config, &report, pins.as_ref()).await?;

    let (handle, commands) = EngineHandle::channel();
    let mut servers = JoinSet::new();
    servers.spawn(control.serve(handle.clone(), shutdown.clone()));
    if let Some(listener) = listener {
        let limits = metrics::server::Limits::DEFAULT;
        servers.spawn(metrics::server::serve(listener, handle.clone(), limits, shutdown.clone()));
    }
    announce(&engine);

    let (dataplane, unloader) =
        engine.run(commands, events_to_engine, findings, shutdown.clone()).await;

    let torn_down = tear_down(dataplane, pins.as_ref());
    if let Some(reply) = unloader {
        let refusal = |error: &anyhow::Error| Refusal::new(format!("{error:#}"));
        drop(reply.send(torn_down.as_ref().copied().map_err(refusal)));
    }
    shutdown.cancel();
    following.abort();
    watching.abort();
    stop.abort();
    while servers.join_next().await.is_some() {}
    drop(claim);
    torn_down?;
    tracing::info!("nothing is left behind");
    Ok(())
}

/// Detach, then wait until the kernel has let go of everything.
fn tear_down(dataplane: Dataplane, pins: Option<&Pins>) -> Result<()> {
    let remains = dataplane.unload();
    if let Some(pins) = pins {
        pins.remove_folder().context("cannot remove the folder of pins")?;
    }
    wait_for_end_of(&remains)
}

/// Blocks, when there is nothing else to do: before the first frame, and after the last.
fn wait_for_end_of(remains: &Remains) -> Result<()> {
    let patience = Instant::now();
    while remains.are_there().context("cannot see what is left")? {
        if patience.elapsed() > REMAINS_TIMEOUT {
            bail!("the kernel still has {remains:?}");
        }
        sleep(REMAINS_POLL);
    }
    Ok(())
}

/// What a user needs to know now.
fn announce(engine: &Engine) {
    let status = engine.status();
    for interface in &status.interfaces {
        say(format_args!(
            "forwarder: {} ({}, MTU {})",
            interface.name, interface.mode, interface.mtu
        ));
    }
    for note in &status.notes {
        say(format_args!("forwarder: note: {note}"));
    }
    say(format_args!("forwarder: steering {}", status.steering));
    if let Some(url) = &status.metrics {
        say(format_args!("forwarder: metrics on {url}"));
    }
    say(format_args!(
        "forwarder: no routes yet; add one: forwarder route add PREFIX via ADDRESS dev INTERFACE"
    ));
    say(format_args!("forwarder: ready"));
}

/// A line on standard error. Where nobody listens any more forwarding goes on.
fn say(line: Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Cancels at Ctrl-C, SIGTERM, and SIGHUP unless that was ignored before us (`nohup`).
fn stop_on_signal(shutdown: CancellationToken) -> Result<JoinHandle<()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = if ignores_hangup() { None } else { Some(signal(SignalKind::hangup())?) };
    Ok(tokio::spawn(async move {
        let hung_up = async {
            match &mut hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hung_up => {}
        }
        shutdown.cancel();
    }))
}

fn ignores_hangup() -> bool {
    const SIGHUP_BIT: u64 = 1;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & SIGHUP_BIT != 0)
}
