//! Sets and maps whose keys are interfaces.

use super::{
    expression::{key, number, verdict},
    tables::HEADER_LEN,
};
use crate::{
    bypass::rules::{NAME_LEN, Verdict, Which},
    netlink::wire::Attributes,
};

// `linux/netfilter/nf_tables.h`
const NFTA_SET_TABLE: u16 = 1;
const NFTA_SET_NAME: u16 = 2;
const NFTA_SET_FLAGS: u16 = 3;
const NFTA_SET_KEY_LEN: u16 = 5;
const NFTA_SET_ELEM_LIST_ELEMENTS: u16 = 3;
const NFTA_SET_ELEM_KEY: u16 = 1;
const NFTA_SET_ELEM_DATA: u16 = 2;
const NFTA_SET_ELEM_FLAGS: u16 = 3;
const NFTA_DATA_VALUE: u16 = 1;

/// Sets of ranges, of keys that come and go with time or with packets, and of keys of several
/// parts: what is in them says nothing that is simple.
const NOT_PLAIN: u32 = 0x4 | 0x10 | 0x20 | 0x80;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SetId {
    pub(super) family: u8,
    pub(super) table: String,
    pub(super) name: String,
}

/// Interfaces, and what a map of verdicts has for each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Elements(pub(super) Vec<(Which, Option<Verdict>)>);

/// The set that a message tells of, if its elements can be followed.
pub(super) fn plain_set(body: &[u8]) -> Option<SetId> {
    let attributes = Attributes::after(HEADER_LEN, body);
    let flags = number(attributes, NFTA_SET_FLAGS).unwrap_or(0);
    let key_len = number(attributes, NFTA_SET_KEY_LEN)? as usize;
    if flags & NOT_PLAIN != 0 || (key_len != 4 && key_len != NAME_LEN) {
        return None;
    }
    Some(SetId {
        family: *body.first()?,
        table: attributes.text(NFTA_SET_TABLE)?.to_owned(),
        name: attributes.text(NFTA_SET_NAME)?.to_owned(),
    })
}

/// The elements of one message of several. `None`: one of them is not understood.
pub(super) fn elements(set: &SetId, body: &[u8]) -> Option<Elements> {
    let attributes = Attributes::after(HEADER_LEN, body);
    let Some(list) = attributes.nested(NFTA_SET_ELEM_LIST_ELEMENTS) else {
        return Some(Elements::default());
    };
    let element = |(_, element)| {
        let element = Attributes::after(0, element);
        // The end of a range, or what holds for all keys that are not there.
        if number(element, NFTA_SET_ELEM_FLAGS).unwrap_or(0) != 0 {
            return None;
        }
        let key = key(element.nested(NFTA_SET_ELEM_KEY)?.get(NFTA_DATA_VALUE)?)?;
        let data = element.nested(NFTA_SET_ELEM_DATA);
        Some((key, data.and_then(|data| verdict(set.family, &set.table, data))))
    };
    list.iter().map(element).collect::<Option<Vec<_>>>().map(Elements)
}
