//! Faults of the inside of a cluster: bootkube, etcd, operators, the controller, and hosts on their way into it.

use vlab_api::types::FinalizingStage;

use super::family;
use super::params::Param;

family! {
    /// What goes wrong inside a cluster.
    ControlPlaneInjection in ControlPlane {
        /// nothing can reach the cluster's API or its machine-config server
        ApiUnreachable = "api-unreachable" hits [Cluster], Time, Any;
        /// the machine-config server does not answer: nodes wait for their ignition
        IgnitionUnreachable = "ignition-unreachable" hits [Cluster], Time, Any;
        /// the installed system boots and never asks to join the cluster
        NeverJoins = "never-joins" hits [Hosts], Time, Any;
        /// the certificate that the host needs to become a node is not approved
        CsrNotApproved = "csr-not-approved" hits [Hosts], Time, Any;
        /// bootkube fails and is started again, as long as the fault lasts
        BootkubeFails = "bootkube-fails" hits [Cluster], Time, Any;
        /// bootkube never finishes
        BootkubeHangs = "bootkube-hangs" hits [Cluster], Time, Any;
        /// etcd does not leave the bootstrap host: a member fails, and there is no quorum without it
        EtcdStuck = "etcd-stuck" hits [Cluster], Time, Any;
        /// etcd has left the bootstrap host and too few of its members are up: no API as long as the fault lasts
        QuorumLost = "quorum-lost" hits [Cluster], Time, Any;
        /// an operator does not become available
        OperatorDegraded = "operator-degraded" hits [Cluster], Time, Any {
            /// which one
            operator: String = Param::needed().or("console"),
        };
        /// the controller hangs while the cluster finalizes
        FinalizingStuck = "finalizing-stuck" hits [Cluster], Time, Simulated {
            /// the stage that it does not leave
            stage: FinalizingStage = Param::needed(),
        };
    }
}
