//! Links lead somewhere.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use crate::markdown::Page;
use crate::place::{pages, root};

/// What is wrong with the links of these pages. `exists` says whether a path below the root is there.
fn broken(pages: &[Page], exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let anchors: BTreeMap<&Path, &[String]> = pages.iter().map(|p| (p.path.as_path(), &*p.anchors)).collect();
    let mut broken = Vec::new();
    for page in pages {
        for (line, link) in &page.links {
            if link.starts_with("https://") || link.starts_with("http://") {
                continue;
            }
            let (path, anchor) =
                link.split_once('#').map_or((link.as_str(), None), |(path, anchor)| (path, Some(anchor)));
            let target = match path {
                "" => Some(page.path.clone()),
                path => below(page.path.parent().unwrap_or(Path::new("")), path),
            };
            let found = target.as_ref().is_some_and(|target| exists(target));
            let right = found
                && match (anchor, anchors.get(target.as_deref().unwrap_or(Path::new("")))) {
                    (None, _) => true,
                    (Some(anchor), Some(known)) => known.iter().any(|known| known == anchor),
                    (Some(_), None) => false,
                };
            if !right {
                broken.push(format!("{}:{line}: {link}", page.path.display()));
            }
        }
    }
    broken
}

/// A path as seen from a folder, without `..`; none when it leaves the repository.
fn below(folder: &Path, path: &str) -> Option<PathBuf> {
    let mut all = PathBuf::new();
    for part in folder.join(path).components() {
        match part {
            Component::Normal(name) => all.push(name),
            Component::CurDir => {}
            Component::ParentDir if all.pop() => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(all)
}

#[test]
fn every_link_leads_somewhere() {
    let broken = broken(&pages(), |path| root().join(path).exists());
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

/// Who reads the index finds every page.
#[test]
fn the_index_names_every_page() {
    let pages = pages();
    let docs = Path::new("docs");
    let index = pages.iter().find(|page| page.path == docs.join("README.md")).unwrap();
    let named: Vec<PathBuf> = index.links.iter().filter_map(|(_, link)| below(docs, link)).collect();
    let missing: Vec<&PathBuf> = pages
        .iter()
        .map(|p| &p.path)
        .filter(|p| p.starts_with(docs) && **p != index.path && !named.contains(p))
        .collect();
    assert!(missing.is_empty(), "docs/README.md does not name {missing:?}");
}

/// It is for people who have never seen the project: what is longer belongs into the manual.
#[test]
fn the_readme_is_short() {
    let lines = std::fs::read_to_string(root().join("README.md")).unwrap().lines().count();
    assert!(lines <= 160, "README.md has {lines} lines");
}

#[test]
fn broken_links_are_noticed() {
    let read = |path: &str, text: &str| Page::read(Path::new(path), text).unwrap();
    let exists = |path: &Path| ["README.md", "docs", "docs/a.md", "src/x.rs"].iter().any(|p| path == Path::new(p));
    let good = "[a](docs/a.md#title-one) [b](#here) [c](./docs) [d](https://example.com/x) [e](src/x.rs)\n# Here\n";
    let bad = "# Title one\n[a](../README.md#there) [b](b.md) [c](a.md) [d](../../x) [e](../src/x.rs#l1) [f](#Title-one) [g](/etc)\n";
    let found = broken(&[read("README.md", good), read("docs/a.md", bad)], exists);
    let expected = ["../README.md#there", "b.md", "../../x", "../src/x.rs#l1", "#Title-one", "/etc"];
    assert_eq!(found, expected.map(|link| format!("docs/a.md:2: {link}")));
}
