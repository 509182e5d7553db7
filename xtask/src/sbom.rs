//! The list of all crates that the programs of this project are made of (SBOM), from `Cargo.lock`: CycloneDX 1.5, the same bytes for
//! the same lock file. What each program really contains is part of it; tests and helpers are in the list, too.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::{INCONCLUSIVE, root, say};

/// A crate of the lock file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Package {
    name: String,
    version: String,
    /// `None`: a crate of this project.
    checksum: Option<String>,
    /// Name, and version where several are locked.
    dependencies: Vec<String>,
}

impl Package {
    fn reference(&self) -> String {
        format!("pkg:cargo/{}@{}", self.name, self.version)
    }
}

/// `sbom [file]`: without a file to the standard output.
pub(crate) fn sbom(args: &[OsString]) -> ExitCode {
    match (text(), args.first().map(PathBuf::from)) {
        (Ok(text), None) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        (Ok(text), Some(file)) => match fs::write(&file, text) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                say(&format!("{}: {error}", file.display()));
                ExitCode::from(INCONCLUSIVE)
            }
        },
        (Err(why), _) => {
            say(&why);
            ExitCode::from(INCONCLUSIVE)
        }
    }
}

/// The list for the lock file of this workspace.
///
/// # Errors
/// It cannot be read, or is of a form that this reader does not know.
pub(crate) fn text() -> Result<String, String> {
    let lock = root().join("Cargo.lock");
    let text = fs::read_to_string(&lock).map_err(|error| format!("{}: {error}", lock.display()))?;
    let packages = parse(&text).map_err(|why| format!("{}: {why}", lock.display()))?;
    Ok(render(&packages, env!("CARGO_PKG_VERSION")))
}

/// Reads a lock file, of whose forms cargo writes one key a line.
fn parse(lock: &str) -> Result<Vec<Package>, String> {
    let mut packages: Vec<Package> = Vec::new();
    let mut in_list = false;
    for (number, line) in lock.lines().enumerate() {
        if line == "[[package]]" {
            packages.push(Package::default());
            continue;
        }
        let Some(package) = packages.last_mut() else { continue };
        let quoted = |text: &str| text.trim().trim_end_matches(',').trim_matches('"').to_owned();
        match line.split_once(" = ") {
            _ if in_list && line == "]" => in_list = false,
            _ if in_list => package.dependencies.push(quoted(line)),
            Some(("name", value)) => package.name = quoted(value),
            Some(("version", value)) => package.version = quoted(value),
            Some(("checksum", value)) => package.checksum = Some(quoted(value)),
            Some(("source", _)) => {}
            Some(("dependencies", "[")) => in_list = true,
            None if line.is_empty() => {}
            _ => return Err(format!("line {}: {line:?} is of a form that is not known here", number + 1)),
        }
    }
    match packages.iter().find(|package| package.name.is_empty() || package.version.is_empty()) {
        None if !packages.is_empty() => Ok(packages),
        Some(package) => Err(format!("a package without name or version: {package:?}")),
        None => Err("no package".to_owned()),
    }
}

fn render(packages: &[Package], version: &str) -> String {
    let mut text = format!(
        "{{\n  \"bomFormat\": \"CycloneDX\",\n  \"specVersion\": \"1.5\",\n  \"version\": 1,\n  \"metadata\": {{\"component\": \
         {{\"type\": \"application\", \"bom-ref\": \"vlab\", \"name\": \"vlab\", \"version\": \"{version}\"}}}},\n  \"components\": [\n"
    );
    let components: Vec<String> = packages.iter().map(component).collect();
    text += &components.join(",\n");
    text += "\n  ],\n  \"dependencies\": [\n";
    let dependencies: Vec<String> = packages
        .iter()
        .map(|package| {
            let of: Vec<String> = package
                .dependencies
                .iter()
                .filter_map(|wanted| locked(packages, wanted))
                .map(|package| format!("\"{}\"", package.reference()))
                .collect();
            format!("    {{\"ref\": \"{}\", \"dependsOn\": [{}]}}", package.reference(), of.join(", "))
        })
        .collect();
    text += &dependencies.join(",\n");
    text += "\n  ]\n}\n";
    text
}

fn component(package: &Package) -> String {
    let reference = package.reference();
    let mut text = format!(
        "    {{\"type\": \"library\", \"bom-ref\": \"{reference}\", \"name\": \"{}\", \"version\": \"{}\", \"purl\": \"{reference}\"",
        package.name, package.version
    );
    if let Some(checksum) = &package.checksum {
        let _ = write!(text, ", \"hashes\": [{{\"alg\": \"SHA-256\", \"content\": \"{checksum}\"}}]");
    }
    text + "}"
}

/// The package that a dependency names: `name` or `name version`.
fn locked<'a>(packages: &'a [Package], wanted: &str) -> Option<&'a Package> {
    let mut words = wanted.split(' ');
    let (name, version) = (words.next()?, words.next());
    packages.iter().find(|package| package.name == name && version.is_none_or(|version| package.version == version))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nsource = \"registry+x\"\nchecksum = \"ab\"\n\
                        dependencies = [\n \"b 2.0.0\",\n]\n\n[[package]]\nname = \"b\"\nversion = \"1.0.0\"\n\n[[package]]\n\
                        name = \"b\"\nversion = \"2.0.0\"\n";

    #[test]
    fn each_locked_crate_is_a_component_and_names_what_it_uses() {
        let packages = parse(LOCK).unwrap();
        let text = render(&packages, "0.1.0");
        for part in [
            "\"bomFormat\": \"CycloneDX\"",
            "{\"type\": \"library\", \"bom-ref\": \"pkg:cargo/a@1.0.0\", \"name\": \"a\", \"version\": \"1.0.0\", \
             \"purl\": \"pkg:cargo/a@1.0.0\", \"hashes\": [{\"alg\": \"SHA-256\", \"content\": \"ab\"}]}",
            "{\"ref\": \"pkg:cargo/a@1.0.0\", \"dependsOn\": [\"pkg:cargo/b@2.0.0\"]}",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert_eq!(text.matches('{').count(), text.matches('}').count());
    }

    #[test]
    fn a_form_that_is_not_known_is_refused() {
        assert!(parse("").is_err());
        let error = parse("[[package]]\nname = \"a\"\nnew-key = 1\n").unwrap_err();
        assert!(error.starts_with("line 3: \"new-key = 1\""), "{error}");
    }

    /// All that cargo has locked, and nothing that names a crate that is not in the list.
    #[test]
    fn the_list_of_this_workspace_is_complete() {
        let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
        let packages = parse(&lock).unwrap();
        assert_eq!(packages.len(), lock.matches("[[package]]").count());
        for package in &packages {
            for wanted in &package.dependencies {
                assert!(locked(&packages, wanted).is_some(), "{wanted} of {}", package.name);
            }
        }
        assert_eq!(text().unwrap(), text().unwrap());
    }
}
