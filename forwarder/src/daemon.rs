//! The daemon's life: what it checks, what it sets up and in which order, and how it ends.

use std::{
    collections::BTreeMap,
    fs, io,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail};
use nix::fcntl::{Flock, FlockArg};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use crate::{
    config::{Config, Steering, default_name, directory, socket_path},
    control::server::{Limits as ControlLimits, Server},
    dataplane::{Dataplane, Leftovers, Options, Pins, cpu_map_threads},
    engine::{
        EngineHandle,
        run::{Engine, Facts, Port},
    },
    metrics,
    netlink::{Requests, Subscription, event::Event},
    object_bytes,
    preflight::{self, Report},
    rib::Rib,
    routing::{Limits, Routing},
};

/// The maps and the clients are served while one thread is busy with a large load.
const RUNTIME_THREADS: usize = 2;
/// Exit code of a command that needs a daemon, where there is none.
const NO_DAEMON: u8 = 3;
/// Kernel events that wait for the engine; more wait in the socket's buffer.
const EVENTS_MAX: usize = 8192;
/// How long the kernel may take to end the threads of the CPU map.
const THREADS_END_TIMEOUT: Duration = Duration::from_secs(5);

/// `forwarder run`, from start to end.
pub fn start(config: Config) -> Result<ExitCode> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
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
    let name = match &config.name {
        Some(name) => name.clone(),
        None => default_name()?,
    };
    let folder = directory(&config.run_dir, &name);
    let _one_daemon = OneDaemon::claim(&folder, &name)?;

    let (pins, leftovers) = find_pins(&name)?;
    let left_programs = leftovers.as_ref().map_or(&[][..], |left| &left.programs);
    let report = preflight::check(&config, left_programs).await?;
    for warning in &report.warnings {
        tracing::warn!("{warning}");
    }

    let listener = match config.metrics {
        Some(address) => Some(metrics::server::bind(address).await?),
        None => None,
    };
    let control = Server::bind(
        &socket_path(&config.run_dir, &name),
        &config.group,
        ControlLimits::default(),
    )?;
    let shutdown = CancellationToken::new();
    let stop = stop_on_signal(shutdown.clone())?;

    let (events, events_to_engine) = mpsc::channel(EVENTS_MAX);
    let subscription = Subscription::open().await.context("cannot listen to the kernel")?;
    let following = tokio::spawn(subscription.run(events));

    let metrics_url = match &listener {
        Some(listener) => Some(metrics::server::url(listener.local_addr()?)),
        None => None,
    };
    let facts = facts(&config, &report, name, metrics_url, started);
    let prepared = prepare(object, &config, &report, facts, events_to_engine).await?;
    let (engine, events_to_engine) = attach(prepared, &config, &report, leftovers, pins.as_ref())?;

    let (handle, commands) = EngineHandle::channel();
    let mut servers = tokio::task::JoinSet::new();
    servers.spawn(control.serve(handle.clone(), shutdown.clone()));
    if let Some(listener) = listener {
        let limits = metrics::server::Limits::DEFAULT;
        servers.spawn(metrics::server::serve(listener, handle.clone(), limits, shutdown.clone()));
    }
    announce(&engine);

    let (dataplane, unloader) = engine.run(commands, events_to_engine, shutdown.clone()).await;

    let torn_down = tear_down(dataplane, pins.as_ref()).await;
    if let Some(reply) = unloader {
        let refusal = |error: &anyhow::Error| crate::engine::Refusal::new(format!("{error:#}"));
        drop(reply.send(torn_down.as_ref().copied().map_err(refusal)));
    }
    shutdown.cancel();
    following.abort();
    stop.abort();
    while servers.join_next().await.is_some() {}
    remove_folder(&folder);
    tracing::info!("nothing is left behind");
    torn_down
}

/// Programs loaded and maps filled as the kernel is now; nothing attached.
async fn prepare(
    object: &[u8],
    config: &Config,
    report: &Report,
    facts: Facts,
    mut events: mpsc::Receiver<Event>,
) -> Result<(Engine, mpsc::Receiver<Event>)> {
    let options = Options {
        routes4_max: config.routes4_max,
        routes6_max: config.routes6_max,
        steering: config.steering.clone(),
        queue_size: config.queue_size,
        count_routes: config.metrics_routes > 0,
        cpus_possible: u32::try_from(report.cpus_possible.len())?,
    };
    let (dataplane, tables) = Dataplane::load(object, &options)?;
    let ports: BTreeMap<u32, bool> =
        report.interfaces.iter().map(|facts| (facts.ifindex(), facts.sends_frags())).collect();
    let limits = Limits { routes4: config.routes4_max, routes6: config.routes6_max };
    let mut routing = Routing::new(Rib::new(ports), tables, limits)?;
    routing.apply(first_lists(&mut events).await?)?;

    let slots = report.interfaces.iter().zip(1..);
    let ports = slots.map(|(facts, slot)| {
        let mode = crate::dataplane::AttachedMode::Native;
        (facts.ifindex(), Port { name: facts.name().to_owned(), slot, mode })
    });
    let requests = Requests::open()?;
    let mut engine = Engine { routing, dataplane, requests, ports: ports.collect(), facts };
    engine.describe_interfaces().context("cannot describe the interfaces to the programs")?;
    engine.renew_lease();
    Ok((engine, events))
}

/// Everything that the kernel has, once each.
async fn first_lists(events: &mut mpsc::Receiver<Event>) -> Result<Vec<Event>> {
    let mut first = Vec::new();
    let is = |first: &[Event], list: fn(&Event) -> bool| first.iter().any(list);
    let complete = |first: &[Event]| {
        is(first, |event| matches!(event, Event::Links(_)))
            && is(first, |event| matches!(event, Event::Addresses(_)))
            && is(first, |event| matches!(event, Event::Locals(_)))
            && is(first, |event| matches!(event, Event::Neighbours(_)))
    };
    while !complete(&first) {
        first.push(events.recv().await.context("the kernel does not answer on netlink")?);
    }
    Ok(first)
}

fn attach(
    (mut engine, events): (Engine, mpsc::Receiver<Event>),
    config: &Config,
    report: &Report,
    leftovers: Option<Leftovers>,
    pins: Option<&Pins>,
) -> Result<(Engine, mpsc::Receiver<Event>)> {
    if let Some(left) = leftovers {
        tracing::warn!(
            interfaces = ?left.interfaces,
            "a forwarder of this name was killed: removing what it left"
        );
        left.remove().context("cannot remove what a killed forwarder left")?;
    }
    let interfaces: Vec<(u32, String)> =
        report.interfaces.iter().map(|facts| (facts.ifindex(), facts.name().to_owned())).collect();
    let attached = engine
        .dataplane
        .attach(&interfaces, config.mode, pins)
        .map_err(|error| preflight::explain_attach(error, report))?;
    for attached in attached {
        let Some(port) = engine.ports.get_mut(&attached.ifindex) else { continue };
        port.mode = attached.mode;
        if let Some(error) = attached.fallback {
            let note = format!(
                "{}: the driver refused native mode ({error}), so it runs in generic mode, which is \
                 several times slower",
                port.name
            );
            tracing::warn!("{note}");
            engine.facts.notes.push(note);
        }
    }
    Ok((engine, events))
}

/// Detach, then wait until the kernel has let go of everything.
async fn tear_down(dataplane: Dataplane, pins: Option<&Pins>) -> Result<()> {
    let cpu_map = dataplane.unload();
    if let Some(pins) = pins {
        pins.remove_folder().context("cannot remove the folder of pins")?;
    }
    let patience = Instant::now();
    while cpu_map_threads(Path::new("/proc"), cpu_map)? > 0 {
        if patience.elapsed() > THREADS_END_TIMEOUT {
            bail!("kernel threads of the CPU map {cpu_map} are still there");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// Removes what a killed forwarder of this name left. Exit code 3 where there is nothing.
pub fn unload_leftovers(run_dir: &Path, name: &str) -> Result<ExitCode> {
    let folder = directory(run_dir, name);
    let (_, leftovers) = find_pins(name)?;
    let code = if let Some(left) = leftovers {
        let count = left.interfaces.len();
        left.remove().context("cannot remove what a killed forwarder left")?;
        eprintln!("removed what a killed forwarder left: it was attached to {count} interfaces");
        ExitCode::SUCCESS
    } else {
        eprintln!("error: no forwarder named '{name}' is running, and none has left anything");
        ExitCode::from(NO_DAEMON)
    };
    let _ = fs::remove_file(socket_path(run_dir, name));
    remove_folder(&folder);
    Ok(code)
}

fn find_pins(name: &str) -> Result<(Option<Pins>, Option<Leftovers>)> {
    match Pins::locate(name) {
        Ok(pins) => {
            let leftovers = pins.leftovers().context("cannot look for what a daemon left")?;
            Ok((Some(pins), leftovers))
        }
        Err(error) => {
            tracing::warn!("{error}: forwarding ends with this process, however it ends");
            Ok((None, None))
        }
    }
}

fn facts(
    config: &Config,
    report: &Report,
    name: String,
    metrics: Option<String>,
    started: Instant,
) -> Facts {
    Facts {
        name,
        kernel: report.kernel.clone(),
        steering: match &config.steering {
            Steering::Off => "off".to_owned(),
            Steering::Cpus(cpus) => {
                let cpus: Vec<String> = cpus.iter().map(u32::to_string).collect();
                format!("cpus={}", cpus.join(","))
            }
        },
        metrics,
        metrics_routes: config.metrics_routes as usize,
        routes4_max: config.routes4_max,
        routes6_max: config.routes6_max,
        grace: Duration::from_secs(config.grace_s.into()),
        cpus_online: report.cpus_online.clone(),
        notes: report.notes.clone(),
        started,
    }
}

/// What a user needs to know now.
fn announce(engine: &Engine) {
    let status = engine.status();
    for interface in &status.interfaces {
        eprintln!("forwarder: {} ({}, MTU {})", interface.name, interface.mode, interface.mtu);
    }
    for note in &status.notes {
        eprintln!("forwarder: note: {note}");
    }
    eprintln!("forwarder: steering {}", status.steering);
    if let Some(url) = &status.metrics {
        eprintln!("forwarder: metrics on {url}");
    }
    eprintln!(
        "forwarder: no routes yet; add one: forwarder route add PREFIX via ADDRESS dev INTERFACE"
    );
    eprintln!("forwarder: ready");
}

/// Cancels at Ctrl-C and SIGTERM.
fn stop_on_signal(shutdown: CancellationToken) -> Result<tokio::task::JoinHandle<()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup.recv() => {}
        }
        shutdown.cancel();
    }))
}

/// Held as long as the daemon lives; the kernel gives it up when the process ends, however it ends.
struct OneDaemon {
    _namespace: UnixListener,
    _name: Flock<fs::File>,
}

impl OneDaemon {
    fn claim(folder: &Path, name: &str) -> Result<Self> {
        // Abstract names belong to the network namespace.
        let address = SocketAddr::from_abstract_name("forwarder")?;
        let namespace = UnixListener::bind_addr(&address).map_err(|_| {
            anyhow!(
                "a forwarder is running in this network namespace: see it with `forwarder status`, \
                 end it with `forwarder unload`"
            )
        })?;
        fs::create_dir_all(folder).with_context(|| {
            format!("cannot make {}: choose another folder with --run-dir", folder.display())
        })?;
        let path: PathBuf = folder.join("lock");
        let file = fs::File::create(&path).with_context(|| path.display().to_string())?;
        let name = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|_| {
            anyhow!(
                "the name '{name}' is taken by a forwarder in another network namespace: choose \
                 another with --name"
            )
        })?;
        Ok(Self { _namespace: namespace, _name: name })
    }
}

/// The lock file goes, and the folder where nothing else is in it.
fn remove_folder(folder: &Path) {
    let _ = fs::remove_file(folder.join("lock"));
    let _ = fs::remove_dir(folder);
}
