//! The kernel's description of its own types (BTF): where a field of a structure is, and what a
//! tracepoint hands to programs. aya reads it too, but keeps both to itself.
//!
//! The format: Documentation/bpf/btf.rst, `include/uapi/linux/btf.h`. The bytes are the kernel's,
//! and still nothing here trusts them: every offset is checked, every walk has an end.

mod reader;

use reader::{Kind, Reader, Type};

/// Types through which a typedef or a qualifier may lead to another.
const ALIASES_MAX: usize = 32;
/// Structures without a name inside each other.
const NESTING_MAX: usize = 8;
/// Members that are looked at for one field: several times those of the largest structure.
const MEMBERS_MAX: usize = 1 << 14;

/// What the kernel lacks, as a clause: "the kernel has no …".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BtfError {
    #[error("the kernel's BTF cannot be read: {0}")]
    Malformed(&'static str),
    #[error("the kernel has no {0}")]
    Missing(String),
    #[error("the kernel's {0} is of another type")]
    OtherType(String),
}

/// What a field or an argument is, as far as programs must know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// An integer or an enumeration of 32 bits.
    Word,
    /// The name of the structure that it points to; empty where it is none, or has no name.
    Pointer(String),
    Other,
}

/// The types of one kernel.
#[derive(Debug)]
pub struct Btf<'a>(Reader<'a>);

impl<'a> Btf<'a> {
    /// # Errors
    ///
    /// What is not the format, in this machine's byte order.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, BtfError> {
        Ok(Self(Reader::new(bytes)?))
    }

    /// Bytes from the start of a structure to a field, and what it is. The path goes through
    /// structures inside it; those without a name are looked through.
    pub fn field(&self, structure: &str, path: &[&str]) -> Result<(u32, Value), BtfError> {
        let missing = || BtfError::Missing(format!("struct {structure}"));
        let mut inside = self.0.find(Kind::Struct, structure).ok_or_else(missing)?;
        let (mut bits, mut left) = (0_u32, MEMBERS_MAX);
        let field = || format!("field {} of struct {structure}", path.join("."));
        for name in path {
            let missing = || BtfError::Missing(field());
            let (at, id) =
                self.member(&inside, name, NESTING_MAX, &mut left).ok_or_else(missing)?;
            bits = bits.checked_add(at).ok_or(BtfError::Malformed("an offset is too large"))?;
            inside = self.resolved(id).ok_or_else(missing)?;
        }
        if !bits.is_multiple_of(8) {
            return Err(BtfError::OtherType(field()));
        }
        Ok((bits / 8, self.value(&inside)))
    }

    /// What a tracepoint hands to a BTF program, in order.
    pub fn arguments(&self, tracepoint: &str) -> Result<Vec<Value>, BtfError> {
        let missing = || BtfError::Missing(format!("tracepoint {tracepoint}"));
        let typedef = self.0.find(Kind::Typedef, &format!("btf_trace_{tracepoint}"));
        let pointer = typedef.and_then(|it| self.resolved(it.refers_to())).ok_or_else(missing)?;
        let function = self.resolved(pointer.refers_to()).ok_or_else(missing)?;
        if function.kind != Kind::FuncProto {
            return Err(missing());
        }
        // The first is the tracepoint's own data, which no program sees.
        let values = self.0.parameters(&function).skip(1);
        Ok(values.map(|id| self.resolved(id).map_or(Value::Other, |it| self.value(&it))).collect())
    }

    /// Bits to a member of this name, and its type. Bit fields have no address.
    fn member(
        &self,
        structure: &Type,
        name: &str,
        nesting: usize,
        left: &mut usize,
    ) -> Option<(u32, u32)> {
        for member in self.0.members(structure) {
            *left = left.checked_sub(1)?;
            if member.is_bit_field {
                continue;
            }
            if self.0.has_name(member.name, name) {
                return Some((member.bits, member.id));
            }
            if member.name == 0
                && nesting > 0
                && let Some(inside) = self.resolved(member.id)
                && let Some((bits, id)) = self.member(&inside, name, nesting - 1, left)
            {
                return Some((member.bits.checked_add(bits)?, id));
            }
        }
        None
    }

    /// The type behind typedefs and qualifiers; `None` for `void`.
    fn resolved(&self, mut id: u32) -> Option<Type> {
        for _ in 0..ALIASES_MAX {
            let found = self.0.get(id)?;
            if !found.kind.is_alias() {
                return Some(found);
            }
            id = found.refers_to();
        }
        None
    }

    fn value(&self, of: &Type) -> Value {
        match of.kind {
            Kind::Int | Kind::Enum if of.size() == 4 => Value::Word,
            Kind::Pointer => {
                let to = self.resolved(of.refers_to()).filter(|to| to.kind == Kind::Struct);
                Value::Pointer(to.map_or_else(String::new, |to| self.0.name(to.name).to_owned()))
            }
            _ => Value::Other,
        }
    }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
