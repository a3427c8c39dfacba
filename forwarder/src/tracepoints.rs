//! The kernel's tracepoints of XDP: which there are, what of the kernel their programs must know,
//! and what is not counted without them. No I/O.

use serde::{Deserialize, Serialize};

use crate::btf::{Btf, BtfError, Value};

/// Named as the kernel names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tracepoint {
    XdpRedirectErr,
    XdpException,
    XdpDevmapXmit,
    XdpCpumapEnqueue,
    XdpCpumapKthread,
}

/// What a program reads of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Argument {
    Device,
    Program,
    Word,
    /// Nothing.
    Unread,
}

impl Tracepoint {
    pub const ALL: [Self; 5] = [
        Self::XdpRedirectErr,
        Self::XdpException,
        Self::XdpDevmapXmit,
        Self::XdpCpumapEnqueue,
        Self::XdpCpumapKthread,
    ];

    /// Of the tracepoint, of our program for it, and of its pin.
    pub const fn name(self) -> &'static str {
        match self {
            Self::XdpRedirectErr => "xdp_redirect_err",
            Self::XdpException => "xdp_exception",
            Self::XdpDevmapXmit => "xdp_devmap_xmit",
            Self::XdpCpumapEnqueue => "xdp_cpumap_enqueue",
            Self::XdpCpumapKthread => "xdp_cpumap_kthread",
        }
    }

    /// What is not counted without it.
    pub const fn counts(self) -> &'static str {
        match self {
            Self::XdpRedirectErr => "frames that the kernel did not take for their egress or CPU",
            Self::XdpException => "frames that an egress did not send in generic mode",
            Self::XdpDevmapXmit => "frames that were sent, or that a driver did not send",
            Self::XdpCpumapEnqueue => "frames that a CPU's queue had no room for",
            Self::XdpCpumapKthread => "frames that a worker took out of its queue",
        }
    }

    /// Those that are read; a kernel may have more behind them (`include/trace/events/xdp.h`).
    const fn arguments(self) -> &'static [Argument] {
        use Argument::{Device, Program, Unread, Word};
        match self {
            Self::XdpRedirectErr => &[Device, Program, Unread, Word, Word],
            Self::XdpException => &[Device, Program, Word],
            Self::XdpDevmapXmit => &[Device, Device, Word, Word, Word],
            Self::XdpCpumapEnqueue => &[Word, Word, Word, Word],
            Self::XdpCpumapKthread => &[Word, Word, Word],
        }
    }

    /// Why this kernel's cannot be used.
    fn flaw(self, btf: &Btf<'_>, fields: &Fields) -> Option<BtfError> {
        let found = match btf.arguments(self.name()) {
            Ok(found) => found,
            Err(error) => return Some(error),
        };
        let wanted = self.arguments();
        let fits = |(wanted, found): (&Argument, &Value)| match wanted {
            Argument::Device => *found == Value::Pointer("net_device".to_owned()),
            Argument::Program => *found == Value::Pointer("bpf_prog".to_owned()),
            Argument::Word => *found == Value::Word,
            Argument::Unread => true,
        };
        if found.len() < wanted.len() || !wanted.iter().zip(&found).all(fits) {
            return Some(BtfError::OtherType(format!("tracepoint {}", self.name())));
        }
        let needs = |argument| wanted.contains(&argument);
        let device = fields.device.as_ref().err().filter(|_| needs(Argument::Device));
        let program = fields.program.as_ref().err().filter(|_| needs(Argument::Program));
        // The program of a redirect is not looked at: its device is ours alone.
        let program = program.filter(|_| self == Self::XdpException);
        device.or(program).cloned()
    }
}

/// Bytes from the start of a structure of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offsets {
    pub net_device_ifindex: u32,
    pub net_device_net: u32,
    pub net_inum: u32,
    pub bpf_prog_aux: u32,
    pub bpf_prog_aux_id: u32,
}

/// What is read of a device and of a program, each as a whole.
struct Fields {
    device: Result<[u32; 3], BtfError>,
    program: Result<[u32; 2], BtfError>,
}

impl Fields {
    fn of(btf: &Btf<'_>) -> Self {
        let pointer = |name: &str| Value::Pointer(name.to_owned());
        let device = || {
            Ok([
                field(btf, "net_device", &["ifindex"], &Value::Word)?,
                field(btf, "net_device", &["nd_net", "net"], &pointer("net"))?,
                field(btf, "net", &["ns", "inum"], &Value::Word)?,
            ])
        };
        let program = || {
            Ok([
                field(btf, "bpf_prog", &["aux"], &pointer("bpf_prog_aux"))?,
                field(btf, "bpf_prog_aux", &["id"], &Value::Word)?,
            ])
        };
        Self { device: device(), program: program() }
    }
}

fn field(btf: &Btf<'_>, of: &str, path: &[&str], wanted: &Value) -> Result<u32, BtfError> {
    let (offset, found) = btf.field(of, path)?;
    if found != *wanted {
        return Err(BtfError::OtherType(format!("field {} of struct {of}", path.join("."))));
    }
    Ok(offset)
}

/// A tracepoint that is not followed, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    pub tracepoint: Tracepoint,
    /// A clause.
    pub why: String,
}

impl Missing {
    /// A sentence for `status`.
    pub fn note(&self) -> String {
        format!(
            "tracepoint {} is not followed ({}), so {} are not counted, and \
             forwarder_unaccounted_packets lacks the equations that need them",
            self.tracepoint.name(),
            self.why,
            self.tracepoint.counts()
        )
    }
}

/// What can be followed on a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Zeros, for programs that are not loaded, where something is not there.
    pub offsets: Offsets,
    pub missing: Vec<Missing>,
}

impl Plan {
    /// From the bytes of the kernel's BTF.
    pub fn new(bytes: &[u8]) -> Self {
        match Btf::parse(bytes) {
            Ok(btf) => Self::of(&btf),
            Err(error) => Self::nothing(&error.to_string()),
        }
    }

    pub fn nothing(why: &str) -> Self {
        let missing = |tracepoint| Missing { tracepoint, why: why.to_owned() };
        Self { offsets: Offsets::default(), missing: Tracepoint::ALL.map(missing).to_vec() }
    }

    fn of(btf: &Btf<'_>) -> Self {
        let fields = Fields::of(btf);
        let missing = |tracepoint: Tracepoint| {
            let why = tracepoint.flaw(btf, &fields)?.to_string();
            Some(Missing { tracepoint, why })
        };
        let missing = Tracepoint::ALL.into_iter().filter_map(missing).collect();
        let [net_device_ifindex, net_device_net, net_inum] = fields.device.unwrap_or_default();
        let [bpf_prog_aux, bpf_prog_aux_id] = fields.program.unwrap_or_default();
        let offsets =
            Offsets { net_device_ifindex, net_device_net, net_inum, bpf_prog_aux, bpf_prog_aux_id };
        Self { offsets, missing }
    }
}

#[cfg(test)]
mod tests;
