//! The objects of the `/api/assisted-install/v2` API, one Rust type for each definition of its schema that a bare-metal
//! lab meets. Names and optionality are the schema's (the test `swagger` compares them with a table of its facts).
//!
//! Members that the service stores as JSON *text* (`inventory`, `validations_info`, ...) are `String` here too: they are
//! text on the wire. A member that is absent and one that is `null` are both `None`.

use std::collections::BTreeMap;

use serde_json::Value;
use uuid::Uuid;

pub use crate::spec::Text;
use crate::spec::{wire, wire_enum};
use crate::time::Timestamp;

wire_enum! {
    /// Status of a host, bound or not.
    HostStatus = "host.status" {
        Discovering = "discovering",
        Known = "known",
        Disconnected = "disconnected",
        Insufficient = "insufficient",
        Disabled = "disabled",
        PreparingForInstallation = "preparing-for-installation",
        PreparingFailed = "preparing-failed",
        PreparingSuccessful = "preparing-successful",
        PendingForInput = "pending-for-input",
        Installing = "installing",
        InstallingInProgress = "installing-in-progress",
        InstallingPendingUserAction = "installing-pending-user-action",
        ResettingPendingUserAction = "resetting-pending-user-action",
        Installed = "installed",
        Error = "error",
        Resetting = "resetting",
        AddedToExistingCluster = "added-to-existing-cluster",
        Cancelled = "cancelled",
        Binding = "binding",
        Unbinding = "unbinding",
        UnbindingPendingUserAction = "unbinding-pending-user-action",
        KnownUnbound = "known-unbound",
        DisconnectedUnbound = "disconnected-unbound",
        InsufficientUnbound = "insufficient-unbound",
        DisabledUnbound = "disabled-unbound",
        DiscoveringUnbound = "discovering-unbound",
        Reclaiming = "reclaiming",
        ReclaimingRebooting = "reclaiming-rebooting",
    }
}

wire_enum! {
    /// Status of a cluster.
    ClusterStatus = "cluster.status" {
        Insufficient = "insufficient",
        Ready = "ready",
        Error = "error",
        PreparingForInstallation = "preparing-for-installation",
        PendingForInput = "pending-for-input",
        Installing = "installing",
        Finalizing = "finalizing",
        Installed = "installed",
        AddingHosts = "adding-hosts",
        Cancelled = "cancelled",
        InstallingPendingUserAction = "installing-pending-user-action",
        Unmonitored = "unmonitored",
    }
}

wire_enum! {
    /// Severity of an event.
    Severity = "event.severity" {
        Info = "info",
        Warning = "warning",
        Error = "error",
        Critical = "critical",
    }
}

wire_enum! {
    /// What the service can ask an agent to do. Instructions carry it as text, because an agent must answer types that it does not know.
    StepType = "step-type" {
        ConnectivityCheck = "connectivity-check",
        Execute = "execute",
        Inventory = "inventory",
        Install = "install",
        FreeNetworkAddresses = "free-network-addresses",
        DhcpLeaseAllocate = "dhcp-lease-allocate",
        ApiVipConnectivityCheck = "api-vip-connectivity-check",
        TangConnectivityCheck = "tang-connectivity-check",
        NtpSynchronizer = "ntp-synchronizer",
        InstallationDiskSpeedCheck = "installation-disk-speed-check",
        ContainerImageAvailability = "container-image-availability",
        DomainResolution = "domain-resolution",
        StopInstallation = "stop-installation",
        LogsGather = "logs-gather",
        NextStepRunner = "next-step-runner",
        UpgradeAgent = "upgrade-agent",
        DownloadBootArtifacts = "download-boot-artifacts",
        RebootForReclaim = "reboot-for-reclaim",
        VerifyVips = "verify-vips",
    }
}

wire_enum! {
    /// Names of host validations.
    HostValidationId = "host-validation-id" {
        Connected = "connected",
        MediaConnected = "media-connected",
        HasInventory = "has-inventory",
        InventoryNotPartiallyTruncated = "inventory-not-partially-truncated",
        InventoryNotFullyTruncated = "inventory-not-fully-truncated",
        HasMinCpuCores = "has-min-cpu-cores",
        HasMinValidDisks = "has-min-valid-disks",
        HasMinMemory = "has-min-memory",
        MachineCidrDefined = "machine-cidr-defined",
        HasCpuCoresForRole = "has-cpu-cores-for-role",
        HasMemoryForRole = "has-memory-for-role",
        HostnameUnique = "hostname-unique",
        HostnameValid = "hostname-valid",
        BelongsToMachineCidr = "belongs-to-machine-cidr",
        IgnitionDownloadable = "ignition-downloadable",
        BelongsToMajorityGroup = "belongs-to-majority-group",
        ValidPlatformNetworkSettings = "valid-platform-network-settings",
        NtpSynced = "ntp-synced",
        TimeSyncedBetweenHostAndService = "time-synced-between-host-and-service",
        ContainerImagesAvailable = "container-images-available",
        LsoRequirementsSatisfied = "lso-requirements-satisfied",
        OcsRequirementsSatisfied = "ocs-requirements-satisfied",
        OdfRequirementsSatisfied = "odf-requirements-satisfied",
        LvmRequirementsSatisfied = "lvm-requirements-satisfied",
        MceRequirementsSatisfied = "mce-requirements-satisfied",
        MtvRequirementsSatisfied = "mtv-requirements-satisfied",
        OscRequirementsSatisfied = "osc-requirements-satisfied",
        SufficientInstallationDiskSpeed = "sufficient-installation-disk-speed",
        CnvRequirementsSatisfied = "cnv-requirements-satisfied",
        SufficientNetworkLatencyRequirementForRole = "sufficient-network-latency-requirement-for-role",
        SufficientPacketLossRequirementForRole = "sufficient-packet-loss-requirement-for-role",
        HasDefaultRoute = "has-default-route",
        ApiDomainNameResolvedCorrectly = "api-domain-name-resolved-correctly",
        ApiIntDomainNameResolvedCorrectly = "api-int-domain-name-resolved-correctly",
        AppsDomainNameResolvedCorrectly = "apps-domain-name-resolved-correctly",
        ReleaseDomainNameResolvedCorrectly = "release-domain-name-resolved-correctly",
        CompatibleWithClusterPlatform = "compatible-with-cluster-platform",
        DnsWildcardNotConfigured = "dns-wildcard-not-configured",
        DiskEncryptionRequirementsSatisfied = "disk-encryption-requirements-satisfied",
        NonOverlappingSubnets = "non-overlapping-subnets",
        VsphereDiskUuidEnabled = "vsphere-disk-uuid-enabled",
        CompatibleAgent = "compatible-agent",
        NoSkipInstallationDisk = "no-skip-installation-disk",
        NoSkipMissingDisk = "no-skip-missing-disk",
        NoIpCollisionsInNetwork = "no-ip-collisions-in-network",
        NoIscsiNicBelongsToMachineCidr = "no-iscsi-nic-belongs-to-machine-cidr",
        NodeFeatureDiscoveryRequirementsSatisfied = "node-feature-discovery-requirements-satisfied",
        NvidiaGpuRequirementsSatisfied = "nvidia-gpu-requirements-satisfied",
        PipelinesRequirementsSatisfied = "pipelines-requirements-satisfied",
        ServicemeshRequirementsSatisfied = "servicemesh-requirements-satisfied",
        ServerlessRequirementsSatisfied = "serverless-requirements-satisfied",
        OpenshiftAiRequirementsSatisfied = "openshift-ai-requirements-satisfied",
        AuthorinoRequirementsSatisfied = "authorino-requirements-satisfied",
        MtuValid = "mtu-valid",
        NmstateRequirementsSatisfied = "nmstate-requirements-satisfied",
        AmdGpuRequirementsSatisfied = "amd-gpu-requirements-satisfied",
        KmmRequirementsSatisfied = "kmm-requirements-satisfied",
        NodeHealthcheckRequirementsSatisfied = "node-healthcheck-requirements-satisfied",
        SelfNodeRemediationRequirementsSatisfied = "self-node-remediation-requirements-satisfied",
        FenceAgentsRemediationRequirementsSatisfied = "fence-agents-remediation-requirements-satisfied",
        NodeMaintenanceRequirementsSatisfied = "node-maintenance-requirements-satisfied",
        KubeDeschedulerRequirementsSatisfied = "kube-descheduler-requirements-satisfied",
        ClusterObservabilityRequirementsSatisfied = "cluster-observability-requirements-satisfied",
        NumaResourcesRequirementsSatisfied = "numa-resources-requirements-satisfied",
        OadpRequirementsSatisfied = "oadp-requirements-satisfied",
        MetallbRequirementsSatisfied = "metallb-requirements-satisfied",
        LokiRequirementsSatisfied = "loki-requirements-satisfied",
        OpenshiftLoggingRequirementsSatisfied = "openshift-logging-requirements-satisfied",
    }
}

wire_enum! {
    /// Names of cluster validations.
    ClusterValidationId = "cluster-validation-id" {
        MachineCidrDefined = "machine-cidr-defined",
        ClusterCidrDefined = "cluster-cidr-defined",
        ServiceCidrDefined = "service-cidr-defined",
        NoCidrsOverlapping = "no-cidrs-overlapping",
        NetworksSameAddressFamilies = "networks-same-address-families",
        NetworkPrefixValid = "network-prefix-valid",
        MachineCidrEqualsToCalculatedCidr = "machine-cidr-equals-to-calculated-cidr",
        ApiVipsDefined = "api-vips-defined",
        ApiVipsValid = "api-vips-valid",
        IngressVipsDefined = "ingress-vips-defined",
        IngressVipsValid = "ingress-vips-valid",
        AllHostsAreReadyToInstall = "all-hosts-are-ready-to-install",
        SufficientMastersCount = "sufficient-masters-count",
        DnsDomainDefined = "dns-domain-defined",
        PullSecretSet = "pull-secret-set",
        NtpServerConfigured = "ntp-server-configured",
        LsoRequirementsSatisfied = "lso-requirements-satisfied",
        OcsRequirementsSatisfied = "ocs-requirements-satisfied",
        OdfRequirementsSatisfied = "odf-requirements-satisfied",
        CnvRequirementsSatisfied = "cnv-requirements-satisfied",
        LvmRequirementsSatisfied = "lvm-requirements-satisfied",
        MceRequirementsSatisfied = "mce-requirements-satisfied",
        MtvRequirementsSatisfied = "mtv-requirements-satisfied",
        OscRequirementsSatisfied = "osc-requirements-satisfied",
        NetworkTypeValid = "network-type-valid",
        CustomManifestsRequirementsSatisfied = "custom-manifests-requirements-satisfied",
        PlatformRequirementsSatisfied = "platform-requirements-satisfied",
        NodeFeatureDiscoveryRequirementsSatisfied = "node-feature-discovery-requirements-satisfied",
        NvidiaGpuRequirementsSatisfied = "nvidia-gpu-requirements-satisfied",
        PipelinesRequirementsSatisfied = "pipelines-requirements-satisfied",
        ServicemeshRequirementsSatisfied = "servicemesh-requirements-satisfied",
        ServerlessRequirementsSatisfied = "serverless-requirements-satisfied",
        OpenshiftAiRequirementsSatisfied = "openshift-ai-requirements-satisfied",
        OpenshiftAiGpuRequirementsSatisfied = "openshift-ai-gpu-requirements-satisfied",
        AuthorinoRequirementsSatisfied = "authorino-requirements-satisfied",
        NmstateRequirementsSatisfied = "nmstate-requirements-satisfied",
        AmdGpuRequirementsSatisfied = "amd-gpu-requirements-satisfied",
        KmmRequirementsSatisfied = "kmm-requirements-satisfied",
        NodeHealthcheckRequirementsSatisfied = "node-healthcheck-requirements-satisfied",
        SelfNodeRemediationRequirementsSatisfied = "self-node-remediation-requirements-satisfied",
        FenceAgentsRemediationRequirementsSatisfied = "fence-agents-remediation-requirements-satisfied",
        NodeMaintenanceRequirementsSatisfied = "node-maintenance-requirements-satisfied",
        KubeDeschedulerRequirementsSatisfied = "kube-descheduler-requirements-satisfied",
        ClusterObservabilityRequirementsSatisfied = "cluster-observability-requirements-satisfied",
        NumaResourcesRequirementsSatisfied = "numa-resources-requirements-satisfied",
        OadpRequirementsSatisfied = "oadp-requirements-satisfied",
        MetallbRequirementsSatisfied = "metallb-requirements-satisfied",
        LokiRequirementsSatisfied = "loki-requirements-satisfied",
        OpenshiftLoggingRequirementsSatisfied = "openshift-logging-requirements-satisfied",
    }
}

wire! {
    /// `ignored-validations` of the API.
    IgnoredValidations = "ignored-validations" {
        cluster_validation_ids as "cluster-validation-ids": Option<String>,
        host_validation_ids as "host-validation-ids": Option<String>,
    }
}

wire! {
    /// `monitored-operator` of the API.
    MonitoredOperator = "monitored-operator" {
        cluster_id: Option<Uuid>,
        name: Option<String>,
        version: Option<String>,
        namespace: Option<String>,
        subscription_name: Option<String>,
        operator_type: Option<OperatorType>,
        properties: Option<String>,
        timeout_seconds: Option<i64>,
        status: Option<OperatorStatus>,
        status_info: Option<String>,
        status_updated_at: Option<Timestamp>,
        bundles: Option<Vec<String>>,
        dependency_only: Option<bool>,
        source_bundles: Option<Vec<String>>,
    }
}

wire! {
    /// `operator-monitor-report` of the API.
    OperatorMonitorReport = "operator-monitor-report" {
        name: Option<String>,
        version: Option<String>,
        status: Option<OperatorStatus>,
        status_info: Option<String>,
    }
}

wire_enum! {
    /// `operator-type` of the API.
    OperatorType = "operator-type" {
        Builtin = "builtin",
        Olm = "olm",
    }
}

wire_enum! {
    /// `operator-status` of the API.
    OperatorStatus = "operator-status" {
        Failed = "failed",
        Progressing = "progressing",
        Available = "available",
    }
}

wire! {
    /// `operator-create-params` of the API.
    OperatorCreateParams = "operator-create-params" {
        name: Option<String>,
        properties: Option<String>,
    }
}

wire! {
    /// `list-versions` of the API.
    ListVersions = "list-versions" {
        versions: Option<BTreeMap<String, String>>,
        release_tag: Option<String>,
    }
}

wire! {
    /// `preflight-hardware-requirements` of the API.
    PreflightHardwareRequirements = "preflight-hardware-requirements" {
        operators: Option<Vec<OperatorHardwareRequirements>>,
        ocp: Option<HostTypeHardwareRequirementsWrapper>,
    }
}

wire! {
    /// `operator-hardware-requirements` of the API.
    OperatorHardwareRequirements = "operator-hardware-requirements" {
        operator_name: Option<String>,
        dependencies: Option<Vec<String>>,
        requirements: Option<HostTypeHardwareRequirementsWrapper>,
    }
}

wire! {
    /// `host-type-hardware-requirements-wrapper` of the API.
    HostTypeHardwareRequirementsWrapper = "host-type-hardware-requirements-wrapper" {
        worker: Option<HostTypeHardwareRequirements>,
        master: Option<HostTypeHardwareRequirements>,
    }
}

wire! {
    /// `host-type-hardware-requirements` of the API.
    HostTypeHardwareRequirements = "host-type-hardware-requirements" {
        quantitative: Option<ClusterHostRequirementsDetails>,
        qualitative: Option<Vec<String>>,
    }
}

wire! {
    /// `cluster-host-requirements` of the API.
    ClusterHostRequirements = "cluster-host-requirements" {
        host_id: Option<Uuid>,
        total: Option<ClusterHostRequirementsDetails>,
        ocp: Option<ClusterHostRequirementsDetails>,
        operators: Option<Vec<OperatorHostRequirements>>,
    }
}

wire! {
    /// `operator-host-requirements` of the API.
    OperatorHostRequirements = "operator-host-requirements" {
        operator_name: Option<String>,
        requirements: Option<ClusterHostRequirementsDetails>,
    }
}

wire! {
    /// `cluster-host-requirements-details` of the API.
    ClusterHostRequirementsDetails = "cluster-host-requirements-details" {
        cpu_cores: Option<i64>,
        ram_mib: Option<i64>,
        disk_size_gb: Option<i64>,
        installation_disk_speed_threshold_ms: Option<i64>,
        network_latency_threshold_ms: Option<f64>,
        packet_loss_percentage: Option<f64>,
        tpm_enabled_in_bios: Option<bool>,
    }
}

wire! {
    /// `versioned-cluster-host-requirements-details` of the API.
    VersionedClusterHostRequirementsDetails = "versioned-cluster-host-requirements-details" {
        cpu_cores: Option<i64>,
        ram_mib: Option<i64>,
        disk_size_gb: Option<i64>,
        installation_disk_speed_threshold_ms: Option<i64>,
        network_latency_threshold_ms: Option<f64>,
        packet_loss_percentage: Option<f64>,
    }
}

wire! {
    /// `versioned-host-requirements` of the API.
    VersionedHostRequirements = "versioned-host-requirements" {
        version: Option<String>,
        match_type: Option<String> => one_of("exact", "min_version"),
        master: Option<VersionedClusterHostRequirementsDetails>,
        arbiter: Option<VersionedClusterHostRequirementsDetails>,
        worker: Option<VersionedClusterHostRequirementsDetails>,
        sno: Option<VersionedClusterHostRequirementsDetails>,
        edge_worker as "edge-worker": Option<VersionedClusterHostRequirementsDetails>,
    }
}

wire! {
    /// `event` of the API.
    Event = "event" {
        name: Option<String>,
        cluster_id: Option<Uuid>,
        host_id: Option<Uuid>,
        infra_env_id: Option<Uuid>,
        severity: Severity,
        category: Option<String> => one_of("user", "metrics"),
        message: String,
        event_time: Timestamp,
        request_id: Option<Uuid>,
        props: Option<String>,
    }
}

wire! {
    /// `host-create-params` of the API.
    HostCreateParams = "host-create-params" {
        host_id: Uuid,
        discovery_agent_version: Option<String>,
    }
}

wire! {
    /// `host_registration_response` of the API.
    HostRegistrationResponse = "host_registration_response" {
        kind: String => one_of("Host", "AddToExistingClusterHost"),
        id: Uuid,
        href: String,
        cluster_id: Option<Uuid>,
        infra_env_id: Option<Uuid>,
        status: HostStatus,
        status_info: String,
        validations_info: Option<Text>,
        logs_info: Option<LogsState>,
        status_updated_at: Option<Timestamp>,
        progress: Option<HostProgressInfo>,
        stage_started_at: Option<Timestamp>,
        stage_updated_at: Option<Timestamp>,
        progress_stages: Option<Vec<HostStage>>,
        connectivity: Option<Text>,
        api_vip_connectivity: Option<Text>,
        tang_connectivity: Option<Text>,
        inventory: Option<Text>,
        free_addresses: Option<Text>,
        ntp_sources: Option<Text>,
        disks_info: Option<Text>,
        role: Option<HostRole>,
        suggested_role: Option<HostRole>,
        bootstrap: Option<bool>,
        logs_collected_at: Option<Timestamp>,
        logs_started_at: Option<Timestamp>,
        installer_version: Option<String>,
        installation_disk_path: Option<String>,
        installation_disk_id: Option<String>,
        updated_at: Option<Timestamp>,
        created_at: Option<Timestamp>,
        checked_in_at: Option<Timestamp>,
        connection_timed_out: Option<bool>,
        registered_at: Option<Timestamp>,
        discovery_agent_version: Option<String>,
        requested_hostname: Option<String>,
        user_name: Option<String>,
        media_status: Option<String> => one_of("connected", "disconnected"),
        deleted_at: Option<Value>,
        ignition_config_overrides: Option<String>,
        installer_args: Option<String>,
        timestamp: Option<i64>,
        machine_config_pool_name: Option<String>,
        images_status: Option<Text>,
        domain_name_resolutions: Option<Text>,
        ignition_endpoint_token_set: Option<bool>,
        node_labels: Option<String>,
        disks_to_be_formatted: Option<String>,
        skip_formatting_disks: Option<String>,
        fencing_credentials: Option<String>,
        next_step_runner_command: Option<HostRegistrationResponseNextStepRunnerCommand>,
    }
}

wire! {
    /// `host` of the API.
    Host = "host" {
        kind: String => one_of("Host", "AddToExistingClusterHost"),
        id: Uuid,
        href: String,
        cluster_id: Option<Uuid>,
        infra_env_id: Option<Uuid>,
        status: HostStatus,
        status_info: String,
        validations_info: Option<Text>,
        logs_info: Option<LogsState>,
        status_updated_at: Option<Timestamp>,
        progress: Option<HostProgressInfo>,
        stage_started_at: Option<Timestamp>,
        stage_updated_at: Option<Timestamp>,
        progress_stages: Option<Vec<HostStage>>,
        connectivity: Option<Text>,
        api_vip_connectivity: Option<Text>,
        tang_connectivity: Option<Text>,
        inventory: Option<Text>,
        free_addresses: Option<Text>,
        ntp_sources: Option<Text>,
        disks_info: Option<Text>,
        role: Option<HostRole>,
        suggested_role: Option<HostRole>,
        bootstrap: Option<bool>,
        logs_collected_at: Option<Timestamp>,
        logs_started_at: Option<Timestamp>,
        installer_version: Option<String>,
        installation_disk_path: Option<String>,
        installation_disk_id: Option<String>,
        updated_at: Option<Timestamp>,
        created_at: Option<Timestamp>,
        checked_in_at: Option<Timestamp>,
        connection_timed_out: Option<bool>,
        registered_at: Option<Timestamp>,
        discovery_agent_version: Option<String>,
        requested_hostname: Option<String>,
        user_name: Option<String>,
        media_status: Option<String> => one_of("connected", "disconnected"),
        deleted_at: Option<Value>,
        ignition_config_overrides: Option<String>,
        installer_args: Option<String>,
        timestamp: Option<i64>,
        machine_config_pool_name: Option<String>,
        images_status: Option<Text>,
        domain_name_resolutions: Option<Text>,
        ignition_endpoint_token_set: Option<bool>,
        node_labels: Option<String>,
        disks_to_be_formatted: Option<String>,
        skip_formatting_disks: Option<String>,
        fencing_credentials: Option<String>,
    }
}

wire! {
    /// `installer-args-params` of the API.
    InstallerArgsParams = "installer-args-params" {
        args: Option<Vec<String>>,
    }
}

wire! {
    /// `steps` of the API.
    Steps = "steps" {
        next_instruction_seconds: Option<i64>,
        post_step_action: Option<String> => one_of("exit", "continue"),
        instructions: Option<Vec<Step>>,
    }
}

wire! {
    /// `step` of the API.
    Step = "step" {
        step_type: Option<String> => step_types,
        step_id: Option<String>,
        args: Option<Vec<String>>,
    }
}

wire! {
    /// `step-reply` of the API.
    StepReply = "step-reply" {
        step_type: Option<String> => step_types,
        step_id: Option<String>,
        exit_code: Option<i64>,
        output: Option<String>,
        error: Option<String>,
    }
}

wire! {
    /// `connectivity-check-nic` of the API.
    ConnectivityCheckNic = "connectivity-check-nic" {
        name: Option<String>,
        mac: Option<String>,
        ip_addresses: Option<Vec<String>>,
    }
}

wire! {
    /// `connectivity-check-host` of the API.
    ConnectivityCheckHost = "connectivity-check-host" {
        host_id: Option<Uuid>,
        nics: Option<Vec<ConnectivityCheckNic>>,
    }
}

wire! {
    /// `bundle-create-params` of the API.
    BundleCreateParams = "bundle-create-params" {
        id: String,
        optional_operators: Option<Vec<String>>,
    }
}

wire! {
    /// `cluster-create-params` of the API.
    ClusterCreateParams = "cluster-create-params" {
        name: String => max_length(54) min_length(1),
        high_availability_mode: Option<String> => one_of("Full", "None"),
        openshift_version: String,
        ocp_release_image: Option<String>,
        base_dns_domain: Option<String>,
        cluster_network_cidr: Option<String>,
        cluster_network_host_prefix: Option<i64> => minimum(1) maximum(128),
        service_network_cidr: Option<String>,
        api_vips: Option<Vec<ApiVip>>,
        ingress_vips: Option<Vec<IngressVip>>,
        pull_secret: String,
        ssh_public_key: Option<String>,
        vip_dhcp_allocation: Option<bool>,
        http_proxy: Option<String>,
        https_proxy: Option<String>,
        no_proxy: Option<String>,
        user_managed_networking: Option<bool>,
        additional_ntp_source: Option<String>,
        ntp_sources: Option<String>,
        olm_operators: Option<Vec<OperatorCreateParams>>,
        operator_bundles: Option<Vec<BundleCreateParams>>,
        hyperthreading: Option<String> => one_of("none", "masters", "arbiters", "workers", "masters,arbiters", "masters,workers", "arbiters,workers", "masters,arbiters,workers", "all"),
        network_type: Option<String> => one_of("OpenShiftSDN", "OVNKubernetes", "CiscoACI", "Cilium", "Calico", "None"),
        schedulable_masters: Option<bool>,
        cluster_networks: Option<Vec<ClusterNetwork>>,
        service_networks: Option<Vec<ServiceNetwork>>,
        machine_networks: Option<Vec<MachineNetwork>>,
        platform: Option<Platform>,
        cpu_architecture: Option<String> => one_of("x86_64", "aarch64", "arm64", "ppc64le", "s390x", "multi"),
        disk_encryption: Option<DiskEncryption>,
        ignition_endpoint: Option<IgnitionEndpoint>,
        tags: Option<String>,
        control_plane_count: Option<i64>,
        load_balancer: Option<LoadBalancer>,
    }
}

wire! {
    /// `host-update-params` of the API.
    HostUpdateParams = "host-update-params" {
        host_role: Option<String> => one_of("auto-assign", "master", "arbiter", "worker"),
        host_name: Option<String>,
        disks_selected_config: Option<Vec<DiskConfigParams>>,
        disks_skip_formatting: Option<Vec<DiskSkipFormattingParams>>,
        machine_config_pool_name: Option<String>,
        ignition_endpoint_token: Option<String>,
        ignition_endpoint_http_headers: Option<Vec<IgnitionEndpointHttpHeadersParams>>,
        node_labels: Option<Vec<NodeLabelParams>>,
        fencing_credentials: Option<FencingCredentialsParams>,
    }
}

wire! {
    /// `disconnected-cluster-create-params` of the API.
    DisconnectedClusterCreateParams = "disconnected-cluster-create-params" {
        name: String => max_length(54) min_length(1),
        openshift_version: String,
    }
}

wire! {
    /// `v2-cluster-update-params` of the API.
    V2ClusterUpdateParams = "v2-cluster-update-params" {
        name: Option<String> => max_length(54) min_length(1),
        base_dns_domain: Option<String>,
        cluster_network_cidr: Option<String>,
        platform: Option<Platform>,
        cluster_network_host_prefix: Option<i64> => minimum(1) maximum(128),
        service_network_cidr: Option<String>,
        api_vips: Option<Vec<ApiVip>>,
        ingress_vips: Option<Vec<IngressVip>>,
        api_vip_dns_name: Option<String>,
        machine_network_cidr: Option<String>,
        pull_secret: Option<String>,
        ssh_public_key: Option<String>,
        vip_dhcp_allocation: Option<bool>,
        http_proxy: Option<String>,
        https_proxy: Option<String>,
        no_proxy: Option<String>,
        user_managed_networking: Option<bool>,
        additional_ntp_source: Option<String>,
        ntp_sources: Option<String>,
        olm_operators: Option<Vec<OperatorCreateParams>>,
        operator_bundles: Option<Vec<BundleCreateParams>>,
        hyperthreading: Option<String> => one_of("none", "masters", "arbiters", "workers", "masters,arbiters", "masters,workers", "arbiters,workers", "masters,arbiters,workers", "all"),
        network_type: Option<String> => one_of("OpenShiftSDN", "OVNKubernetes", "CiscoACI", "Cilium", "Calico", "None"),
        schedulable_masters: Option<bool>,
        cluster_networks: Option<Vec<ClusterNetwork>>,
        service_networks: Option<Vec<ServiceNetwork>>,
        machine_networks: Option<Vec<MachineNetwork>>,
        disk_encryption: Option<DiskEncryption>,
        ignition_endpoint: Option<IgnitionEndpoint>,
        tags: Option<String>,
        control_plane_count: Option<i64>,
        load_balancer: Option<LoadBalancer>,
    }
}

wire! {
    /// `import-cluster-params` of the API.
    ImportClusterParams = "import-cluster-params" {
        name: String,
        api_vip_dnsname: String,
        openshift_version: Option<String>,
        openshift_cluster_id: Uuid,
    }
}

wire_enum! {
    /// `finalizing-stage` of the API.
    FinalizingStage = "finalizing-stage" {
        WaitingForClusterOperators = "Waiting for cluster operators",
        AddingRouterCa = "Adding router ca",
        ApplyingOlmManifests = "Applying olm manifests",
        WaitingForOlmOperatorsCsvInitialization = "Waiting for olm operators csv initialization",
        WaitingForOlmOperatorsCsv = "Waiting for olm operators csv",
        WaitingForOLMOperatorSetupJobs = "Waiting for OLM operator setup jobs",
        Done = "Done",
    }
}

wire! {
    /// `cluster` of the API.
    Cluster = "cluster" {
        kind: String => one_of("Cluster", "AddHostsCluster", "DisconnectedCluster"),
        high_availability_mode: Option<String> => one_of("Full", "None"),
        id: Uuid,
        href: String,
        name: Option<String>,
        user_name: Option<String>,
        org_id: Option<String>,
        email_domain: Option<String>,
        openshift_version: Option<String>,
        ocp_release_image: Option<String>,
        openshift_cluster_id: Option<Uuid>,
        image_info: ImageInfo,
        platform: Option<Platform>,
        base_dns_domain: Option<String>,
        cluster_network_cidr: Option<String>,
        cluster_network_host_prefix: Option<i64> => minimum(1) maximum(128),
        service_network_cidr: Option<String>,
        api_vips: Option<Vec<ApiVip>>,
        api_vip_dns_name: Option<String>,
        machine_network_cidr: Option<String>,
        ingress_vips: Option<Vec<IngressVip>>,
        ssh_public_key: Option<String>,
        http_proxy: Option<String>,
        https_proxy: Option<String>,
        no_proxy: Option<String>,
        status: ClusterStatus,
        status_info: String,
        status_updated_at: Option<Timestamp>,
        progress: Option<ClusterProgressInfo>,
        disk_encryption: Option<DiskEncryption>,
        hosts: Option<Vec<Host>>,
        ready_host_count: Option<i64>,
        enabled_host_count: Option<i64>,
        total_host_count: Option<i64>,
        schedulable_masters: Option<bool>,
        schedulable_masters_forced_true: Option<bool>,
        updated_at: Option<Timestamp>,
        created_at: Option<Timestamp>,
        install_started_at: Option<Timestamp>,
        install_completed_at: Option<Timestamp>,
        host_networks: Option<Vec<HostNetwork>>,
        pull_secret_set: Option<bool>,
        vip_dhcp_allocation: Option<bool>,
        validations_info: Option<Text>,
        logs_info: Option<LogsState>,
        install_config_overrides: Option<String>,
        controller_logs_collected_at: Option<Timestamp>,
        controller_logs_started_at: Option<Timestamp>,
        connectivity_majority_groups: Option<String>,
        ip_collisions: Option<String>,
        ignored_host_validations: Option<String>,
        ignored_cluster_validations: Option<String>,
        deleted_at: Option<Value>,
        user_managed_networking: Option<bool>,
        additional_ntp_source: Option<String>,
        ntp_sources: Option<String>,
        monitored_operators: Option<Vec<MonitoredOperator>>,
        operator_bundles: Option<Vec<BundleCreateParams>>,
        ams_subscription_id: Option<Uuid>,
        hyperthreading: Option<String> => one_of("none", "masters", "arbiters", "workers", "masters,arbiters", "masters,workers", "arbiters,workers", "masters,arbiters,workers", "all"),
        feature_usage: Option<String>,
        network_type: Option<String> => one_of("OpenShiftSDN", "OVNKubernetes", "CiscoACI", "Cilium", "Calico", "None"),
        cluster_networks: Option<Vec<ClusterNetwork>>,
        service_networks: Option<Vec<ServiceNetwork>>,
        machine_networks: Option<Vec<MachineNetwork>>,
        cpu_architecture: Option<String> => one_of("x86_64", "aarch64", "arm64", "ppc64le", "s390x", "multi"),
        ignition_endpoint: Option<IgnitionEndpoint>,
        imported: Option<bool>,
        tags: Option<String>,
        last_installation_preparation as "last-installation-preparation": Option<LastInstallationPreparation>,
        org_soft_timeouts_enabled: Option<bool>,
        control_plane_count: Option<i64>,
        load_balancer: Option<LoadBalancer>,
    }
}

wire! {
    /// `last-installation-preparation` of the API.
    LastInstallationPreparation = "last-installation-preparation" {
        status: Option<String> => one_of("not_started", "failed", "success"),
        reason: Option<String>,
    }
}

wire! {
    /// `ignition-endpoint` of the API.
    IgnitionEndpoint = "ignition-endpoint" {
        url: Option<String>,
        ca_certificate: Option<String>,
    }
}

wire! {
    /// `platform` of the API.
    Platform = "platform" {
        type_ as "type": PlatformType,
        external: Option<PlatformExternal>,
    }
}

wire! {
    /// `image_info` of the API.
    ImageInfo = "image_info" {
        ssh_public_key: Option<String>,
        size_bytes: Option<i64> => minimum(0),
        download_url: Option<String>,
        generator_version: Option<String>,
        created_at: Option<Timestamp>,
        expires_at: Option<Timestamp>,
        static_network_config: Option<String>,
        type_ as "type": Option<ImageType>,
    }
}

wire! {
    /// `host_static_network_config` of the API.
    HostStaticNetworkConfig = "host_static_network_config" {
        mac_interface_map: Option<Vec<MacInterfaceMapItem>>,
        network_yaml: Option<String>,
    }
}

wire_enum! {
    /// `image_type` of the API.
    ImageType = "image_type" {
        FullIso = "full-iso",
        MinimalIso = "minimal-iso",
        DisconnectedIso = "disconnected-iso",
    }
}

wire! {
    /// `host_network` of the API.
    HostNetwork = "host_network" {
        cidr: Option<String>,
        host_ids: Option<Vec<Uuid>>,
    }
}

wire! {
    /// `l2-connectivity` of the API.
    L2Connectivity = "l2-connectivity" {
        outgoing_nic: Option<String>,
        outgoing_ip_address: Option<String>,
        remote_ip_address: Option<String>,
        remote_mac: Option<String>,
        successful: Option<bool>,
    }
}

wire! {
    /// `l3-connectivity` of the API.
    L3Connectivity = "l3-connectivity" {
        outgoing_nic: Option<String>,
        remote_ip_address: Option<String>,
        successful: Option<bool>,
        average_rtt_ms: Option<f64>,
        packet_loss_percentage: Option<f64>,
    }
}

wire! {
    /// `mtu-report` of the API.
    MtuReport = "mtu-report" {
        outgoing_nic: Option<String>,
        remote_ip_address: Option<String>,
        mtu_successful: Option<bool>,
    }
}

wire! {
    /// `connectivity-remote-host` of the API.
    ConnectivityRemoteHost = "connectivity-remote-host" {
        host_id: Option<Uuid>,
        l2_connectivity: Option<Vec<L2Connectivity>>,
        l3_connectivity: Option<Vec<L3Connectivity>>,
        mtu_report: Option<Vec<MtuReport>>,
    }
}

wire! {
    /// `connectivity-report` of the API.
    ConnectivityReport = "connectivity-report" {
        remote_hosts: Option<Vec<ConnectivityRemoteHost>>,
    }
}

wire! {
    /// `completion-params` of the API.
    CompletionParams = "completion-params" {
        is_success: bool,
        error_info: Option<String>,
        data: Option<BTreeMap<String, Value>>,
    }
}

wire! {
    /// `host-progress` of the API.
    HostProgress = "host-progress" {
        current_stage: Option<HostStage>,
        progress_info: Option<String>,
    }
}

wire! {
    /// `host-progress-info` of the API.
    HostProgressInfo = "host-progress-info" {
        installation_percentage: Option<i64>,
        current_stage: Option<HostStage>,
        progress_info: Option<String>,
        stage_started_at: Option<Timestamp>,
        stage_updated_at: Option<Timestamp>,
        stage_timed_out: Option<bool>,
    }
}

wire! {
    /// `cluster-progress-info` of the API.
    ClusterProgressInfo = "cluster-progress-info" {
        total_percentage: Option<i64>,
        preparing_for_installation_stage_percentage: Option<i64>,
        installing_stage_percentage: Option<i64>,
        finalizing_stage_percentage: Option<i64>,
        finalizing_stage: Option<FinalizingStage>,
        finalizing_stage_started_at: Option<Timestamp>,
        finalizing_stage_timed_out: Option<bool>,
    }
}

wire! {
    /// `cluster-finalizing-progress` of the API.
    ClusterFinalizingProgress = "cluster-finalizing-progress" {
        finalizing_stage: Option<FinalizingStage>,
    }
}

wire! {
    /// `disk-encryption` of the API.
    DiskEncryption = "disk-encryption" {
        enable_on: Option<String> => one_of("none", "masters", "arbiters", "workers", "masters,arbiters", "masters,workers", "arbiters,workers", "masters,arbiters,workers", "all"),
        mode: Option<String> => one_of("tpmv2", "tang"),
        tang_servers: Option<String>,
    }
}

wire_enum! {
    /// `host-stage` of the API.
    HostStage = "host-stage" {
        StartingInstallation = "Starting installation",
        WaitingForControlPlane = "Waiting for control plane",
        WaitingForBootkube = "Waiting for bootkube",
        WaitingForController = "Waiting for controller",
        Installing = "Installing",
        WritingImageToDisk = "Writing image to disk",
        CopyingRegistryDataToDisk = "Copying registry data to disk",
        Rebooting = "Rebooting",
        WaitingForIgnition = "Waiting for ignition",
        Configuring = "Configuring",
        Joined = "Joined",
        Done = "Done",
        Failed = "Failed",
    }
}

wire! {
    /// `error` of the API.
    ErrorBody = "error" {
        kind: String => one_of("Error"),
        id: i64 => minimum(400) maximum(504),
        href: String,
        code: String,
        reason: String,
    }
}

wire! {
    /// `cluster_default_config` of the API.
    ClusterDefaultConfig = "cluster_default_config" {
        cluster_network_cidr: Option<String>,
        cluster_network_host_prefix: Option<i64> => minimum(1) maximum(32),
        inactive_deletion_hours: Option<i64>,
        service_network_cidr: Option<String>,
        ntp_source: Option<String>,
        cluster_networks_ipv4: Option<Vec<ClusterNetwork>>,
        cluster_networks_dualstack: Option<Vec<ClusterNetwork>>,
        service_networks_ipv4: Option<Vec<ServiceNetwork>>,
        service_networks_dualstack: Option<Vec<ServiceNetwork>>,
        forbidden_hostnames: Option<Vec<String>>,
    }
}

wire! {
    /// `infra_error` of the API.
    InfraError = "infra_error" {
        code: i64 => minimum(401) maximum(403),
        message: String,
    }
}

wire! {
    /// `interface` of the API.
    Interface = "interface" {
        ipv6_addresses: Option<Vec<String>>,
        vendor: Option<String>,
        name: Option<String>,
        has_carrier: Option<bool>,
        product: Option<String>,
        mtu: Option<i64>,
        ipv4_addresses: Option<Vec<String>>,
        biosdevname: Option<String>,
        client_id: Option<String>,
        mac_address: Option<String>,
        flags: Option<Vec<String>>,
        speed_mbps: Option<i64>,
        type_ as "type": Option<String>,
    }
}

wire! {
    /// `disk` of the API.
    Disk = "disk" {
        id: Option<String>,
        drive_type: Option<DriveType>,
        has_uuid: Option<bool>,
        vendor: Option<String>,
        name: Option<String>,
        path: Option<String>,
        hctl: Option<String>,
        by_path: Option<String>,
        by_id: Option<String>,
        model: Option<String>,
        wwn: Option<String>,
        serial: Option<String>,
        size_bytes: Option<i64>,
        bootable: Option<bool>,
        removable: Option<bool>,
        partition_types as "partitionTypes": Option<String>,
        is_installation_media: Option<bool>,
        installation_eligibility: Option<DiskInstallationEligibility>,
        smart: Option<String>,
        io_perf: Option<IoPerf>,
        holders: Option<String>,
        iscsi: Option<Iscsi>,
    }
}

wire_enum! {
    /// `drive_type` of the API. Agents are newer than whoever reads their inventories: a kind that is not known is no reason to refuse one.
    DriveType = "drive_type" or Unknown {
        Unknown = "Unknown",
        HDD = "HDD",
        FDD = "FDD",
        ODD = "ODD",
        SSD = "SSD",
        Virtual = "virtual",
        Multipath = "Multipath",
        ISCSI = "iSCSI",
        FC = "FC",
        LVM = "LVM",
        RAID = "RAID",
        ECKD = "ECKD",
        ECKDESE = "ECKD (ESE)",
        FBA = "FBA",
    }
}

wire! {
    /// `io_perf` of the API.
    IoPerf = "io_perf" {
        sync_duration: Option<i64>,
    }
}

wire! {
    /// `iscsi` of the API.
    Iscsi = "iscsi" {
        host_ip_address: Option<String>,
    }
}

wire! {
    /// `boot` of the API.
    Boot = "boot" {
        current_boot_mode: Option<String>,
        pxe_interface: Option<String>,
        command_line: Option<String>,
        secure_boot_state: Option<String> => one_of("Unknown", "NotSupported", "Enabled", "Disabled"),
        device_type: Option<String> => one_of("persistent", "ephemeral"),
    }
}

wire! {
    /// `system_vendor` of the API.
    SystemVendor = "system_vendor" {
        serial_number: Option<String>,
        product_name: Option<String>,
        manufacturer: Option<String>,
        virtual_ as "virtual": Option<bool>,
    }
}

wire! {
    /// `memory` of the API.
    Memory = "memory" {
        physical_bytes: Option<i64>,
        usable_bytes: Option<i64>,
        physical_bytes_method: Option<String> => one_of("dmidecode", "ghw", "meminfo"),
    }
}

wire! {
    /// `cpu` of the API.
    Cpu = "cpu" {
        count: Option<i64>,
        frequency: Option<f64>,
        flags: Option<Vec<String>>,
        model_name: Option<String>,
        architecture: Option<String>,
    }
}

wire! {
    /// `gpu` of the API.
    Gpu = "gpu" {
        vendor: Option<String>,
        vendor_id: Option<String>,
        device_id: Option<String>,
        name: Option<String>,
        address: Option<String>,
    }
}

wire! {
    /// `route` of the API.
    Route = "route" {
        interface: Option<String>,
        gateway: Option<String>,
        destination: Option<String>,
        family: Option<i64>,
        metric: Option<i64>,
    }
}

wire! {
    /// `inventory` of the API.
    Inventory = "inventory" {
        hostname: Option<String>,
        bmc_address: Option<String>,
        interfaces: Option<Vec<Interface>>,
        disks: Option<Vec<Disk>>,
        boot: Option<Boot>,
        system_vendor: Option<SystemVendor>,
        bmc_v6address: Option<String>,
        memory: Option<Memory>,
        cpu: Option<Cpu>,
        gpus: Option<Vec<Gpu>>,
        routes: Option<Vec<Route>>,
        tpm_version: Option<String> => one_of("none", "1.2", "2.0"),
        truncation: Option<InventoryTruncation>,
    }
}

wire! {
    /// `free_network_addresses` of the API.
    FreeNetworkAddresses = "free_network_addresses" {
        network: Option<String>,
        free_addresses: Option<Vec<String>>,
    }
}

wire! {
    /// `download_boot_artifacts_request` of the API.
    DownloadBootArtifactsRequest = "download_boot_artifacts_request" {
        kernel_url: String,
        rootfs_url: String,
        initrd_url: String,
        host_fs_mount_dir: String,
    }
}

wire! {
    /// `reboot_for_reclaim_request` of the API.
    RebootForReclaimRequest = "reboot_for_reclaim_request" {
        host_fs_mount_dir: String,
    }
}

wire! {
    /// `api_vip_connectivity_request` of the API.
    ApiVipConnectivityRequest = "api_vip_connectivity_request" {
        url: String,
        verify_cidr: Option<bool>,
        ca_certificate: Option<String>,
        ignition_endpoint_token: Option<String>,
        request_headers: Option<Vec<ApiVipConnectivityAdditionalRequestHeader>>,
    }
}

wire! {
    /// `api_vip_connectivity_additional_request_header` of the API.
    ApiVipConnectivityAdditionalRequestHeader = "api_vip_connectivity_additional_request_header" {
        key: Option<String>,
        value: Option<String>,
    }
}

wire! {
    /// `api_vip_connectivity_response` of the API.
    ApiVipConnectivityResponse = "api_vip_connectivity_response" {
        is_success: Option<bool>,
        url: Option<String>,
        download_error: Option<String>,
        ignition: Option<String>,
    }
}

wire! {
    /// `tang_connectivity_request` of the API.
    TangConnectivityRequest = "tang_connectivity_request" {
        tang_servers: String,
    }
}

wire! {
    /// `tang_connectivity_response` of the API.
    TangConnectivityResponse = "tang_connectivity_response" {
        is_success: Option<bool>,
        tang_server_response: Option<Vec<TangConnectivityResponseTangServerResponse>>,
    }
}

wire! {
    /// `disk_speed_check_request` of the API.
    DiskSpeedCheckRequest = "disk_speed_check_request" {
        path: String,
    }
}

wire! {
    /// `disk_speed_check_response` of the API.
    DiskSpeedCheckResponse = "disk_speed_check_response" {
        io_sync_duration: Option<i64>,
        path: Option<String>,
    }
}

wire! {
    /// `domain_resolution_request` of the API.
    DomainResolutionRequest = "domain_resolution_request" {
        domains: Vec<Value>,
    }
}

wire! {
    /// `domain_resolution_response` of the API.
    DomainResolutionResponse = "domain_resolution_response" {
        resolutions: Vec<DomainResolutionResponseResolutions>,
    }
}

wire! {
    /// `disk_speed` of the API.
    DiskSpeed = "disk_speed" {
        tested: Option<bool>,
        exit_code: Option<i64>,
        speed_ms: Option<i64>,
    }
}

wire! {
    /// `disk_info` of the API.
    DiskInfo = "disk_info" {
        id: Option<Uuid>,
        path: Option<String>,
        disk_speed: Option<DiskSpeed>,
    }
}

wire_enum! {
    /// `platform_type` of the API.
    PlatformType = "platform_type" {
        Baremetal = "baremetal",
        Nutanix = "nutanix",
        Vsphere = "vsphere",
        None = "none",
        External = "external",
    }
}

wire! {
    /// `platform_external` of the API.
    PlatformExternal = "platform_external" {
        platform_name: Option<String> => min_length(1),
        cloud_controller_manager: Option<String> => one_of("", "External"),
    }
}

wire! {
    /// `credentials` of the API.
    Credentials = "credentials" {
        username: Option<String>,
        password: Option<String>,
        console_url: Option<String>,
    }
}

wire! {
    /// `disk-config-params` of the API.
    DiskConfigParams = "disk-config-params" {
        id: String,
        role: Option<DiskRole>,
    }
}

wire! {
    /// `disk-skip-formatting-params` of the API.
    DiskSkipFormattingParams = "disk-skip-formatting-params" {
        disk_id: String,
        skip_formatting: bool,
    }
}

wire_enum! {
    /// `disk-role` of the API.
    DiskRole = "disk-role" {
        None = "none",
        Install = "install",
    }
}

wire! {
    /// `ignition-endpoint-http-headers-params` of the API.
    IgnitionEndpointHttpHeadersParams = "ignition-endpoint-http-headers-params" {
        key: String,
        value: String,
    }
}

wire! {
    /// `node-label-params` of the API.
    NodeLabelParams = "node-label-params" {
        key: String,
        value: String,
    }
}

wire! {
    /// `fencing-credentials-params` of the API.
    FencingCredentialsParams = "fencing-credentials-params" {
        address: String,
        username: String,
        password: String,
        certificate_verification: Option<String> => one_of("Enabled", "Disabled"),
        mac_address: Option<String>,
    }
}

wire_enum! {
    /// `host-role` of the API.
    HostRole = "host-role" {
        AutoAssign = "auto-assign",
        Master = "master",
        Arbiter = "arbiter",
        Worker = "worker",
        Bootstrap = "bootstrap",
    }
}

wire! {
    /// `dhcp_allocation_request` of the API.
    DhcpAllocationRequest = "dhcp_allocation_request" {
        interface: String,
        api_vip_mac: String,
        ingress_vip_mac: String,
        api_vip_lease: Option<String>,
        ingress_vip_lease: Option<String>,
    }
}

wire! {
    /// `dhcp_allocation_response` of the API.
    DhcpAllocationResponse = "dhcp_allocation_response" {
        api_vip_address: String,
        ingress_vip_address: String,
        api_vip_lease: Option<String>,
        ingress_vip_lease: Option<String>,
    }
}

wire! {
    /// `next_step_cmd_request` of the API.
    NextStepCmdRequest = "next_step_cmd_request" {
        infra_env_id: Uuid,
        host_id: Uuid,
        agent_version: String,
    }
}

wire! {
    /// `logs_gather_cmd_request` of the API.
    LogsGatherCmdRequest = "logs_gather_cmd_request" {
        cluster_id: Uuid,
        infra_env_id: Uuid,
        host_id: Uuid,
        bootstrap: bool,
        installer_gather: bool,
        master_ips: Option<Vec<String>>,
    }
}

wire! {
    /// `install_cmd_request` of the API.
    InstallCmdRequest = "install_cmd_request" {
        cluster_id: Uuid,
        infra_env_id: Uuid,
        host_id: Uuid,
        role: HostRole,
        boot_device: String,
        controller_image: String,
        installer_image: String,
        control_plane_count: Option<i64>,
        proxy: Option<Proxy>,
        check_cvo: Option<bool>,
        disks_to_format: Option<Vec<String>>,
        must_gather_image: Option<String>,
        mco_image: Option<String>,
        openshift_version: Option<String>,
        service_ips: Option<Vec<String>>,
        installer_args: Option<String>,
        skip_installation_disk_cleanup: Option<bool>,
        enable_skip_mco_reboot: Option<bool>,
        notify_num_reboots: Option<bool>,
        coreos_image: Option<String>,
    }
}

wire! {
    /// `ntp_synchronization_request` of the API.
    NtpSynchronizationRequest = "ntp_synchronization_request" {
        ntp_source: String,
    }
}

wire! {
    /// `ntp_synchronization_response` of the API.
    NtpSynchronizationResponse = "ntp_synchronization_response" {
        ntp_sources: Option<Vec<NtpSource>>,
    }
}

wire! {
    /// `ntp_source` of the API.
    NtpSource = "ntp_source" {
        source_name: Option<String>,
        source_state: Option<SourceState>,
    }
}

wire! {
    /// `container_image_availability_request` of the API.
    ContainerImageAvailabilityRequest = "container_image_availability_request" {
        timeout: Option<i64>,
        images: Vec<String>,
    }
}

wire! {
    /// `container_image_availability_response` of the API.
    ContainerImageAvailabilityResponse = "container_image_availability_response" {
        images: Vec<ContainerImageAvailability>,
    }
}

wire! {
    /// `container_image_availability` of the API.
    ContainerImageAvailability = "container_image_availability" {
        name: Option<String>,
        size_bytes: Option<f64>,
        time: Option<f64>,
        download_rate: Option<f64>,
        result: Option<String> => one_of("success", "failure"),
    }
}

wire! {
    /// `upgrade_agent_request` of the API.
    UpgradeAgentRequest = "upgrade_agent_request" {
        agent_image: Option<String>,
    }
}

wire! {
    /// `upgrade_agent_response` of the API.
    UpgradeAgentResponse = "upgrade_agent_response" {
        agent_image: Option<String>,
        result: Option<String> => one_of("success", "failure"),
    }
}

wire_enum! {
    /// `vip_type` of the API.
    VipType = "vip_type" {
        Api = "api",
        Ingress = "ingress",
    }
}

wire! {
    /// `verify_vip` of the API.
    VerifyVip = "verify_vip" {
        vip: Option<String>,
        vip_type: Option<VipType>,
    }
}

wire! {
    /// `verified_vip` of the API.
    VerifiedVip = "verified_vip" {
        vip: Option<String>,
        vip_type: Option<VipType>,
        verification: Option<VipVerification>,
    }
}

wire_enum! {
    /// `source_state` of the API.
    SourceState = "source_state" {
        Synced = "synced",
        Combined = "combined",
        NotCombined = "not_combined",
        Error = "error",
        Variable = "variable",
        Unreachable = "unreachable",
    }
}

wire_enum! {
    /// `logs_type` of the API.
    LogsType = "logs_type" {
        Host = "host",
        Controller = "controller",
        All = "all",
        Unspecified = "",
    }
}

wire_enum! {
    /// `logs_state` of the API.
    LogsState = "logs_state" {
        Requested = "requested",
        Collecting = "collecting",
        Completed = "completed",
        Timeout = "timeout",
        Empty = "",
    }
}

wire! {
    /// `logs-progress-params` of the API.
    LogsProgressParams = "logs-progress-params" {
        logs_state: LogsState,
    }
}

wire! {
    /// `manifest` of the API.
    Manifest = "manifest" {
        folder: Option<String> => one_of("manifests", "openshift"),
        file_name: Option<String>,
        manifest_source: Option<String> => one_of("user", "system"),
    }
}

wire! {
    /// `create-manifest-params` of the API.
    CreateManifestParams = "create-manifest-params" {
        folder: Option<String> => one_of("manifests", "openshift"),
        file_name: String,
        content: String,
    }
}

wire! {
    /// `update-manifest-params` of the API.
    UpdateManifestParams = "update-manifest-params" {
        folder: String => one_of("manifests", "openshift"),
        file_name: String,
        updated_folder: Option<String> => one_of("manifests", "openshift"),
        updated_file_name: Option<String>,
        updated_content: Option<String>,
    }
}

wire! {
    /// `host-ignition-params` of the API.
    HostIgnitionParams = "host-ignition-params" {
        config: Option<String>,
    }
}

wire! {
    /// `openshift-version` of the API.
    OpenshiftVersion = "openshift-version" {
        display_name: String,
        support_level: String => one_of("beta", "production", "maintenance", "end-of-life"),
        default: Option<bool>,
        cpu_architectures: Vec<String>,
    }
}

wire! {
    /// `os-image` of the API.
    OsImage = "os-image" {
        openshift_version: String,
        cpu_architecture: String => one_of("x86_64", "aarch64", "arm64", "ppc64le", "s390x"),
        url: String,
        version: String,
    }
}

wire! {
    /// `release-image` of the API.
    ReleaseImage = "release-image" {
        openshift_version: String,
        cpu_architecture: String => one_of("x86_64", "aarch64", "arm64", "ppc64le", "s390x", "multi"),
        cpu_architectures: Option<Vec<String>>,
        url: String,
        version: String,
        default: Option<bool>,
        support_level: Option<String> => one_of("beta", "production", "maintenance", "end-of-life"),
    }
}

wire! {
    /// `kernel_argument` of the API.
    KernelArgument = "kernel_argument" {
        operation: Option<String> => one_of("append", "replace", "delete"),
        value: Option<String>,
    }
}

wire! {
    /// `infra-env` of the API.
    InfraEnv = "infra-env" {
        kind: String => one_of("InfraEnv"),
        id: Uuid,
        href: String,
        openshift_version: Option<String>,
        name: String,
        user_name: Option<String>,
        org_id: Option<String>,
        email_domain: Option<String>,
        proxy: Option<Proxy>,
        additional_ntp_sources: Option<String>,
        ntp_sources: Option<String>,
        ssh_authorized_key: Option<String>,
        pull_secret_set: Option<bool>,
        static_network_config: Option<String>,
        rendezvous_ip: Option<String>,
        type_ as "type": ImageType,
        ignition_config_override: Option<String>,
        cluster_id: Option<Uuid>,
        size_bytes: Option<i64> => minimum(0),
        download_url: Option<String>,
        generator_version: Option<String>,
        updated_at: Timestamp,
        created_at: Timestamp,
        expires_at: Option<Timestamp>,
        cpu_architecture: Option<String> => one_of("x86_64", "aarch64", "arm64", "ppc64le", "s390x"),
        kernel_arguments: Option<String>,
        additional_trust_bundle: Option<String>,
        network_discovery_delay_seconds: Option<i64> => minimum(0),
    }
}

wire! {
    /// `proxy` of the API.
    Proxy = "proxy" {
        http_proxy: Option<String>,
        https_proxy: Option<String>,
        no_proxy: Option<String>,
    }
}

wire! {
    /// `infra-env-create-params` of the API.
    InfraEnvCreateParams = "infra-env-create-params" {
        name: String,
        proxy: Option<Proxy>,
        additional_ntp_sources: Option<String>,
        ntp_sources: Option<String>,
        ssh_authorized_key: Option<String>,
        pull_secret: String,
        static_network_config: Option<Vec<HostStaticNetworkConfig>>,
        rendezvous_ip: Option<String>,
        image_type: Option<ImageType>,
        ignition_config_override: Option<String>,
        cluster_id: Option<Uuid>,
        openshift_version: Option<String>,
        cpu_architecture: Option<String> => one_of("x86_64", "aarch64", "arm64", "ppc64le", "s390x"),
        kernel_arguments: Option<Vec<KernelArgument>>,
        additional_trust_bundle: Option<String> => max_length(65535),
        network_discovery_delay_seconds: Option<i64> => minimum(0),
    }
}

wire! {
    /// `infra-env-update-params` of the API.
    InfraEnvUpdateParams = "infra-env-update-params" {
        proxy: Option<Proxy>,
        additional_ntp_sources: Option<String>,
        ntp_sources: Option<String>,
        ssh_authorized_key: Option<String>,
        pull_secret: Option<String>,
        static_network_config: Option<Vec<HostStaticNetworkConfig>>,
        rendezvous_ip: Option<String>,
        image_type: Option<ImageType>,
        ignition_config_override: Option<String>,
        kernel_arguments: Option<Vec<KernelArgument>>,
        additional_trust_bundle: Option<String> => max_length(65535),
        openshift_version: Option<String>,
        network_discovery_delay_seconds: Option<i64> => minimum(0),
    }
}

wire_enum! {
    /// `vip_verification` of the API.
    VipVerification = "vip_verification" {
        Unverified = "unverified",
        Failed = "failed",
        Succeeded = "succeeded",
    }
}

wire! {
    /// `cluster_network` of the API.
    ClusterNetwork = "cluster_network" {
        cluster_id: Option<Uuid>,
        cidr: Option<String>,
        host_prefix: Option<i64> => minimum(1) maximum(128),
    }
}

wire! {
    /// `machine_network` of the API.
    MachineNetwork = "machine_network" {
        cluster_id: Option<Uuid>,
        cidr: Option<String>,
    }
}

wire! {
    /// `service_network` of the API.
    ServiceNetwork = "service_network" {
        cluster_id: Option<Uuid>,
        cidr: Option<String>,
    }
}

wire! {
    /// `api_vip` of the API.
    ApiVip = "api_vip" {
        cluster_id: Option<Uuid>,
        ip: Option<String>,
        verification: Option<VipVerification>,
    }
}

wire! {
    /// `ingress_vip` of the API.
    IngressVip = "ingress_vip" {
        cluster_id: Option<Uuid>,
        ip: Option<String>,
        verification: Option<VipVerification>,
    }
}

wire! {
    /// `bind-host-params` of the API.
    BindHostParams = "bind-host-params" {
        cluster_id: Uuid,
    }
}

wire! {
    /// `presigned-url` of the API.
    PresignedUrl = "presigned-url" {
        url: String,
        expires_at: Option<Timestamp>,
    }
}

wire! {
    /// `load_balancer` of the API.
    LoadBalancer = "load_balancer" {
        type_ as "type": Option<String> => one_of("cluster-managed", "user-managed"),
    }
}

wire! {
    /// `domain_resolution_response-resolutions` of the API.
    DomainResolutionResponseResolutions = "domain_resolution_response-resolutions" {
        domain_name: String,
        ipv4_addresses: Option<Vec<String>>,
        ipv6_addresses: Option<Vec<String>>,
        cnames: Option<Vec<String>>,
    }
}

wire! {
    /// `tang_connectivity_response-tang_server_response` of the API.
    TangConnectivityResponseTangServerResponse = "tang_connectivity_response-tang_server_response" {
        tang_url: Option<String>,
        payload: Option<String>,
        signatures: Option<Vec<TangConnectivityResponseTangServerResponseSignatures>>,
    }
}

wire! {
    /// `tang_connectivity_response-tang_server_response-signatures` of the API.
    TangConnectivityResponseTangServerResponseSignatures = "tang_connectivity_response-tang_server_response-signatures" {
        protected: Option<String>,
        signature: Option<String>,
    }
}

wire! {
    /// `inventory-truncation` of the API.
    InventoryTruncation = "inventory-truncation" {
        type_ as "type": String => one_of("partial", "full"),
        reasons: Option<Vec<String>>,
    }
}

wire! {
    /// `disk-installation_eligibility` of the API.
    DiskInstallationEligibility = "disk-installation_eligibility" {
        eligible: Option<bool>,
        not_eligible_reasons: Option<Vec<String>>,
    }
}

wire! {
    /// `mac_interface_map-item` of the API.
    MacInterfaceMapItem = "mac_interface_map-item" {
        logical_nic_name: Option<String>,
        mac_address: String,
    }
}

wire! {
    /// `host_registration_response-next_step_runner_command` of the API.
    HostRegistrationResponseNextStepRunnerCommand = "host_registration_response-next_step_runner_command" {
        command: Option<String>,
        args: Option<Vec<String>>,
        retry_seconds: Option<i64>,
    }
}
