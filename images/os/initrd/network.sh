# The network of the initrd: needed to fetch a root file system or a configuration, not otherwise. Static addresses come as
# NetworkManager key files, the same that NetworkManager reads later (`iso network embed`, `--copy-network`, the minimal ISO of
# the service), or as `ip=` on the kernel's command line; without either every Ethernet device asks by DHCP.
#
# The last is begun at once, beside everything else that happens here. A machine that needs no more than IPv4 addresses by DHCP
# keeps them, and NetworkManager is not started (its units have the condition that LEASES is not there): under emulation it would
# take longer to start than the kernel. Whoever has key files, a unit that speaks of NetworkManager, or IPv6, gets it as ever.

FILES=/etc/coreos-firstboot-network
LEASES=/run/vlab/leases
# Of addresses and routes in key files: nmstate counts from 0, people from 1.
NUMBERS='0 1 2 3 4 5 6 7 8 9'

# Prints the Ethernet devices.
nics() {
    for nic in /sys/class/net/*; do
        [ -e "$nic/device" ] && [ "$(cat "$nic/type")" = 1 ] && echo "${nic##*/}"
    done
}

# Prints the device with this MAC address.
nic_with_mac() {
    for nic in $(nics); do
        [ "$(tr a-z A-Z < "/sys/class/net/$nic/address")" = "$(echo "$1" | tr a-z A-Z)" ] && echo "$nic"
    done
}

# The service's static networks (minimal ISO): its unit's program writes the key files for this machine.
static_networks() {
    unit=/etc/systemd/system/initrd.target.wants/pre-network-manager-config.service
    [ -e $unit ] || [ -L $unit ] || return 0
    program=$(sed -n 's/^ExecStart=//p' /etc/systemd/system/pre-network-manager-config.service)
    [ -x "$program" ] || { log 3 "static network: $program is missing"; return 0; }
    # shellcheck disable=SC2046 # one word per variable
    env $(sed -n 's/^Environment=//p' /etc/systemd/system/pre-network-manager-config.service) "$program" \
        > /run/vlab/static-network.log 2>&1 || log 3 "static network: $(tail -n 1 /run/vlab/static-network.log)"
}

# `ip=` and `nameserver=` of the kernel's command line as a key file. Forms: dhcp, DEVICE:dhcp,
# ADDRESS::GATEWAY:MASK-OR-PREFIX:HOST:DEVICE:none[:MTU][:DNS]; an IPv6 address stands in brackets.
kargs_to_files() {
    for word in $(cat /proc/cmdline); do
        case $word in
            ip=*:dhcp | ip=dhcp | ip=*:auto | ip=*:on | ip=*:dhcp6 | ip=dhcp6 | ip=auto | ip=on) ;;
            ip=*)
                # The colons of IPv6 addresses out of the way.
                fields=$(echo "${word#ip=}" | awk '{
                    while (match($0, /\[[^]]*\]/)) {
                        a = substr($0, RSTART + 1, RLENGTH - 2); gsub(/:/, "%", a)
                        $0 = substr($0, 1, RSTART - 1) a substr($0, RSTART + RLENGTH)
                    }
                    print
                }')
                address=$(echo "$fields" | cut -d: -f1 | tr % :)
                gateway=$(echo "$fields" | cut -d: -f3 | tr % :)
                mask=$(echo "$fields" | cut -d: -f4)
                device=$(echo "$fields" | cut -d: -f6)
                dns=$(echo "$fields" | cut -d: -f8- | tr : '\n' | grep -E '[.%]' | tr % : | tr '\n' ';')
                [ -n "$address" ] && [ -n "$device" ] || { log 3 "not understood: $word"; continue; }
                case $mask in *.*) mask=$(ipcalc -p 0.0.0.0 "$mask" | cut -d= -f2) ;; esac
                for more in $(cat /proc/cmdline); do
                    case $more in nameserver=*) dns="$dns${more#nameserver=};" ;; esac
                done
                case $address in *:*) family=ipv6 other=ipv4 ;; *) family=ipv4 other=ipv6 ;; esac
                mkdir -p $FILES
                {
                    printf '[connection]\nid=%s\ntype=ethernet\ninterface-name=%s\nautoconnect=true\n\n' "$device" "$device"
                    printf '[%s]\nmethod=manual\naddress1=%s/%s%s\n' $family "$address" "$mask" "${gateway:+,$gateway}"
                    [ -z "$dns" ] || echo "dns=$dns"
                    printf '\n[%s]\nmethod=disabled\n' $other
                } > "$FILES/$device.nmconnection"
                chmod 600 "$FILES/$device.nmconnection"
                ;;
        esac
    done
}

# Value of key $3 in section [$2] of the key file $1.
key() {
    awk -F= -v section="[$2]" -v key="$3" '
        /^\[/ { inside = ($0 == section); next }
        inside && $1 == key { print substr($0, length(key) + 2); exit }' "$1"
}

# One key file: Ethernet and VLAN with addresses, routes and name servers.
apply_file() {
    file=$1
    device=$(key "$file" connection interface-name)
    mac=$(key "$file" ethernet mac-address)
    [ -z "$mac" ] || device=$(nic_with_mac "$mac")
    case $(key "$file" connection type) in
        ethernet | 802-3-ethernet) ;;
        vlan)
            parent=$(key "$file" vlan parent)
            modprobe -q 8021q
            ip link set "$parent" up 2> /dev/null
            [ -e "/sys/class/net/$device" ] \
                || ip link add link "$parent" name "$device" type vlan id "$(key "$file" vlan id)" || return 1
            ;;
        *)
            log 3 "${file##*/}: the initrd can do Ethernet and VLAN only; it is used by NetworkManager later"
            return 1
            ;;
    esac
    [ -n "$device" ] && [ -e "/sys/class/net/$device" ] || { log 4 "${file##*/}: no such device here"; return 1; }
    ip link set "$device" up
    result=1
    for family in ipv4 ipv6; do
        method=$(key "$file" $family method)
        case $family,$method in
            ipv4,auto) dhcp "$device" && result=0 ;;
            ipv6,auto) [ $result = 0 ] || wait_ipv6 "$device" && result=0 ;;
            *,manual)
                for number in $NUMBERS; do
                    value=$(key "$file" $family address$number)
                    [ -n "$value" ] || continue
                    # Without duplicate detection: the address is to be usable at once.
                    [ $family = ipv4 ] || echo 0 > "/proc/sys/net/ipv6/conf/$device/accept_dad"
                    ip addr replace "${value%%,*}" dev "$device" && result=0
                    case $value in *,*) ip route add default via "${value#*,}" dev "$device" 2> /dev/null ;; esac
                done
                value=$(key "$file" $family gateway)
                [ -z "$value" ] || ip route add default via "$value" dev "$device" 2> /dev/null
                for number in $NUMBERS; do
                    value=$(key "$file" $family route$number)
                    [ -n "$value" ] || continue
                    to=${value%%,*}
                    via=$(echo "$value" | cut -d, -f2 -s)
                    ip route add "$to" ${via:+via "$via"} dev "$device" 2> /dev/null
                done
                ;;
        esac
        for server in $(key "$file" $family dns | tr ';' ' '); do
            grep -q -s -x "nameserver $server" /etc/resolv.conf || echo "nameserver $server" >> /etc/resolv.conf
        done
    done
    return $result
}

# An address by DHCP. Budget: 20 s a device.
dhcp() {
    udhcpc -i "$1" -s /lib/dhcp-event -n -q -f -p "/run/vlab/dhcp-$1.pid" -t 20 -T 1 -O search -O ntpsrv \
        > "/run/vlab/dhcp-$1.log" 2>&1
}

# Begins to ask by DHCP, unless something else is given.
network_begin() {
    ip link set lo up
    static_networks
    kargs_to_files
    [ ! -d $FILES ] || return 0
    [ -n "$(nics)" ] || coldplug
    mkdir -p $LEASES
    for nic in $(nics); do
        # Routers are to be asked at once: whether there is IPv6 is to be known before the initrd is done.
        echo 0 > "/proc/sys/net/ipv6/conf/$nic/router_solicitation_delay"
        echo 0 > "/proc/sys/net/ipv6/conf/$nic/accept_dad"
        ip link set "$nic" up
        dhcp "$nic" &
    done
}

# Waits until every Ethernet device with a cable has an address of those that were asked for. Budget: $1 seconds.
leases_came() {
    [ -d $LEASES ] || return 1
    tries=0
    until
        missing=
        for nic in $(nics); do
            [ -s "$LEASES/$nic" ] || [ "$(cat "/sys/class/net/$nic/carrier" 2> /dev/null)" = 0 ] || missing=$nic
        done
        [ -z "$missing" ]
    do
        tries=$((tries + 1))
        [ $tries -le $(($1 * 20)) ] || return 1
        usleep 50000
    done
    set -- "$LEASES"/*
    [ -e "$1" ]
}

# Are those addresses all that this machine needs? Then it keeps them.
network_kept() {
    [ -d $LEASES ] || return 1
    for file in /sysroot/etc/NetworkManager/system-connections/*; do
        [ ! -e "$file" ] || { log 5 "network: NetworkManager has ${file##*/}"; return 1; }
    done
    # One that only wants to come later does not need it.
    if cat /sysroot/etc/systemd/system/*.service 2> /dev/null | grep -v '^After=NetworkManager.service$' \
        | grep -q -E 'NetworkManager|nmstate|nmcli'; then
        log 5 "network: a unit speaks of NetworkManager"
        return 1
    fi
    leases_came 5 || { log 5 "network: no address by DHCP yet"; return 1; }
    if ip -6 route show | grep -q '^default'; then
        log 5 "network: there is IPv6, too"
        return 1
    fi
    rm -f /sysroot/etc/resolv.conf
    cp /etc/resolv.conf /sysroot/etc/resolv.conf
    for file in $LEASES/*; do
        hostname=
        ntpsrv=
        . "$file"
        [ -z "$hostname" ] || [ -s /sysroot/etc/hostname ] || echo "$hostname" > /proc/sys/kernel/hostname
        mkdir -p /run/chrony-dhcp
        for server in $ntpsrv; do
            echo "server $server iburst" >> "/run/chrony-dhcp/${file##*/}.sources"
        done
    done
    log 5 "network: $(ip -o addr show scope global | awk '{print $2, $4}' | tr '\n' ' ')"
}

# Is there an address by router advertisement? Then the router is the name server, unless there is one: the kernel does not tell
# which one was advertised, and there is no DHCPv6 here.
ipv6_came() {
    ip -6 addr show dev "$1" scope global 2> /dev/null | grep -q 'inet6' || return 1
    grep -q -s '^nameserver' /etc/resolv.conf \
        || ip -6 route show default dev "$1" | sed -n "s/.*via \([^ ]*\).*/nameserver \1%$1/p" > /etc/resolv.conf
}

# An address by router advertisement. Budget: 10 s.
wait_ipv6() {
    for _ in $(seq 100); do
        ipv6_came "$1" && return 0
        usleep 100000
    done
    return 1
}

# Fails when no device has an address in the end.
network_up() {
    [ ! -e /run/vlab/network-up ] || return 0
    coldplug
    for _ in $(seq 100); do
        [ -z "$(nics)" ] || break
        usleep 100000
    done
    leases_came 5 && { : > /run/vlab/network-up; return 0; }
    # A network without IPv4 does not keep anybody waiting.
    for nic in $(nics); do
        [ -d $LEASES ] && ipv6_came "$nic" || continue
        log 5 "network: $nic has an address by router advertisement, and none by DHCP"
        : > /run/vlab/network-up
        return 0
    done
    leases_came 15 && { : > /run/vlab/network-up; return 0; }
    # Not `up`: that is the time in a line of the log.
    nothing=1
    for file in $FILES/*.nmconnection; do
        [ ! -f "$file" ] || ! apply_file "$file" || nothing=0
    done
    if [ $nothing != 0 ]; then
        for nic in $(nics); do
            ip link set "$nic" up
        done
        for nic in $(nics); do
            dhcp "$nic" && { nothing=0; break; }
        done
    fi
    if [ $nothing != 0 ]; then
        for nic in $(nics); do
            wait_ipv6 "$nic" && { nothing=0; break; }
        done
    fi
    [ $nothing = 0 ] && : > /run/vlab/network-up && log 5 "network: $(ip -o addr show scope global 2> /dev/null | awk '{print $2, $4}' | tr '\n' ' ')"
    return $nothing
}

# Waits for the network as long as it takes: a cable or a DHCP server may come back. $1 needs it.
network_wait() {
    until network_up; do
        log 4 "$1 needs the network, and there is none yet; trying again"
    done
}

# NetworkManager is to find devices as if nobody had used them: it keeps its hands off those that somebody has set up.
network_down() {
    rm -rf $LEASES
    # Not only the shells around udhcpc: it would ask on with the address of whatever its device becomes a part of.
    # shellcheck disable=SC2046 # one word per number
    kill $(jobs -p) $(cat /run/vlab/dhcp-*.pid 2> /dev/null) 2> /dev/null
    for link in /proc/net/vlan/*; do
        case ${link##*/} in
            config | '*') ;;
            *) ip link delete "${link##*/}" ;;
        esac
    done
    for nic in $(nics); do
        ip addr flush dev "$nic"
        ip link set "$nic" down
        echo 1 > "/proc/sys/net/ipv6/conf/$nic/accept_dad"
        echo 1 > "/proc/sys/net/ipv6/conf/$nic/router_solicitation_delay"
    done
}

# Fetches the root file system from $1 to /run/vlab/rootfs.img and compares it with the checksums that belong to this initrd.
fetch_rootfs() {
    proxy=/etc/systemd/system/coreos-livepxe-rootfs.service.d/10-proxy.conf
    if [ -f $proxy ]; then
        for pair in $(sed -n 's/^Environment=//p' $proxy | sed 's/"//g; s/%%/%/g'); do
            export "${pair?}"
        done
    fi
    tries=0
    # Not `wget -T`: with that option Debian's busybox-static (1.35.0) crashes.
    until timeout 600 wget -q -O /run/vlab/rootfs.img "$1" 2> /run/vlab/wget.log; do
        tries=$((tries + 1))
        log 3 "cannot fetch $1: $(tail -n 1 /run/vlab/wget.log) (attempt $tries)"
        [ $tries -lt 20 ] || fail "the root file system cannot be fetched from $1"
        sleep 3
    done
    log 5 "fetched $1"
    read -r _ _ block < /etc/coreos-live-want-rootfs
    number=0
    sed 1d /etc/coreos-live-want-rootfs | while read -r want; do
        is=$(dd if=/run/vlab/rootfs.img bs="$block" skip=$number count=1 2> /dev/null | sha256sum)
        [ "${is%% *}" = "$want" ] || { log 3 "block $number of $1 is not the one that belongs to this initrd"; return 1; }
        number=$((number + 1))
    done || fail "what was fetched from $1 is not the root file system of this initrd (not whole, or of another version)"
    log 5 "root file system is the right one"
}

# What was given to the initrd is for NetworkManager, too. Files that Ignition wrote win.
apply_network_files() {
    [ -d $FILES ] || return 0
    to=/sysroot/etc/NetworkManager/system-connections
    mkdir -p $to
    for file in $FILES/*.nmconnection; do
        [ ! -f "$file" ] || [ -e "$to/${file##*/}" ] || cp "$file" "$to/"
    done
    chmod 600 $to/* 2> /dev/null
    return 0
}
