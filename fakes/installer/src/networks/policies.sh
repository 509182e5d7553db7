#!/bin/bash
# Gives nmstate the policies that were made for this machine: they find its interfaces by their MACs, and nmstate makes the
# connections of NetworkManager from them.
source "${COMMON_SCRIPT_PATH:-/usr/local/bin/common_network_script.sh}"

echo "PreNetworkConfig Start"
mkdir -p "$root/etc/nmstate"

delay="${DISCOVERY_DELAY_SECONDS:-0}"
if [ "$delay" -gt 0 ]; then
    echo "waiting $delay seconds for interfaces"
    sleep "$delay"
fi
read_interfaces

for dir in "$configs"/host*; do
    if [ ! -f "$dir/$mapping" ] || ! ls "$dir"/*.yml > /dev/null 2>&1; then
        echo "$dir is incomplete: left out"
    elif is_ours "$dir"; then
        echo "$dir is for this machine"
        cp "$dir"/*.yml "$root/etc/nmstate/"
        "$root/usr/bin/nmstatectl" service
        # The RAM disk's NetworkManager has the connections now; the system that follows gets a copy.
        if [ -f "$root/etc/initrd-release" ]; then
            mkdir -p "$target"
            cp "$root"/etc/NetworkManager/system-connections/* "$target"/
            "$root/usr/sbin/coreos-copy-firstboot-network"
        fi
    fi
done
echo "PreNetworkConfig End"
