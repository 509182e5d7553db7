# Which links `systemctl preset` would make for the units that Ignition enables: that program looks at every unit of the system
# first, which takes an emulated processor a quarter of a second.
#
# Input: a preset file. `units`: the folder with Ignition's units; `dropins`: the files in folders beside them. Prints `link
# TARGET.wants UNIT` for those whose [Install] section only says who wants or requires them, and `ask UNIT` for all others, which
# are systemctl's.

# Has a file beside the unit an [Install] section?
function dropped_in(unit,    files, many, number, line) {
    many = split(dropins, files, " ");
    for (number = 1; number <= many; number++) {
        if (index(files[number], units "/" unit ".d/") != 1) continue;
        while ((getline line < files[number]) > 0) if (line ~ /^[ \t]*\[Install\]/) { close(files[number]); return 1 }
        close(files[number]);
    }
    return 0;
}

function plain(unit,    line, at, inside, goes_on, links, kind, many, number, names, path) {
    if (unit !~ /^[A-Za-z0-9_.-]+$/ || dropped_in(unit)) return "";
    path = units "/" unit;
    while ((getline line < path) > 0) {
        # What follows a backslash belongs to the line before.
        if (goes_on && !inside) { goes_on = (line ~ /\\$/); continue }
        goes_on = (line ~ /\\$/);
        if (goes_on && inside) { close(path); return "" }
        sub(/^[ \t]+/, "", line); sub(/[ \t]+$/, "", line);
        if (line ~ /^\[/) { inside = (line == "[Install]"); continue }
        if (!inside || line == "" || line ~ /^[#;]/) continue;
        at = index(line, "=");
        kind = substr(line, 1, at - 1); sub(/[ \t]+$/, "", kind);
        if (kind == "WantedBy") kind = ".wants"; else if (kind == "RequiredBy") kind = ".requires"; else { close(path); return "" }
        many = split(substr(line, at + 1), names, /[ \t]+/);
        for (number = 1; number <= many; number++) {
            if (names[number] == "") continue;
            if (names[number] !~ /^[A-Za-z0-9_.-]+$/) { close(path); return "" }
            links = links "link " names[number] kind " " unit "\n";
        }
    }
    close(path);
    return links;
}

$1 == "enable" && NF == 2 {
    links = plain($2);
    if (links != "") { printf "%s", links; next }
}
$1 == "enable" || $1 == "disable" { print "ask " $2 }
