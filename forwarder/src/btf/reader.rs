//! The bytes of BTF as types: a header, the types one behind the other, their names.

use super::BtfError;

const MAGIC: u16 = 0xeb9f;
const VERSION: u8 = 1;
/// `struct btf_header`, up to what is read of it.
const HEADER: usize = 24;
/// `struct btf_type`
const TYPE: usize = 12;
/// `struct btf_member`
const MEMBER: usize = 12;
/// `struct btf_param`
const PARAMETER: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Int,
    Pointer,
    Struct,
    Union,
    Enum,
    Typedef,
    /// `const`, `volatile`, `restrict`, a tag.
    Qualifier,
    FuncProto,
    Other,
}

impl Kind {
    pub(super) fn is_alias(self) -> bool {
        matches!(self, Self::Typedef | Self::Qualifier)
    }
}

/// One type, and where what follows it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Type {
    pub(super) kind: Kind,
    /// Offset of its name.
    pub(super) name: u32,
    size_or_id: u32,
    has_bit_fields: bool,
    count: usize,
    at: usize,
}

impl Type {
    pub(super) fn size(&self) -> u32 {
        self.size_or_id
    }

    /// The id of the type that it is an alias of, or points to.
    pub(super) fn refers_to(&self) -> u32 {
        self.size_or_id
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) name: u32,
    pub(super) id: u32,
    pub(super) bits: u32,
    pub(super) is_bit_field: bool,
}

#[derive(Debug)]
pub(super) struct Reader<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    /// Where each type begins; the first has the id 1.
    starts: Vec<usize>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, BtfError> {
        let short = BtfError::Malformed("its header is too short");
        if bytes.len() < HEADER {
            return Err(short);
        }
        let magic = [bytes[0], bytes[1]];
        if u16::from_ne_bytes(magic) != MAGIC || bytes[2] != VERSION {
            return Err(BtfError::Malformed("it is of another version or byte order"));
        }
        let word = |at| word(bytes, at).ok_or(short.clone());
        let header = word(4)?;
        let section = |offset: u32, len: u32| {
            let start = header.checked_add(offset)? as usize;
            bytes.get(start..start.checked_add(len as usize)?)
        };
        let cut = BtfError::Malformed("it ends too early");
        let types = section(word(8)?, word(12)?).ok_or(cut.clone())?;
        let strings = section(word(16)?, word(20)?).ok_or(cut)?;
        Ok(Self { types, strings, starts: starts(types)? })
    }

    pub(super) fn get(&self, id: u32) -> Option<Type> {
        let start = *self.starts.get((id as usize).checked_sub(1)?)?;
        type_at(self.types, start).map(|(found, _)| found)
    }

    /// The first type of this kind and name.
    pub(super) fn find(&self, kind: Kind, name: &str) -> Option<Type> {
        let types = self.starts.iter().filter_map(|start| type_at(self.types, *start));
        types.map(|(found, _)| found).find(|it| it.kind == kind && self.has_name(it.name, name))
    }

    pub(super) fn name(&self, at: u32) -> &'a str {
        let rest = self.strings.get(at as usize..).unwrap_or_default();
        let name = rest.split(|byte| *byte == 0).next().unwrap_or_default();
        std::str::from_utf8(name).unwrap_or_default()
    }

    pub(super) fn has_name(&self, at: u32, name: &str) -> bool {
        let rest = self.strings.get(at as usize..).unwrap_or_default();
        rest.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
    }

    /// Of a structure or a union; none of anything else.
    pub(super) fn members(&self, of: &Type) -> impl Iterator<Item = Member> + use<'_> {
        let count = if matches!(of.kind, Kind::Struct | Kind::Union) { of.count } else { 0 };
        let (at, has_bit_fields) = (of.at, of.has_bit_fields);
        (0..count).map_while(move |number| {
            let at = at + number * MEMBER;
            let offset = word(self.types, at + 8)?;
            // With bit fields anywhere, the top byte of every offset is a width in bits.
            let (bits, width) =
                if has_bit_fields { (offset & 0x00ff_ffff, offset >> 24) } else { (offset, 0) };
            let (name, id) = (word(self.types, at)?, word(self.types, at + 4)?);
            Some(Member { name, id, bits, is_bit_field: width != 0 })
        })
    }

    /// Types of a function's parameters.
    pub(super) fn parameters(&self, of: &Type) -> impl Iterator<Item = u32> + use<'_> {
        let at = of.at;
        (0..of.count).map_while(move |number| word(self.types, at + number * PARAMETER + 4))
    }
}

fn starts(types: &[u8]) -> Result<Vec<usize>, BtfError> {
    let mut starts = Vec::new();
    let mut at = 0;
    while at < types.len() {
        let (_, next) = type_at(types, at)
            .ok_or(BtfError::Malformed("a type of it is unknown or ends too early"))?;
        starts.push(at);
        at = next;
    }
    Ok(starts)
}

/// A type, and where the next one begins.
fn type_at(types: &[u8], start: usize) -> Option<(Type, usize)> {
    let [name, info, size_or_id] = [0, 4, 8].map(|at| word(types, start + at));
    let (info, at) = (info?, start + TYPE);
    let count = (info & 0xffff) as usize;
    let (kind, extra) = match (info >> 24) & 0x1f {
        1 => (Kind::Int, 4),
        2 => (Kind::Pointer, 0),
        3 => (Kind::Other, 12), // array
        4 => (Kind::Struct, count * MEMBER),
        5 => (Kind::Union, count * MEMBER),
        6 => (Kind::Enum, count * 8),
        8 => (Kind::Typedef, 0),
        9..=11 | 18 => (Kind::Qualifier, 0),
        7 | 12 | 16 => (Kind::Other, 0), // forward, function, float
        13 => (Kind::FuncProto, count * PARAMETER),
        14 | 17 => (Kind::Other, 4), // variable, declaration tag
        15 | 19 => (Kind::Other, count * 12), // section, enumeration of 64 bits
        _ => return None,
    };
    let next = at.checked_add(extra).filter(|next| *next <= types.len())?;
    let has_bit_fields = info >> 31 != 0;
    Some((Type { kind, name: name?, size_or_id: size_or_id?, has_bit_fields, count, at }, next))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(word.try_into().ok()?))
}
