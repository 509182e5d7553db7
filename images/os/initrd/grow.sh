# Makes the last partition and its file system as large as the disk: the image that coreos-installer writes is small.

# $1: device of the partition; 4 is its number in every image of the lab OS.
grow() {
    disk=${1%4}
    disk=${disk%p}
    [ "${disk#/dev/}" != "${1#/dev/}" ] || { log 4 "$1 is not a fourth partition: not grown"; return; }
    mkdir -p /run/vlab/disk /run/vlab/squashfs
    # The programs for it are in the root file system on that partition, and see it where they can: only then does
    # resize2fs know that it is in use and asks the kernel.
    mount -t ext4 -o noinit_itable "$1" /run/vlab/disk || fail "$1 cannot be mounted"
    loop=$(losetup -f)
    losetup -r "$loop" /run/vlab/disk/root.squashfs && mount -t squashfs -o ro "$loop" /run/vlab/squashfs || fail "no root"
    for at in dev proc sys; do
        mount --bind "/$at" "/run/vlab/squashfs/$at"
    done
    mount --bind /run/vlab/disk /run/vlab/squashfs/mnt
    # The same table once more, but for where the disk ends and for the size of the last partition, which is then all there is.
    # That also puts the table's copy at the end of the disk.
    {
        chroot /run/vlab/squashfs sfdisk --dump "$disk" > /run/vlab/partitions \
            && sed -i -e '/^last-lba:/d' -e '/^[^ ]*4 :/s/ size= *[0-9]*,//' /run/vlab/partitions \
            && chroot /run/vlab/squashfs sfdisk --no-reread --force --no-tell-kernel "$disk" < /run/vlab/partitions \
            && chroot /run/vlab/squashfs partx --update --nr 4 "$disk" \
            && chroot /run/vlab/squashfs resize2fs "$1"
    } > /run/vlab/grow.log 2>&1 || { cat /run/vlab/grow.log > /dev/console; fail "$1 cannot be grown"; }
    for at in dev proc sys mnt; do
        umount "/run/vlab/squashfs/$at"
    done
    umount /run/vlab/squashfs
    losetup -d "$loop"
    umount /run/vlab/disk
    log 5 "$1 grown"
}
