use super::*;
use proptest::prelude::*;

struct Image {
    tree: Tree,
    layer: u16,
}

impl Image {
    fn new() -> Self {
        Self { tree: Tree::new(), layer: 0 }
    }

    fn layer(&mut self) -> Layer<'_> {
        Layer { tree: &mut self.tree, number: self.layer, marks: Marks::Whiteouts }
    }

    fn put(&mut self, path: &str, kind: Kind) -> Result<(), ApplyError> {
        self.layer().put(path.as_bytes(), Meta::root(0o700), None, kind)
    }

    fn dir(&mut self, path: &str) {
        self.put(path, Kind::dir()).unwrap();
    }

    fn file(&mut self, path: &str) {
        self.put(path, Kind::Fifo).unwrap();
    }

    fn link(&mut self, path: &str, target: &str) {
        self.put(path, Kind::Symlink(target.as_bytes().into())).unwrap();
    }

    /// Mode of the node at a path without links, and whether it is a directory.
    fn at(&self, path: &str) -> Option<(u16, bool)> {
        let mut node = ROOT;
        for part in path.split('/') {
            node = self.tree.lookup(node, part.as_bytes())?.node;
        }
        let node = self.tree.node(node);
        Some((node.meta.mode, matches!(node.kind, Kind::Dir(_))))
    }
}

#[test]
fn missing_parents_are_made_and_existing_ones_keep_their_mode() {
    let mut image = Image::new();
    image.dir("tmp");
    image.layer = 1;
    image.file("tmp/a");
    image.file("new/sub/a");
    assert_eq!(image.at("tmp"), Some((0o700, true)));
    assert_eq!(image.at("new/sub"), Some((0o755, true)));
}

#[test]
fn whiteouts_remove_only_what_is_below() {
    let mut image = Image::new();
    image.file("a");
    image.file("d/old");
    image.file("b");
    image.layer = 1;
    image.file("d/new");
    image.file(".wh.d");
    image.file(".wh.a");
    image.file("a");
    image.file(".wh.b");
    assert!(image.at("a").is_some());
    assert!(image.at("b").is_none());
    assert!(image.at("d/old").is_none());
    assert!(image.at("d/new").is_some());
}

#[test]
fn opaque_in_either_order() {
    for first in [true, false] {
        let mut image = Image::new();
        image.file("d/old/x");
        image.layer = 1;
        if first {
            image.file("d/.wh..wh..opq");
        }
        image.file("d/new");
        image.file("d/old/y");
        if !first {
            image.file("d/.wh..wh..opq");
        }
        assert!(image.at("d/old/x").is_none());
        assert!(image.at("d/old/y").is_some());
        assert!(image.at("d/new").is_some());
    }
}

#[test]
fn types_replace_each_other() {
    let mut image = Image::new();
    image.file("d/x");
    image.file("f");
    image.layer = 1;
    image.file("d");
    image.dir("f");
    assert_eq!(image.at("d"), Some((0o700, false)));
    assert_eq!(image.at("f"), Some((0o700, true)));
}

#[test]
fn escapes_are_refused_or_contained() {
    let mut image = Image::new();
    assert_eq!(image.put("../x", Kind::Fifo), Err(ApplyError::Escapes));
    assert_eq!(image.put("a/../../x", Kind::Fifo), Err(ApplyError::Escapes));
    image.file("/../top");
    assert!(image.at("top").is_some());
    image.link("out", "../../../etc");
    image.file("out/passwd");
    assert!(image.at("etc/passwd").is_some());
    image.link("abs", "/var/../../lib");
    image.file("abs/x");
    assert!(image.at("lib/x").is_some());
    image.link("loop", "loop");
    assert_eq!(image.put("loop/x", Kind::Fifo), Err(ApplyError::TooManyLinks));
    assert_eq!(image.layer().hard_link(b"h", b"../../etc/passwd", Meta::root(0o644)), Err(ApplyError::Escapes));
    assert!(matches!(image.layer().hard_link(b"h", b"etc/shadow", Meta::root(0o644)), Err(ApplyError::NoTarget(_))));
    image.layer().hard_link(b"h", b"out/passwd", Meta::root(0o640)).unwrap();
    assert!(image.at("h").is_some());
}

#[test]
fn a_link_below_is_covered_and_one_of_the_layer_followed() {
    let mut image = Image::new();
    image.link("lib", "usr/lib");
    image.dir("usr/lib");
    image.file("lib/a");
    assert!(image.at("usr/lib/a").is_some());
    image.layer = 1;
    image.file("lib/b");
    assert_eq!(image.at("lib"), Some((0o755, true)));
    assert!(image.at("lib/b").is_some());
    assert_eq!(image.put("lib/b/c", Kind::Fifo), Err(ApplyError::NotADirectory));
}

#[test]
fn literal_names() {
    let mut image = Image::new();
    let mut layer = image.layer();
    layer.marks = Marks::Literal;
    layer.put(b".wh.x", Meta::root(0), None, Kind::Fifo).unwrap();
    assert!(image.at(".wh.x").is_some());
}

proptest! {
    #[test]
    fn any_paths_keep_the_tree_sound(
        paths in proptest::collection::vec(("[ab./]{0,12}", "[ab./]{1,12}", 0u8..6), 0..60)
    ) {
        let mut image = Image::new();
        for (i, (path, target, what)) in paths.iter().enumerate() {
            image.layer = (i / 20) as u16;
            let _ = match what {
                0 => image.put(path, Kind::dir()),
                1 => image.put(path, Kind::Symlink(target.as_bytes().into())),
                2 => image.layer().hard_link(path.as_bytes(), target.as_bytes(), Meta::root(0o644)),
                3 => image.put(&format!("{path}/.wh.a"), Kind::Fifo),
                4 => image.put(&format!("{path}/.wh..wh..opq"), Kind::Fifo),
                _ => image.put(path, Kind::Fifo),
            };
        }
        // Every name leads to a live node, and the links of each are the names that lead to it.
        let mut names = vec![0; image.tree.node_count()];
        let mut open = vec![ROOT];
        while let Some(id) = open.pop() {
            if let Kind::Dir(entries) = &image.tree.node(id).kind {
                for entry in entries.values() {
                    names[Tree::index(entry.node)] += 1;
                    if names[Tree::index(entry.node)] == 1 {
                        open.push(entry.node);
                    }
                    prop_assert!(image.tree.node(entry.node).links >= names[Tree::index(entry.node)]);
                }
            }
        }
    }
}
