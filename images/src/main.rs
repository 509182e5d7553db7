//! `cargo xtask images`: builds the images of the lab. Container images are loaded into the container engine; media of the lab
//! OS are files.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use vlab_container_engine::Engine;
use vlab_images::ImageError;
use vlab_images::cache::Cache;
use vlab_images::manifest::{Manifest, with_lock};
use vlab_images::os::{ARTEFACTS, Builder, Made, named_installer};
use vlab_images::packages;
use vlab_images::programs::workspace;
use vlab_images::recipes::{Built, Kitchen, RECIPES, Recipe};

const USAGE: &str = "\
Builds the images of the lab: container images, which it loads into the container engine, and the media of virtual machines.

Usage: cargo xtask images [OPTIONS] [IMAGE]...

  IMAGE                    one of those that --list names; `lab`: all media; none: all (with --load: all container images)

Options:
  --list                   say which images there are
  --no-load                build only: no engine is needed
  --load                   loading is a must: no engine is an error
  --service-program FILE   this vlab-service instead of a static one built from the sources
  --node-program FILE      this vlab-node instead of a static one built from the sources
  --overlay FOLDER         put its files over the lab OS (may be given several times)
  --coreos-installer FILE  this one instead of one built from its crate (also: variable VLAB_COREOS_INSTALLER)
  --update                 look up today's versions of all packages and write them into images/images.yaml
  --json                   what was built, as JSON
  --help
";

#[derive(Default)]
struct Args {
    images: Vec<String>,
    list: bool,
    no_load: bool,
    load: bool,
    update: bool,
    json: bool,
    service_program: Option<PathBuf>,
    node_program: Option<PathBuf>,
    overlays: Vec<PathBuf>,
    coreos_installer: Option<PathBuf>,
}

fn parse(words: impl Iterator<Item = String>) -> Result<Option<Args>, String> {
    let mut args = Args::default();
    let mut words = words;
    while let Some(word) = words.next() {
        match word.as_str() {
            "--help" | "-h" => return Ok(None),
            "--list" => args.list = true,
            "--no-load" => args.no_load = true,
            "--load" => args.load = true,
            "--update" => args.update = true,
            "--json" => args.json = true,
            "--service-program" => {
                args.service_program = Some(words.next().ok_or("--service-program needs a file")?.into());
            }
            "--node-program" => args.node_program = Some(words.next().ok_or("--node-program needs a file")?.into()),
            "--overlay" => args.overlays.push(words.next().ok_or("--overlay needs a folder")?.into()),
            "--coreos-installer" => {
                args.coreos_installer = Some(words.next().ok_or("--coreos-installer needs a file")?.into());
            }
            "lab" => args.images.extend(ARTEFACTS.iter().map(|artefact| artefact.name.to_owned())),
            other if other.starts_with('-') => return Err(format!("unknown option {other}")),
            name if names().any(|other| other == name) => args.images.push(word),
            name => {
                let all: Vec<&str> = names().collect();
                return Err(format!("there is no image {name}; there are {}", all.join(", ")));
            }
        }
    }
    if args.load && args.no_load {
        return Err("--load and --no-load cannot be used together".to_owned());
    }
    Ok(Some(args))
}

/// Everything that can be built.
fn names() -> impl Iterator<Item = &'static str> {
    RECIPES.iter().map(|recipe| recipe.name).chain(ARTEFACTS.iter().map(|artefact| artefact.name))
}

fn main() -> ExitCode {
    let args = match parse(std::env::args().skip(1)) {
        Ok(Some(args)) => args,
        Ok(None) => {
            print(USAGE);
            return ExitCode::SUCCESS;
        }
        Err(problem) => {
            eprintln!("images: {problem}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match work(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("images: {problem}");
            ExitCode::from(3)
        }
    }
}

fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn work(args: &Args) -> Result<(), String> {
    let cache = Cache::of_this_user();
    if args.update {
        return update(&cache).map_err(|error| error.to_string());
    }
    if args.list {
        for recipe in RECIPES {
            print(&format!("{:16} {}\n", recipe.name, recipe.what));
        }
        for artefact in ARTEFACTS {
            print(&format!("{:16} {}\n", artefact.name, artefact.what));
        }
        return Ok(());
    }
    let asked = |name: &str| args.images.is_empty() || args.images.iter().any(|asked| asked == name);
    let named = |name: &str| args.images.iter().any(|asked| asked == name);
    let wanted =
        RECIPES.iter().filter(|recipe| if recipe.on_request { named(recipe.name) } else { asked(recipe.name) });
    let wanted: Vec<&Recipe> = wanted.collect();
    // The engine first: that it is missing should not be told after minutes of building.
    let engine = match (args.no_load || wanted.is_empty(), wanted.first().map(|_| vlab_container_engine::find())) {
        (true, _) | (_, None) => None,
        (false, Some(Ok(engine))) => Some(engine),
        (false, Some(Err(none))) if args.load => return Err(none.to_string()),
        (false, Some(Err(none))) => {
            eprintln!("images: only built, not loaded: {none}");
            None
        }
    };
    let manifest = Manifest::built_in().map_err(|error| error.to_string())?;
    let kitchen = Kitchen {
        cache: &cache,
        manifest: &manifest,
        workspace: workspace(),
        service_program: args.service_program.clone(),
    };
    let mut all = Vec::new();
    for recipe in wanted {
        let built = recipe.build(&kitchen).map_err(|error| format!("{}: {error}", recipe.name))?;
        let loaded = engine.as_ref().map(|engine| load(engine, &built)).transpose()?;
        if args.json {
            all.push(serde_json::json!({
                "name": built.name, "id": built.id, "content": built.content, "sha256": built.sha256,
                "size": built.size, "archive": built.archive, "cached": built.cached,
                "took_ms": u64::try_from(built.took.as_millis()).unwrap_or(u64::MAX), "loaded": loaded,
            }));
        } else {
            print(&format!(
                "{}: {:.1} MB, {} in {:.1} s{}\n  id {}\n  {}\n",
                built.name,
                built.size as f64 / 1e6,
                if built.cached { "nothing to build, looked" } else { "built" },
                built.took.as_secs_f64(),
                match loaded {
                    Some(true) => ", loaded",
                    Some(false) => ", was loaded already",
                    None => "",
                },
                built.id,
                built.archive.display(),
            ));
        }
    }
    let builder = Builder {
        cache: &cache,
        manifest: &manifest,
        node: args.node_program.clone(),
        overlays: args.overlays.clone(),
        coreos_installer: args.coreos_installer.clone().or_else(named_installer),
        say: &|what| eprintln!("images: {what}"),
    };
    let media = |name: &str| asked(name) && !(args.load && args.images.is_empty());
    for artefact in ARTEFACTS.iter().filter(|artefact| media(artefact.name)) {
        let made = builder.make(artefact.name).map_err(|error| format!("{}: {error}", artefact.name))?;
        if args.json {
            all.push(made_as_json(&made));
        } else {
            print(&made_as_text(&made));
        }
    }
    if args.json {
        print(&format!("{}\n", serde_json::Value::from(all)));
    }
    Ok(())
}

fn made_as_json(made: &Made) -> serde_json::Value {
    serde_json::json!({
        "name": made.name, "content": made.content, "sha256": made.sha256, "size": made.size, "path": made.path,
        "cached": made.cached, "took_ms": u64::try_from(made.took.as_millis()).unwrap_or(u64::MAX),
    })
}

fn made_as_text(made: &Made) -> String {
    format!(
        "{}: {:.1} MB, {} in {:.1} s\n  sha256 {}\n  {}\n",
        made.name,
        made.size as f64 / 1e6,
        if made.cached { "nothing to build, looked" } else { "built" },
        made.took.as_secs_f64(),
        made.sha256,
        made.path.display(),
    )
}

/// Loads an image when the engine has not this very one. `false`: it had.
fn load(engine: &Engine, built: &Built) -> Result<bool, String> {
    let there = engine.image(&built.name).map_err(|error| error.to_string())?;
    if there.and_then(|image| image.content).as_deref() == Some(&built.content) {
        return Ok(false);
    }
    engine.load(&built.archive).map_err(|error| error.to_string())?;
    // Not what it says but what is there now.
    match engine.image(&built.name).map_err(|error| error.to_string())?.and_then(|image| image.content) {
        Some(content) if content == built.content => Ok(true),
        _ => Err(format!("{}: {engine} took the archive and has another image under that name", built.name)),
    }
}

fn update(cache: &Cache) -> Result<(), ImageError> {
    let root =
        workspace().ok_or_else(|| ImageError::Manifest("the sources of this project are not there".to_owned()))?;
    let path = root.join("images/images.yaml");
    let text = std::fs::read_to_string(&path).map_err(|error| ImageError::Io { path: path.clone(), error })?;
    let manifest = Manifest::read(&text)?;
    packages::update(cache, &manifest.debian)?;
    let mut locked = std::collections::BTreeMap::new();
    for (name, set) in &manifest.sets {
        let found = packages::resolve(cache, &manifest.debian, set)?;
        eprintln!("images: {name}: {} packages", found.len());
        locked.insert(name.clone(), found);
    }
    let changed = locked != manifest.locked;
    if !changed {
        eprintln!("images: nothing is newer");
        return Ok(());
    }
    let now = std::process::Command::new("date").args(["-u", "+%Y%m%dT%H%M%SZ"]).output();
    let now = now.map(|out| String::from_utf8_lossy(&out.stdout).trim().to_owned()).unwrap_or_default();
    // Only whole files: this program has the old one built in, the next build takes the new one.
    std::fs::write(&path, with_lock(&text, &now, &locked)?).map_err(|error| ImageError::Io { path, error })?;
    Ok(())
}
