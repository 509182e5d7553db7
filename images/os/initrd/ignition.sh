# Runs Ignition on /sysroot, stage by stage, with the configuration of this machine.

ignition() {
    # The program and its libraries are in the root file system; what it works on is seen from here.
    /sysroot/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2 --library-path /sysroot/usr/lib/x86_64-linux-gnu \
        /sysroot/usr/lib/dracut/modules.d/30ignition/ignition --root=/sysroot --platform="$platform" --log-to-stdout "$@"
}

run_ignition() {
    platform=$(karg ignition.platform.id) || platform=metal
    mkdir -p /usr/lib/ignition /run/ignition /sysroot/var/log/ignition
    # Live: from the embed area of the ISO, or from one more initrd. On disk: where coreos-installer puts it.
    for config in /config.ign /sysroot/boot/ignition/config.ign; do
        if [ -f $config ]; then
            cp $config /usr/lib/ignition/user.ign
            break
        fi
    done
    for stage in fetch-offline fetch kargs disks mount files umount; do
        if [ $stage = fetch ]; then
            [ -e /run/ignition/neednet ] || [ ! -e /run/ignition.json ] || continue
            network_wait Ignition
        fi
        # Stages that have nothing to do in this configuration: starting the program takes longer than what it does.
        case $stage in
            kargs) wanted='"shouldExist":\|"shouldNotExist":' ;;
            disks | mount | umount) wanted='"\(disks\|filesystems\|luks\|raid\)":' ;;
            *) wanted=. ;;
        esac
        [ ! -s /run/ignition.json ] || grep -q "$wanted" /run/ignition.json || continue
        [ $stage != disks ] || storage_came
        ignition --stage=$stage > /run/ignition/$stage.log 2>&1 || {
            cp /run/ignition/*.log /sysroot/var/log/ignition/
            tail -n 20 /run/ignition/$stage.log > /dev/console
            fail "Ignition, stage $stage: $(grep -i -E 'crit|failed|error' /run/ignition/$stage.log | tail -n 1)"
        }
    done
    cp /run/ignition/*.log /sysroot/var/log/ignition/
    # What a first boot of systemd does for all units is done already for those of the image; here for those of Ignition.
    presets=/sysroot/etc/systemd/system-preset/20-ignition.preset
    if [ -f $presets ]; then
        units=/sysroot/etc/systemd/system
        set -- $units/*.d/*.conf
        awk -v units=$units -v dropins="$*" -f /lib/preset.awk $presets > /run/vlab/presets
        asked=
        while read -r verb to unit; do
            if [ "$verb" = link ]; then
                mkdir -p "$units/$to"
                ln -sf "/etc/systemd/system/$unit" "$units/$to/$unit"
            else
                asked="$asked $to"
            fi
        done < /run/vlab/presets
        # shellcheck disable=SC2086 # one word per unit
        if [ -n "$asked" ] && ! chroot /sysroot systemctl preset --quiet $asked 2> /run/vlab/preset.log; then
            # One that is not there keeps none of the others from starting.
            for unit in $asked; do
                chroot /sysroot systemctl preset --quiet "$unit" 2> /run/vlab/preset.log \
                    || log 4 "systemctl preset: $(tail -n 1 /run/vlab/preset.log)"
            done
        fi
    fi
    # Only once: the next boot of the disk is not the first.
    rm -rf /sysroot/boot/ignition.firstboot /sysroot/boot/ignition
    log 5 Ignition is done
}
