//! Links libvirt once more. The build script of `virt-sys` does so too, but where libvirt's development files are missing it says
//! nothing, and cargo does not run it again when they are there: the helper could then not be linked until `cargo clean`.

/// What the helper is linked with.
const LIBRARIES: &[&str] = &["libvirt", "libvirt-qemu"];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for name in LIBRARIES {
        match pkg_config::Config::new().cargo_metadata(false).probe(name) {
            Ok(library) => {
                for folder in &library.link_paths {
                    println!("cargo:rustc-link-search=native={}", folder.display());
                }
                for linked in &library.libs {
                    println!("cargo:rustc-link-arg=-l{linked}");
                }
            }
            Err(_) => {
                println!(
                    "cargo:warning=the development files of {name} are missing: the program can be checked and not linked; `cargo xtask \
                     setup` installs them (Debian: libvirt-dev)"
                );
                // What does not exist has always changed: the next build looks again.
                println!("cargo:rerun-if-changed=looks-again");
            }
        }
    }
}
