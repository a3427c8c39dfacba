//! BTF that is made for a test.

/// BTF as a kernel would have it.
pub(crate) struct Builder {
    types: Vec<u8>,
    strings: Vec<u8>,
    count: u32,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self { types: Vec::new(), strings: vec![0], count: 0 }
    }

    pub(crate) fn string(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        let at = u32::try_from(self.strings.len()).unwrap();
        self.strings.extend(text.bytes().chain([0]));
        at
    }

    /// Gives back the id of a type with these words behind it.
    pub(crate) fn add(
        &mut self,
        name: &str,
        kind: u32,
        count: u32,
        size_or_type: u32,
        more: &[u32],
    ) -> u32 {
        let name = self.string(name);
        for word in [name, kind << 24 | count, size_or_type].iter().chain(more) {
            self.types.extend(word.to_ne_bytes());
        }
        self.count += 1;
        self.count
    }

    /// Members: name, type, offset in bits; kind 4 is a structure, 5 a union.
    pub(crate) fn members(&mut self, kind: u32, name: &str, members: &[(&str, u32, u32)]) -> u32 {
        let mut words = Vec::new();
        for (member, id, bits) in members {
            words.extend([self.string(member), *id, *bits]);
        }
        self.add(name, kind, u32::try_from(members.len()).unwrap(), 64, &words)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let [types, strings] =
            [&self.types, &self.strings].map(|it| u32::try_from(it.len()).unwrap());
        let mut bytes = 0xeb9f_u16.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        for word in [24, 0, types, types, strings] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend_from_slice(&self.types);
        bytes.extend_from_slice(&self.strings);
        bytes
    }
}
