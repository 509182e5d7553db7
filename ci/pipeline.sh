#!/usr/bin/env bash
# The jobs of a pipeline, in plain shell. The forms for GitHub Actions, GitLab CI and Prow call these, and so can you, on any machine:
#
#   ci/pipeline.sh JOB
#
#   check        all scenarios of the catalogue are valid, and this machine can run them
#   scenarios    the smoke scenarios with simulated hosts
#   machines     scenarios on virtual machines
#   nightly      the whole catalogue with simulated hosts; SHARD=2/4 is the second of four parts
#   conformance  the API of the real service, SERVICE_IMAGE (the newest by default), question by question; or of SERVICE, for
#                example process:/path/to/assisted-service, where there is no container engine; CHECKS=register* asks a part
#   explore      drawn scenarios, in virtual time, for EXPLORE_MINUTES (60) or EXPLORE_RUNS, EXPLORE_JOBS at a time; EXPLORE_CORPUS is
#                where the last one ended
#   load         thousands of hosts, compared with the last good run in LOAD_BASELINE
#   fresh-machine  the commands of the README on a bare Debian, as root and as an ordinary user; needs root here (or sudo)
#   tests        the tests of this project itself
#
# The exit code is that of vlab: 0 passed, 1 the product is wrong, 3 the lab was wrong (nothing is known), 5 budget missed, 6 leak,
# 7 flaky. Reports, histories, logs and JUnit files are in VLAB_RUNS (ARTIFACT_DIR/runs where that is set, else target/vlab/runs).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

job=${1:-}
export CI=${CI:-true}
hosts_of=${SCENARIOS_ON_MACHINES:-sno sno-uefi-minimal ha-3-1}

# A device /dev/kvm that can be opened is no proof of KVM: the probe of `doctor` boots a small kernel under it. Where the device is
# closed to this user, a rule of udev opens it (runners of GitHub have the device and lack the rule).
open_kvm() {
    if [[ -e /dev/kvm && ! -w /dev/kvm ]] && sudo -n true 2>/dev/null; then
        echo 'KERNEL=="kvm", GROUP="kvm", MODE="0666", OPTIONS+="static_node=kvm"' |
            sudo -n tee /etc/udev/rules.d/99-vlab-kvm.rules >/dev/null
        sudo -n udevadm control --reload-rules
        sudo -n udevadm trigger --name-match=kvm --settle
    fi
    cargo xtask doctor | grep -A1 '^acceleration' || true
}

case $job in
check)
    cargo xtask doctor
    cargo xtask validate
    ;;
scenarios)
    cargo xtask scenario --tag smoke --hosts sim --retries 1
    ;;
machines)
    open_kvm
    # Word splitting is meant: a list of names.
    # shellcheck disable=SC2086
    cargo xtask scenario $hosts_of --hosts vm --retries 1
    ;;
nightly)
    code=0
    cargo xtask vlab test --tag '!load' --hosts sim --jobs 2 --retries 1 --partition "${SHARD:-1/1}" || code=$?
    # What sometimes passes and sometimes does not, over all nights whose record was kept.
    cargo xtask vlab flakes || true
    exit "$code"
    ;;
conformance)
    cargo xtask conformance --service "${SERVICE:-container:${SERVICE_IMAGE:-quay.io/edge-infrastructure/assisted-service:latest}}" \
        --filter "${CHECKS:-*}"
    ;;
fresh-machine)
    # The root is made of packages and entered, which only root may do. Rust stays that of the user who calls.
    as_root=()
    if [[ $(id -u) != 0 ]]; then
        as_root=(sudo -n env "PATH=$PATH" "HOME=$HOME" "CI=$CI")
    fi
    "${as_root[@]}" cargo xtask fresh-machine
    ;;
explore)
    runs=${VLAB_RUNS:-${ARTIFACT_DIR:-target/vlab}/runs}
    # The smallest scenario for each finding is among the artifacts; the tapes that reach most are where the next night begins.
    limit=(--minutes "${EXPLORE_MINUTES:-60}")
    if [[ -n ${EXPLORE_RUNS:-} ]]; then
        limit=(--runs "$EXPLORE_RUNS")
    fi
    cargo xtask explore "${limit[@]}" --jobs "${EXPLORE_JOBS:-$(nproc)}" --corpus "${EXPLORE_CORPUS:-target/vlab/explorations}" \
        --findings "$runs/findings" --known docs/findings
    ;;
load)
    baseline=${LOAD_BASELINE:-target/vlab/load-baseline.json}
    compare=()
    if [[ -e $baseline ]]; then
        compare=(--compare "$baseline")
    fi
    mkdir -p "$(dirname "$baseline")"
    # Only a run that passed becomes the one that the next is compared with.
    cargo xtask scenario fleet-2000 --repeat 2 --save-series "$baseline.new" "${compare[@]}"
    mv "$baseline.new" "$baseline"
    ;;
tests)
    .ci/run
    ;;
*)
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac
