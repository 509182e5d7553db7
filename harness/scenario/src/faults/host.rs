//! Faults of a host: the machine, its agent, its installer.

use vlab_api::types::HostStage;

use super::family;
use super::params::{HostName, Param};
use crate::time::Span;
use crate::words::{InventoryDefect, Skew};

family! {
    /// What goes wrong with each host that is hit.
    HostInjection in Host {
        /// the power is cut; it comes back when the fault ends, otherwise never
        Crash = "crash" hits [Hosts], Time, Any;
        /// the machine restarts: from its disk if a system is on it, otherwise from the discovery image
        Reboot = "reboot" hits [Hosts], Moment, Any;
        /// the agent exits and is started again; a running installer continues
        AgentRestart = "agent-restart" hits [Hosts], Moment, Any;
        /// the agent asks for instructions less often than it was told to
        SlowPolls = "slow-polls" hits [Hosts], Time, Simulated {
            /// the shortest time between two polls
            every: Span = Param::needed(),
        };
        /// the agent hangs and asks for nothing; a running installer continues
        SilentAgent = "silent-agent" hits [Hosts], Time, Any;
        /// the host and the service cannot reach each other; its neighbours still reach it
        Disconnect = "disconnect" hits [Hosts], Time, Any;
        /// the machine has the id of another one, as boards that share a UUID do
        DuplicateId = "duplicate-id" hits [Hosts], Time, Simulated {
            /// the host whose id it has
            of: HostName = Param::needed(),
        };
        /// the host's clock is wrong
        ClockSkew = "clock-skew" hits [Hosts], Time, Any {
            /// by how many seconds, under every time profile
            seconds: u32 = Param::number(1, 10_000_000),
            /// which way
            direction: Skew = Param::needed().or("ahead"),
        };
        /// no NTP source answers the host
        NtpUnreachable = "ntp-unreachable" hits [Hosts], Time, Any;
        /// the host finds fewer processor cores than the machine has
        FewCores = "few-cores" hits [Hosts], Time, Simulated {
            /// number of cores
            cores: u32 = Param::number(1, 4096).or("2"),
        };
        /// the host finds less memory than the machine has
        LittleMemory = "little-memory" hits [Hosts], Time, Simulated {
            /// memory in MiB
            mib: u32 = Param::number(1, 67_108_864).or("4096"),
        };
        /// every disk is smaller than it was
        SmallDisks = "small-disks" hits [Hosts], Time, Simulated {
            /// size of every disk in GB (10^9 bytes)
            gb: u32 = Param::number(1, 1_048_576).or("20"),
        };
        /// the disk speed check finds a slow disk
        SlowDisk = "slow-disk" hits [Hosts], Time, Any {
            /// how long a synchronous write takes, in milliseconds
            fsync_ms: u32 = Param::number(1, 100_000).or("40"),
        };
        /// the disk fails while the image is written
        DiskFails = "disk-fails" hits [Hosts], Time, Any {
            /// how much of the image is written by then; 0: the disk already fails in the speed check
            percent: u32 = Param::number(0, 100).or("50"),
        };
        /// the host cannot pull container images, or fetch what it boots when it is given back
        ImageUnavailable = "image-unavailable" hits [Hosts], Time, Simulated {
            /// part of the images' names or addresses; without it, every image
            image: String = Param::needed().or("/"),
        };
        /// the host has an invalid name, or the name of another host
        WrongHostname = "wrong-hostname" hits [Hosts], Time, Any {
            /// what it calls itself: `localhost`, another host's name, nonsense
            name: String = Param::needed(),
        };
        /// after the installation the discovery image boots again; when the fault ends, somebody corrects the boot order
        WrongBootOrder = "wrong-boot-order" hits [Hosts], Time, Simulated;
        /// the installer hangs in a stage
        StuckStage = "stuck-stage" hits [Hosts], Time, Any {
            /// the stage that it does not leave
            stage: HostStage = Param::needed(),
        };
        /// the installer fails in a stage
        InstallerFails = "installer-fails" hits [Hosts], Time, Any {
            /// the stage in which it fails
            stage: HostStage = Param::needed(),
            /// what it tells the service
            text: String = Param::needed().or("the installer failed, as the scenario says"),
        };
        /// the host announces its logs and never sends them
        LogsLost = "logs-lost" hits [Hosts], Time, Simulated;
        /// the inventory that the host sends is not JSON, is cut off, or is huge
        BadInventory = "bad-inventory" hits [Hosts], Time, Simulated {
            /// what is wrong with it
            form: InventoryDefect = Param::needed(),
            /// size of a huge one, in MiB
            mib: u32 = Param::number(1, 64).or("10"),
        };
        /// the discovery medium is removed; a virtual machine only notices if it booted a full ISO
        MediaLost = "media-lost" hits [Hosts], Time, Any;
    }
}
