use crate::printer::{Table, View, human_size, short_digest, short_duration};
use serde_json::{Value, json};
use warren_proto::http::{Image, ImageBuildState};

/// Images of the server.
#[derive(Debug)]
pub(super) struct ImagesView {
    pub(super) images: Vec<Image>,
    /// For ages, milliseconds since 1970.
    pub(super) now_ms: u64,
}

/// One image that was just made ready.
#[derive(Debug)]
pub(super) struct ImageView {
    pub(super) image: Image,
}

/// Pulls and conversions under way.
#[derive(Debug)]
pub(super) struct PullsView {
    pub(super) builds: Vec<ImageBuildState>,
}

impl View for PullsView {
    fn table(&self) -> String {
        let mut table = Table::new(&["ID", "REFERENCE", "STEP", "LAYERS", "BYTES", "WAITS FOR"]);
        for build in &self.builds {
            let of = |total: Option<String>| total.map_or(String::new(), |total| format!(" of {total}"));
            let layers = format!("{}{}", build.layers_done, of(build.layers_total.map(|n| n.to_string())));
            let bytes = format!("{}{}", human_size(build.bytes_done), of(build.bytes_total.map(human_size)));
            let waiting = build.waiting.clone().unwrap_or_else(|| "-".to_owned());
            let (id, reference, step) = (build.id.clone(), build.reference.clone(), build.step.clone());
            table.row([id, reference, step, layers, bytes, waiting]);
        }
        table.render()
    }

    fn json(&self) -> Value {
        json!({ "builds": self.builds })
    }

    fn ids(&self) -> Vec<String> {
        self.builds.iter().map(|build| build.id.clone()).collect()
    }
}

impl View for ImagesView {
    fn table(&self) -> String {
        let mut table = Table::new(&["REFERENCE", "DIGEST", "SIZE", "ARCH", "AGE"]);
        for image in &self.images {
            let age = short_duration(self.now_ms.saturating_sub(image.created_at.as_ms()) / 1000);
            let (reference, arch) = (image.reference.clone(), image.architecture.clone());
            table.row([reference, short_digest(&image.digest), human_size(image.size_bytes), arch, age]);
        }
        table.render()
    }

    fn json(&self) -> Value {
        json!({ "images": self.images })
    }

    fn ids(&self) -> Vec<String> {
        self.images.iter().map(|image| image.reference.clone()).collect()
    }
}

impl View for ImageView {
    fn table(&self) -> String {
        let image = &self.image;
        let line = format!("{}  {}  {}", image.reference, short_digest(&image.digest), human_size(image.size_bytes));
        format!("{}\n", crate::printer::visible(&line))
    }

    fn json(&self) -> Value {
        json!(self.image)
    }

    fn ids(&self) -> Vec<String> {
        vec![self.image.reference.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_one_line() {
        let image: Image = serde_json::from_value(json!({
            "reference": "docker.io/library/debian:12", "digest": "sha256:0123456789abcdef", "sizeBytes": 3 << 20,
            "createdAt": "1970-01-01T00:00:00Z", "architecture": "amd64", "env": {}, "user": null, "workdir": null,
            "entrypoint": [], "cmd": [],
        }))
        .expect("an image");
        let table = ImagesView { images: vec![image.clone()], now_ms: 7_200_000 }.table();
        assert!(table.contains("docker.io/library/debian:12  0123456789ab  3.0 MiB  amd64  2h\n"), "{table}");
        assert_eq!(ImageView { image }.ids(), ["docker.io/library/debian:12"]);
    }
}
