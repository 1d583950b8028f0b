//! Which kernel modules the guest needs before it can reach its disks, and in which order. Pure.

use std::collections::HashSet;

/// What the agent needs to find its devices. Missing ones are built into the kernel.
pub(crate) const EARLY: [&str; 5] = ["virtio_mmio", "virtio_console", "virtio_blk", "virtio_net", "virtio_rng"];
/// Names under which kernels ship some of them.
const ALSO_CALLED: [(&str, &str); 1] = [("virtio_rng", "virtio-rng")];
/// Deepest chain of dependencies that is followed.
const DEPTH_MAX: usize = 16;

fn stem(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.split_once(".ko").map_or(name, |(stem, _)| stem)
}

/// Paths of modules relative to the module tree, each after all that it depends on, from the text of `modules.dep`.
pub(crate) fn load_order<'a>(modules_dep: &'a str, wanted: &[&str]) -> Vec<&'a str> {
    let lines: Vec<(&str, Vec<&str>)> = modules_dep
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(path, needs)| (path.trim(), needs.split_whitespace().collect()))
        .collect();
    let find = |name: &str| {
        let also = ALSO_CALLED.iter().find(|(a, _)| *a == name).map(|(_, b)| *b);
        lines.iter().find(|(path, _)| stem(path) == name || Some(stem(path)) == also)
    };
    let mut order = Vec::new();
    let mut seen = HashSet::new();
    for name in wanted {
        if let Some((path, _)) = find(name) {
            visit(path, &lines, &mut seen, &mut order, 0);
        }
    }
    order
}

fn visit<'a>(
    path: &'a str,
    lines: &[(&'a str, Vec<&'a str>)],
    seen: &mut HashSet<&'a str>,
    order: &mut Vec<&'a str>,
    depth: usize,
) {
    if depth > DEPTH_MAX || !seen.insert(path) {
        return;
    }
    let needs = lines.iter().find(|(p, _)| *p == path).map(|(_, needs)| needs.as_slice()).unwrap_or_default();
    // modules.dep lists the nearest dependency first.
    for need in needs.iter().rev() {
        visit(need, lines, seen, order, depth + 1);
    }
    order.push(path);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_come_first_and_once() {
        let dep = "kernel/net/core/failover.ko:\nkernel/d/net_failover.ko: kernel/net/core/failover.ko\n\
                   kernel/d/virtio_net.ko: kernel/d/net_failover.ko kernel/net/core/failover.ko\n\
                   kernel/d/virtio-rng.ko.xz:\n";
        let order = load_order(dep, &["virtio_blk", "virtio_net", "virtio_rng", "failover"]);
        assert_eq!(
            order,
            [
                "kernel/net/core/failover.ko",
                "kernel/d/net_failover.ko",
                "kernel/d/virtio_net.ko",
                "kernel/d/virtio-rng.ko.xz"
            ]
        );
    }

    #[test]
    fn a_cycle_ends() {
        assert_eq!(load_order("a.ko: b.ko\nb.ko: a.ko\n", &["a"]), ["b.ko", "a.ko"]);
    }
}
