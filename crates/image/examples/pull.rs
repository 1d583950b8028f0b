//! `pull DIR REFERENCE`: makes an image of a registry ready in the store at DIR and prints its record.

use std::path::Path;
use warren_image::{Config, Store};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(dir), Some(reference)) = (args.next(), args.next()) else {
        return Err("usage: pull DIR REFERENCE".into());
    };
    let store = Store::open(Path::new(&dir), Config::default())?;
    let image = store.ensure(&reference, &warren_model::ImageAccess::default(), warren_image::Ask::Always).await?;
    println!("{}\n{:#?}", image.disk.offset(), image.record);
    Ok(())
}
