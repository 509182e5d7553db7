//! Faults of the service, of its database, and of the way between it and those who ask it.

use super::params::{HostName, OperationId, Param, RequestMethod};
use super::{family, selection};
use crate::time::Span;
use crate::words::{LockedTable, LostAt, RequestSide, WhichReplica};

selection! {
    /// Which requests a fault of the gateway is about. All that is said must hold.
    Requests;
    /// only requests of this operation
    operation: Option<OperationId> = Param::needed().optional(),
    /// only requests with this in their path
    path: Option<String> = Param::needed().optional(),
    /// only requests with this method
    method: Option<RequestMethod> = Param::needed().optional(),
    /// only requests with this host's id in their path
    host: Option<HostName> = Param::needed().optional(),
    /// only requests from hosts, from the user, or from both
    from: RequestSide = Param::needed().or("hosts"),
    /// this share of the requests, chosen by the seed
    percent: u32 = Param::number(1, 100).or("100"),
    /// no more requests than this
    at_most: Option<u64> = Param::number(1, 1_000_000_000).optional(),
}

family! {
    /// What goes wrong with the service, its database, or the way there.
    ServiceInjection in Service {
        /// the service is asked to stop (SIGTERM) and is started again
        ServiceRestart = "service-restart" hits [Service], Moment, Any {
            /// how long it stays down before it is started again
            down: Span = Param::needed().or("5s"),
            /// of a service with `replicas`: the one that decides, one that only answers, or all
            replica: WhichReplica = Param::needed().or("leader"),
        };
        /// the service is killed (SIGKILL) and started again
        ServiceKill = "service-kill" hits [Service], Moment, Any {
            /// how long it stays down before it is started again
            down: Span = Param::needed().or("5s"),
            /// of a service with `replicas`: the one that decides, one that only answers, or all
            replica: WhichReplica = Param::needed().or("leader"),
        };
        /// the service is suspended (SIGSTOP): requests wait
        ServicePause = "service-pause" hits [Service], Time, Any {
            /// of a service with `replicas`: the one that decides, one that only answers, or all
            replica: WhichReplica = Param::needed().or("leader"),
        };
        /// PostgreSQL is stopped (open transactions are rolled back) and started again
        PostgresRestart = "postgres-restart" hits [Postgres], Moment, Any {
            /// how long it stays down before it is started again
            down: Span = Param::needed().or("5s"),
        };
        /// PostgreSQL and all its backends are killed (SIGKILL), and it is started again
        PostgresKill = "postgres-kill" hits [Postgres], Moment, Any {
            /// how long it stays down before it is started again
            down: Span = Param::needed().or("5s"),
        };
        /// PostgreSQL does not answer: open connections hang, and new ones cannot be made
        PostgresUnreachable = "postgres-unreachable" hits [Postgres], Time, Any;
        /// somebody else holds a lock on one of the service's tables: who writes to it waits until the fault ends, who reads does not
        PostgresLocked = "postgres-locked" hits [Postgres], Time, Any {
            /// the table
            table: LockedTable = Param::needed().or("hosts"),
        };
        /// each transaction that writes to the service's tables waits before its first write
        SlowQueries = "slow-queries" hits [Postgres], Time, Any {
            /// how many milliseconds it waits, by the wall clock
            ms: u32 = Param::number(1, 600_000).or("200"),
        };
        /// requests are answered with an error, and the service never sees them
        HttpError = "http-error" hits [Gateway], Time, Any {
            /// the status that is answered instead of the service
            status: u16 = Param::number(400, 599).or("503"),
            /// seconds for the header `Retry-After`
            retry_after: Option<u64> = Param::number(0, 86_400).optional(),
            ..requests: Requests
        };
        /// answers of the service come late
        SlowAnswer = "slow-answer" hits [Gateway], Time, Any {
            /// how much later
            by: Span = Param::needed(),
            ..requests: Requests
        };
        /// the connection is closed without an answer
        DroppedConnection = "dropped-connection" hits [Gateway], Time, Any {
            /// `request`: the service never sees it; `answer`: the service does what was asked, and its answer is lost
            lost: LostAt = Param::needed().or("request"),
            ..requests: Requests
        };
        /// the connection is reset (TCP RST) without an answer
        ResetConnection = "reset-connection" hits [Gateway], Time, Any {
            /// `request`: the service never sees it; `answer`: the service does what was asked, and its answer is lost
            lost: LostAt = Param::needed().or("request"),
            ..requests: Requests
        };
        /// a kept-alive connection is closed just as its next request arrives; a request on a new connection gets through
        StaleKeepAlive = "stale-keep-alive" hits [Gateway], Time, Any {
            ..requests: Requests
        };
    }
}
