//! Where scenarios, hardware profiles and time profiles come from: a folder, or the copy inside the program.

use std::path::{Path, PathBuf};

use vlab_api::Timestamp;
use vlab_model::settings::TimeProfile;

use crate::diagnostic::{LoadError, Problem, SourceFile, nearest};
use crate::quarantine::{self, QUARANTINE, Quarantined};
use crate::words::Need;

/// Names and texts of the catalogue at the time of the build.
static EMBEDDED: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/embedded.rs"));

/// A scenario of the catalogue, without its body.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct CatalogueEntry {
    /// Its name, to run it by.
    pub name: String,
    /// What it proves.
    pub description: String,
    /// The scenario's tags, by which runs are selected.
    pub tags: Vec<String>,
    /// What it needs.
    pub needs: Vec<Need>,
    /// Number of its hosts.
    pub hosts: usize,
    /// File, or its name inside the program.
    pub path: String,
    /// Why it cannot be run, if it cannot: the first problem, with its line.
    pub broken: Option<String>,
}

/// No scenario of that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no scenario `{name}` in {searched}; {}", hint(.nearest, .known))]
pub struct NotFound {
    /// What was asked for.
    pub name: String,
    /// Names that are near to it, best first.
    pub nearest: Vec<String>,
    /// All names.
    pub known: Vec<String>,
    /// Where it was looked for.
    pub searched: String,
}

fn hint(near: &[String], known: &[String]) -> String {
    let near: Vec<&str> = near.iter().map(String::as_str).collect();
    match (&near[..], known.len()) {
        (_, 0) => "it has no scenarios at all".to_owned(),
        ([], all) => format!("`vlab list` shows the {all} that are there"),
        (near, _) => format!("did you mean {}? `vlab list` shows all", crate::diagnostic::quoted(near, "or")),
    }
}

/// Why the catalogue did not give what was asked for.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// Nothing of that name.
    #[error(transparent)]
    NotFound(#[from] NotFound),
    /// It is there and cannot be read.
    #[error(transparent)]
    Unreadable(#[from] LoadError),
}

/// A folder of scenarios and profiles, or the copy inside the program.
#[derive(Clone, Debug)]
pub struct Catalogue {
    root: Option<PathBuf>,
}

impl Catalogue {
    /// The folder that `VLAB_SCENARIOS` names, else `scenarios` in the working directory or above it (one that has
    /// `profiles/time`), else the copy inside the program. A variable that names no folder is an error.
    #[expect(clippy::disallowed_methods, reason = "where the files of scenarios are is a question to the place")]
    pub fn discover() -> Result<Self, LoadError> {
        if let Some(named) = std::env::var_os("VLAB_SCENARIOS").filter(|v| !v.is_empty()) {
            let path = PathBuf::from(named);
            if !path.is_dir() {
                return Err(LoadError::about_file(
                    &path.display().to_string(),
                    "VLAB_SCENARIOS names it, but it is not a folder",
                    "name a folder of scenarios, or unset the variable to use the built-in ones",
                ));
            }
            return Ok(Self { root: Some(path) });
        }
        let mut folder = std::env::current_dir().ok();
        while let Some(here) = folder {
            let candidate = here.join("scenarios");
            if candidate.join("profiles").join("time").is_dir() {
                return Ok(Self { root: Some(candidate) });
            }
            folder = here.parent().map(Path::to_owned);
        }
        Ok(Self::embedded())
    }

    /// That folder.
    pub fn folder(path: impl Into<PathBuf>) -> Self {
        Self { root: Some(path.into()) }
    }

    /// The copy inside the program.
    pub fn embedded() -> Self {
        Self { root: None }
    }

    /// Where it is, for messages.
    pub fn place(&self) -> String {
        self.root.as_ref().map_or("the built-in catalogue".to_owned(), |r| r.display().to_string())
    }

    /// A scenario by its name, or by the path of its file (whatever has a `/` or ends in `.yaml` or `.yml`).
    pub fn find(&self, name: &str) -> Result<SourceFile, CatalogueError> {
        let path = Path::new(name);
        let is_path = name.contains(std::path::MAIN_SEPARATOR)
            || path.extension().is_some_and(|e| e.eq_ignore_ascii_case("yaml") || e.eq_ignore_ascii_case("yml"));
        if is_path {
            return Ok(SourceFile::read(path)?);
        }
        let known = self.scenarios();
        if let Some((_, path)) = known.iter().find(|(k, _)| k == name) {
            return Ok(self.source(path)?);
        }
        let known: Vec<String> = known.into_iter().map(|(name, _)| name).collect();
        let near = nearest(name, known.iter().map(String::as_str)).into_iter().map(str::to_owned).collect();
        Err(NotFound { name: name.to_owned(), nearest: near, known, searched: self.place() }.into())
    }

    /// A load plan by its name, or by the path of its file.
    pub fn find_plan(&self, name: &str) -> Result<SourceFile, LoadError> {
        if name.contains(std::path::MAIN_SEPARATOR) || name.ends_with(".yaml") || name.ends_with(".yml") {
            return SourceFile::read(Path::new(name));
        }
        let known = self.names("load/");
        if known.iter().any(|known| known == name) {
            return self.source(&format!("load/{name}.yaml"));
        }
        let help = crate::diagnostic::suggestion(name, known.iter().map(String::as_str));
        Err(LoadError::about_file(name, format!("there is no load plan of that name in {}", self.place()), &help))
    }

    /// The names of all scenarios, sorted. None of them is read.
    pub fn scenario_names(&self) -> Vec<String> {
        self.scenarios().into_iter().map(|(name, _)| name).collect()
    }

    /// All scenarios, by name, those that cannot be read with the reason.
    pub fn list(&self) -> Vec<CatalogueEntry> {
        let all = self.scenarios();
        let twice = |i: usize, name: &String| all.iter().position(|(n, _)| n == name).filter(|first| *first != i);
        let entries = all.iter().enumerate().map(|(i, (name, path))| {
            let mut entry = self.entry(name.clone(), path);
            if let Some(first) = twice(i, name) {
                entry.broken = Some(format!("{} has the same name", all[first].1));
            }
            entry
        });
        entries.collect()
    }

    fn entry(&self, name: String, path: &str) -> CatalogueEntry {
        let source = self.source(path);
        let path = source.as_ref().map_or_else(|e| e.file().to_owned(), |s| s.name.clone());
        match source.and_then(|s| crate::load(&s, self)) {
            Ok(s) => CatalogueEntry {
                broken: (s.name != name)
                    .then(|| format!("its name is `{}`, which is not the name of its file", s.name)),
                name,
                description: s.description,
                tags: s.tags,
                needs: s.needs,
                hosts: s.hosts.len(),
                path,
            },
            Err(error) => {
                let first = error.problems().first();
                let line =
                    first.and_then(|p| error.line_column(p)).map(|(l, _)| format!("line {l}: ")).unwrap_or_default();
                let broken = first.map(|p| format!("{line}{}", p.message));
                CatalogueEntry { name, description: String::new(), tags: vec![], needs: vec![], hosts: 0, path, broken }
            }
        }
    }

    /// Text of a hardware profile.
    pub fn hardware_profile(&self, name: &str) -> Option<String> {
        if !self.hardware_profiles().iter().any(|k| k == name) {
            return None;
        }
        let source = self.source(&format!("profiles/hardware/{name}.yaml")).ok()?;
        String::from_utf8(source.bytes).ok()
    }

    /// Names of the hardware profiles.
    pub fn hardware_profiles(&self) -> Vec<String> {
        self.names("profiles/hardware/")
    }

    /// Names of the time profiles.
    pub fn time_profile_names(&self) -> Vec<String> {
        self.names("profiles/time/")
    }

    /// A time profile, checked: its settings and times are known and can be read.
    pub fn time_profile(&self, name: &str) -> Result<TimeProfile, LoadError> {
        self.read_time_profile(name, true)
    }

    fn read_time_profile(&self, name: &str, may_be_like: bool) -> Result<TimeProfile, LoadError> {
        let known = self.time_profile_names();
        if !known.iter().any(|k| k == name) {
            let help = crate::diagnostic::suggestion(name, known.iter().map(String::as_str));
            return Err(LoadError::about_file(&self.place(), format!("there is no time profile `{name}`"), &help));
        }
        let source = self.source(&format!("profiles/time/{name}.yaml"))?;
        let (mut profile, text) = crate::parse::parse::<TimeProfile>(&source)?;
        let base = profile.like.as_deref().filter(|_| may_be_like).map(|base| self.read_time_profile(base, false));
        if let Some(base) = base.transpose()? {
            profile.put_on(&base);
        }
        let fault = match (profile.settings(), profile.host_timing()) {
            _ if profile.name != name => {
                Some(format!("its name is `{}`, which is not the name of its file", profile.name))
            }
            _ if !may_be_like && profile.like.is_some() => {
                Some("it is `like` another profile, so no other profile can be like it".to_owned())
            }
            (Err(e), _) | (_, Err(e)) => Some(e.to_string()),
            (Ok(_), Ok(_)) => None,
        };
        match fault {
            None => Ok(profile),
            Some(message) => {
                let problem = Problem { message, span: None, label: String::new(), also: vec![], help: None };
                Err(LoadError::new(&source.name, text, vec![problem]))
            }
        }
    }

    /// Scenarios whose failures do not count at `now`; none when the catalogue has no such list.
    ///
    /// # Errors
    /// The list cannot be read, or one of its entries is over or names no scenario.
    pub fn quarantine(&self, now: Timestamp) -> Result<Vec<Quarantined>, LoadError> {
        let there = match &self.root {
            Some(root) => root.join(QUARANTINE).exists(),
            None => EMBEDDED.iter().any(|(path, _)| *path == QUARANTINE),
        };
        if !there {
            return Ok(Vec::new());
        }
        let known: Vec<String> = self.scenarios().into_iter().map(|(name, _)| name).collect();
        quarantine::read(&self.source(QUARANTINE)?, &known, now)
    }

    /// Names of all scenarios with their files (`folder/name.yaml`), by name. Whatever is not below `profiles` is one.
    fn scenarios(&self) -> Vec<(String, String)> {
        let mut files = match &self.root {
            None => EMBEDDED.iter().map(|(path, _)| (*path).to_owned()).collect(),
            Some(root) => {
                let mut files = vec![];
                below(root, "", &mut files);
                files
            }
        };
        let no_scenario = ["profiles/", "load/"];
        files.retain(|path| !no_scenario.iter().any(|folder| path.starts_with(folder)) && path != QUARANTINE);
        let named = |path: String| {
            let name = path.rsplit('/').next().and_then(|file| file.strip_suffix(".yaml"))?.to_owned();
            Some((name, path))
        };
        let mut all: Vec<(String, String)> = files.into_iter().filter_map(named).collect();
        all.sort();
        all
    }

    /// Names of the files in one of the catalogue's folders, without `.yaml`, in order.
    fn names(&self, prefix: &str) -> Vec<String> {
        let mut names: Vec<String> = match &self.root {
            None => EMBEDDED
                .iter()
                .filter_map(|(path, _)| path.strip_prefix(prefix)?.strip_suffix(".yaml"))
                .filter(|n| !n.contains('/'))
                .map(str::to_owned)
                .collect(),
            Some(root) => std::fs::read_dir(root.join(prefix))
                .into_iter()
                .flatten()
                .flatten()
                .filter_map(|e| e.file_name().to_str()?.strip_suffix(".yaml").map(str::to_owned))
                .collect(),
        };
        names.sort();
        names
    }

    /// A file of the catalogue.
    pub(crate) fn source(&self, path: &str) -> Result<SourceFile, LoadError> {
        match &self.root {
            Some(root) => SourceFile::read(&root.join(path)),
            None => match EMBEDDED.iter().find(|(p, _)| *p == path) {
                Some((_, text)) => Ok(SourceFile::new(format!("built-in:{path}"), *text)),
                None => Err(LoadError::about_file(path, "the built-in catalogue has no such file", "see `vlab list`")),
            },
        }
    }
}

/// Every YAML file in a folder and in those below it, as `folder/file.yaml`. Hidden ones are nobody's scenarios.
fn below(root: &Path, folder: &str, files: &mut Vec<String>) {
    for entry in std::fs::read_dir(root.join(folder)).into_iter().flatten().flatten() {
        let Some(name) = entry.file_name().to_str().filter(|n| !n.starts_with('.')).map(str::to_owned) else {
            continue;
        };
        let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => below(root, &path, files),
            _ if path.ends_with(".yaml") => files.push(path),
            _ => {}
        }
    }
}
