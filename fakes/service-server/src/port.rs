//! Who holds a TCP port, as far as `/proc` tells.

use std::fs;

use crate::Holder;

/// The process that listens on that port. `None`: it cannot be found, for example because it belongs to another user.
pub(crate) fn holder(port: u16) -> Option<Holder> {
    let inodes: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .flat_map(|table| listening_inodes(&table, port))
        .collect();
    if inodes.is_empty() {
        return None;
    }
    let links: Vec<String> = inodes.iter().map(|i| format!("socket:[{i}]")).collect();
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
        let Ok(files) = fs::read_dir(entry.path().join("fd")) else { continue };
        let holds = files
            .flatten()
            .filter_map(|f| fs::read_link(f.path()).ok())
            .any(|target| target.to_str().is_some_and(|t| links.iter().any(|l| l == t)));
        if holds {
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            return Some(Holder { pid, name: name.trim().to_owned() });
        }
    }
    None
}

/// Inodes of the sockets that listen on `port` in a table of the form of `/proc/net/tcp`: second column the local address, fourth
/// the state (0A: listening), tenth the inode.
fn listening_inodes(table: &str, port: u16) -> Vec<String> {
    table
        .lines()
        .skip(1)
        .filter_map(|line| {
            let columns: Vec<&str> = line.split_whitespace().collect();
            let local = columns.get(1)?.rsplit_once(':')?.1;
            let found = u16::from_str_radix(local, 16).ok()? == port && *columns.get(3)? == "0A";
            found.then(|| columns.get(9).map(|i| (*i).to_owned())).flatten()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listening_sockets_of_the_port_count() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            \x20  0: 0100007F:1F9A 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 111 1 0\n\
            \x20  1: 0100007F:1F9A 0100007F:A000 01 00000000:00000000 00:00000000 00000000  1000        0 222 1 0\n\
            \x20  2: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 333 1 0\n\
            \x20  3: short\n";
        assert_eq!(listening_inodes(table, 8090), ["111"]);
        assert_eq!(listening_inodes(table, 22), ["333"]);
        assert!(listening_inodes(table, 80).is_empty());
    }

    #[test]
    fn our_own_port_is_ours() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let found = holder(listener.local_addr().unwrap().port()).unwrap();
        assert_eq!(found.pid, std::process::id());
    }
}
