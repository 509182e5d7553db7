#!/bin/bash
# Gives NetworkManager the connections that were made for this machine, before it starts. The service cannot know what the
# kernel calls the interfaces: the connections have the user's names, and mac_interface.ini says which MAC each name means.
source "${COMMON_SCRIPT_PATH:-/usr/local/bin/common_network_script.sh}"

echo "PreNetworkConfig Start"
read_interfaces

# MAC in capital letters -> the user's name, of all hosts.
declare -A name_of
for file in "$configs"/host*/"$mapping"; do
    [ -f "$file" ] || continue
    for line in $(mappings "$file"); do
        mac="${line%%=*}"
        name_of[${mac^^}]="${line#*=}"
    done
done

done_dir="$(mktemp -d)"

# An interface's name has 15 characters at most: that of a VLAN is shortened before its number.
vlan_name() {
    local nic="$1" id="$2" room
    room=$((15 - ${#id} - 1))
    echo "${nic:0:$room}.$id"
}

apply_host() {
    local dir="$1" work line mac nic name file base rest id full short
    work="$(mktemp -d)"
    declare -A shortened=()
    cp "$dir"/*.nmconnection "$work"/
    for line in $(mappings "$dir/$mapping"); do
        mac="${line%%=*}"
        nic="${nic_of[${mac^^}]:-}"
        name="${name_of[${mac^^}]:-}"
        [ -n "$nic" ] && [ -n "$name" ] || continue
        mkdir -p "$work/named"
        # The connection of the interface itself and those of its VLANs begin with the user's name.
        for file in "$work"/*.nmconnection; do
            [ -f "$file" ] || continue
            base="${file##*/}"
            rest="${base#*.}"
            [ "${base%%.*}" = "$name" ] || continue
            full="$nic"
            if [ "$rest" != nmconnection ]; then
                id="${rest%%.*}"
                short="$(vlan_name "$nic" "$id")"
                if [ "$short" != "$nic.$id" ]; then
                    shortened["$nic.$id"]="$short"
                    full="${short%.*}"
                fi
            fi
            mv -f "$file" "$work/named/$full.$rest"
        done
    done
    # Bonds, bridges and what else is no interface of the machine keep their names.
    for file in "$work"/*.nmconnection; do
        [ -f "$file" ] || continue
        mkdir -p "$work/named"
        if [ -e "$done_dir/${file##*/}" ]; then
            echo "the connection ${file##*/} is there already: choose another name"
        else
            mv -f "$file" "$work/named/"
        fi
    done
    for line in $(mappings "$dir/$mapping"); do
        mac="${line%%=*}"
        nic="${nic_of[${mac^^}]:-}"
        name="${name_of[${mac^^}]:-}"
        [ -n "$nic" ] && [ -n "$name" ] || continue
        for file in "$work"/named/*.nmconnection; do
            [ -f "$file" ] || continue
            sed -i -e "s/=$name\$/=$nic/" -e "s/=$name\\./=$nic./g" "$file"
            for full in "${!shortened[@]}"; do
                sed -i "s/=$full/=${shortened[$full]}/g" "$file"
            done
        done
    done
    cp "$work"/named/* "$done_dir"/ 2>/dev/null
    rm -rf "$work"
}

for dir in "$configs"/host*; do
    if [ ! -f "$dir/$mapping" ] || ! ls "$dir"/*.nmconnection > /dev/null 2>&1; then
        echo "$dir is incomplete: left out"
    elif is_ours "$dir"; then
        echo "$dir is for this machine"
        apply_host "$dir"
    fi
done

if [ -n "$(ls -A "$done_dir")" ]; then
    # The connection that was made for a boot without configuration would compete with these.
    mkdir -p "$target"
    rm -f "$target"/*
    cp -v "$done_dir"/* "$target"/
    chmod 600 "$target"/*
else
    echo "no configuration is for this machine"
fi
rm -rf "$done_dir"
echo "PreNetworkConfig End"
