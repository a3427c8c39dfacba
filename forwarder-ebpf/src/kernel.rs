//! What is read of the kernel's own structures. Where a field is differs between kernels: the
//! daemon asks the kernel's BTF and sets the offsets before the programs are loaded.

/// `struct net_device`
#[repr(C)]
pub(crate) struct NetDevice([u8; 0]);
/// `struct bpf_prog`
#[repr(C)]
pub(crate) struct BpfProg([u8; 0]);

/// The number of our network namespace: the inode of /proc/self/ns/net.
#[unsafe(no_mangle)]
static NAMESPACE: u32 = 0;
#[unsafe(no_mangle)]
static NET_DEVICE_IFINDEX: u32 = 0;
#[unsafe(no_mangle)]
static NET_DEVICE_NET: u32 = 0;
#[unsafe(no_mangle)]
static NET_INUM: u32 = 0;
#[unsafe(no_mangle)]
static BPF_PROG_AUX: u32 = 0;
#[unsafe(no_mangle)]
static BPF_PROG_AUX_ID: u32 = 0;

/// A device that a tracepoint tells of.
#[derive(Clone, Copy)]
pub(crate) struct Device(*const NetDevice);

impl Device {
    #[inline(always)]
    pub(crate) fn new(device: *const NetDevice) -> Self {
        Self(device)
    }

    #[inline(always)]
    pub(crate) fn ifindex(self) -> u32 {
        read(self.0.cast(), constant(&NET_DEVICE_IFINDEX))
    }

    #[inline(always)]
    pub(crate) fn is_in_our_namespace(self) -> bool {
        let net: *const u8 = read(self.0.cast(), constant(&NET_DEVICE_NET));
        let inum: u32 = read(net, constant(&NET_INUM));
        inum == constant(&NAMESPACE)
    }
}

/// A program that a tracepoint tells of.
#[derive(Clone, Copy)]
pub(crate) struct Program(*const BpfProg);

impl Program {
    #[inline(always)]
    pub(crate) fn new(program: *const BpfProg) -> Self {
        Self(program)
    }

    #[inline(always)]
    pub(crate) fn id(self) -> u32 {
        let aux: *const u8 = read(self.0.cast(), constant(&BPF_PROG_AUX));
        read(aux, constant(&BPF_PROG_AUX_ID))
    }
}

/// A field of a structure that the verifier knows by its type: it checks that the field is there
/// and as large, and a pointer that leads nowhere reads as zero.
#[inline(always)]
fn read<T: Copy>(structure: *const u8, offset: u32) -> T {
    let field = structure.wrapping_add(offset as usize).cast::<T>();
    // SAFETY: the verifier lets no other program in.
    unsafe { field.read_volatile() }
}

#[inline(always)]
fn constant(constant: &'static u32) -> u32 {
    // SAFETY: a static; volatile, since the value is set between compilation and load.
    unsafe { core::ptr::read_volatile(&raw const *constant) }
}
