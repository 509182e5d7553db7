#!/bin/bash
# What both ways of applying a static network need: which interfaces this machine has. It is sourced, not run.
#
# PATH_PREFIX is where the file system begins, for tests. STABLE_SECONDS is how long the list of interfaces must stay as it
# is before it is believed.

root="${PATH_PREFIX:-}"
configs="$root/etc/assisted/network"
mapping=mac_interface.ini

if [ ! -d "$configs" ]; then
    echo "there is no $configs: nothing to apply"
    exit 0
fi

# In the initial RAM disk the connections go where the next system picks them up, else straight to NetworkManager.
if [ -f "$root/etc/initrd-release" ]; then
    target="$root/etc/coreos-firstboot-network"
else
    target="$root/etc/NetworkManager/system-connections"
fi

# MAC in capital letters -> name of the interface.
declare -A nic_of

list_interfaces() {
    local path
    for path in "$root"/sys/class/net/*; do
        [ "${path##*/}" = lo ] || echo "${path##*/}"
    done
}

# Drivers bring interfaces up one by one: wait until the list stays the same, for half a minute at most.
read_interfaces() {
    local before now same=0 waited=0 need="${STABLE_SECONDS:-3}" name mac
    before="$(list_interfaces)"
    while [ "$same" -lt "$need" ] && [ "$waited" -lt 30 ]; do
        sleep 1
        waited=$((waited + 1))
        now="$(list_interfaces)"
        if [ -n "$now" ] && [ "$now" = "$before" ]; then same=$((same + 1)); else same=0; fi
        before="$now"
    done
    [ "$same" -ge "$need" ] || echo "the interfaces still change after $waited seconds: going on with those that are there"
    for name in $(list_interfaces); do
        mac="$(cat "$root/sys/class/net/$name/address" 2>/dev/null)"
        [ -z "$mac" ] || nic_of[${mac^^}]="$name"
    done
}

# The lines of a mapping file, `MAC=name`; the last one has no newline.
mappings() {
    local line
    while read -r line || [ -n "$line" ]; do
        [ -z "$line" ] || echo "$line"
    done < "$1"
}

# Does that host's folder name a MAC of this machine?
is_ours() {
    local line mac
    for line in $(mappings "$1/$mapping"); do
        mac="${line%%=*}"
        [ -z "${nic_of[${mac^^}]:-}" ] || return 0
    done
    return 1
}
