//! What was found, kept in target/toolchain/record.json and believed as long as it is still true.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::{
    LINKER_VARIABLE, RUSTC_VARIABLE, Toolchain, WAY_VARIABLE,
    compiler::{self, Compiler},
    linker,
};

pub(crate) fn read(folder: &Path) -> Option<Toolchain> {
    let text = fs::read_to_string(folder.join("record.json")).ok()?;
    let (toolchain, version) = parse(&serde_json::from_str(&text).ok()?, &asked())?;
    let is_still_there = toolchain.cargo.exists()
        && compiler::version(&toolchain.rustc).is_ok_and(|now| now.text == version)
        && compiler::has_sources(&toolchain.rustc).is_ok_and(|sources| sources)
        && linker::starts(&toolchain.linker);
    is_still_there.then_some(toolchain)
}

pub(crate) fn write(folder: &Path, toolchain: &Toolchain, compiler: &Compiler) -> Result<()> {
    let record = format!("{:#}\n", record(toolchain, &compiler.version.text, &asked()));
    fs::create_dir_all(folder)?;
    let file = folder.join("record.json");
    fs::write(&file, record).with_context(|| format!("write {}", file.display()))
}

fn record(toolchain: &Toolchain, version: &str, asked: &Value) -> Value {
    json!({
        "asked": asked,
        "cargo": toolchain.cargo,
        "rustc": toolchain.rustc,
        "linker": toolchain.linker,
        "version": version,
    })
}

fn parse(record: &Value, asked: &Value) -> Option<(Toolchain, String)> {
    let path = |name: &str| Some(PathBuf::from(record[name].as_str()?));
    if record["asked"] != *asked {
        return None;
    }
    let toolchain =
        Toolchain { cargo: path("cargo")?, rustc: path("rustc")?, linker: path("linker")? };
    Some((toolchain, record["version"].as_str()?.to_owned()))
}

/// What the environment asked for: another wish is another search.
fn asked() -> Value {
    let value = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    json!([value(RUSTC_VARIABLE), value(LINKER_VARIABLE), value(WAY_VARIABLE)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_holds_for_the_same_wish_only() {
        let toolchain = Toolchain { cargo: "/c".into(), rustc: "/r".into(), linker: "/l l".into() };
        let asked = json!([null, null, "system"]);
        let record = record(&toolchain, "rustc 1", &asked);
        assert_eq!(parse(&record, &asked), Some((toolchain, "rustc 1".to_owned())));
        assert_eq!(parse(&record, &json!([null, null, null])), None);
        assert_eq!(parse(&json!({"asked": asked}), &asked), None);
    }
}
