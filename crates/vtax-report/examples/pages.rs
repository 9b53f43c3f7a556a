//! Writes pages of synthetic runs for visual inspection: `cargo run -p vtax-report --example pages -- FOLDER`

use std::{env, error::Error, fs, path::Path};

use vtax_model::run::Run;
use vtax_report::{Options, page};
use vtax_synthetic::{analyse, built_in, disks, of_text};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = env::args().nth(1).ok_or("usage: pages FOLDER")?;
    fs::create_dir_all(&folder)?;
    let runs = [
        ("demo", built_in("demo")),
        ("sparc-t7-1", built_in("sparc-t7-1")),
        ("ip-instances", built_in("ip-instances")),
        ("disks", disks()),
        ("sizes", sizes()),
    ];
    for (name, run) in runs {
        let text = page(&[analyse(&run)], &Options::default(), &[])?;
        fs::write(Path::new(&folder).join(format!("{name}.html")), text)?;
    }
    Ok(())
}

/// Many sizes, and one row less than there are separate colours.
fn sizes() -> Run {
    of_text(
        r#"
        id = "sizes"
        title = "Round trips of many sizes"
        baseline = "native"
        [matrix]
        methods = ["native", "shared-ip", "veth", "bridge", "macvlan", "vxlan"]
        mtu = [1500]
        transports = ["tcp", "udp"]
        tests = ["rr"]
        sizes = [1, 64, 256, 512, 1024]
        [plan]
        samples = 11
        duration = "500ms"
        "#,
    )
}
