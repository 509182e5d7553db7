//! Disks: which can be installed to, which of them is chosen, which are wiped first.

use vlab_api::types::Disk;

/// What the service calls the disk by: its id, else what names it best.
pub fn identifier(disk: &Disk) -> &str {
    [&disk.id, &disk.by_id, &disk.by_path, &disk.path].into_iter().flatten().find(|t| !t.is_empty()).map_or("", |t| t)
}
